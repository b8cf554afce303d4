"""The controls of the study `marked` silence as many tokens as S2T, and those that they are named after."""

import importlib.util

import torch

from stapo.objective import silence_spurious
from stapo.repository import STUDIES

SPEC = importlib.util.spec_from_file_location("controls", STUDIES / "controls.py")
assert SPEC is not None
assert SPEC.loader is not None
controls = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(controls)


def test_controls_of_s2t():
    generator = torch.Generator().manual_seed(0)
    logps = torch.rand((40, 30), generator=generator).mul(0.01).log()
    entropies = torch.rand((40, 30), generator=generator)
    mask = torch.rand((40, 30), generator=generator) < 0.9
    advantages = torch.randn(40, generator=generator)
    tables, positive = (logps, entropies, advantages, mask), (advantages > 0).unsqueeze(1)
    s2t = mask & ~silence_spurious(*tables)
    matched = [mask & ~controls.silence_matched(*tables, seed=seed) for seed in (1, 1, 2)]
    assert all(int(one.sum()) == int(s2t.sum()) > 50 for one in matched)
    assert not (matched[0] & ~positive).any()
    assert (matched[0] & (logps.exp() > 0.002)).any()  # Not rare ones alone.
    assert torch.equal(matched[0], matched[1])
    assert not torch.equal(matched[0], matched[2])
    mirror = mask & ~controls.silence_mirror(*tables)
    assert mirror.any()
    assert not (mirror & positive).any()
    assert (logps[mirror].exp() < 0.002).all()
