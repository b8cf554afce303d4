"""Several processes, for real: FSDP2 and replicas over gloo, kills.

This is also the program of the ranks: it trains on given responses and saves what each step computed.
Usage: test_distributed.py WORLD OUT MASKS CASE...   (also under `accelerate launch`)

MASKS is the OUT of an earlier run, or `-`. Its masks replace this run's own, which are saved all the same:
so the selections are compared, and then everything else under one selection. With PACKED=1 in the
environment, passes have no padding.
"""

import json
import math
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

if __name__ == "__main__":
    sys.path += [str(Path(__file__).parents[2]), str(Path(__file__).parent)]
    import fsdp_on_cpu  # noqa: F401  Before anything starts Accelerate.
import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from training_jobs import assert_same, metrics, run, with_settings
from trl.generation.vllm_generation import VLLMGeneration

from stapo.core import update as update_module
from stapo.core.attempts import attempts
from stapo.core.checkpoints import SEAL, step_checkpoints, step_of
from stapo.core.files import read_jsonl
from stapo.core.methods import METHODS
from stapo.core.objective import ENTROPY_RESOLUTION, at_resolution, spurious_candidates
from stapo.core.trainer import StapoTrainer
from stapo.suite.records.tokens import read_token_file
from stapo.suite.repository import ROOT
from stapo.suite.training.run import leave

PROGRAM = Path(__file__)
CASES: dict[str, dict[str, Any]] = {
    "stapo": {},
    "grpo": {},
    "entropy-bonus": {},
    "lp-reg": {},
    "20-entropy": {"statistics": "current"},
    "stapo-v2": {"statistics": "current", "micro_batch_tokens": 100_000},
    # A checkpoint would divide weights again that a pass has gathered.
    "justrl": {"checkpoint_every": 6},
}
FLAT = {"justrl": (2, 3)}
"""Case -> steps of the rollout in which all rewards are equal, so that there is no gradient."""
SAVED = "saved.safetensors"
SEEN = ("logps", "entropies", "advantages", "mask", "keep")
"""By a selection, and what it chose; everything else that is saved of a step is a gradient."""
SAMPLE = ["prompt", "response", "position", "kind", "weight", "before", "after", "kept"]
FSDP = str(ROOT / "workflows" / "accelerate" / "cpu-2.yaml")
SHARDED = [
    *(sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"),
    *("--config_file", FSDP, "--main_process_port", "0"),
]
"""Two processes under FSDP2, at any free port."""
REPLICAS = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
"""Two processes with the whole model each, exchanging gradients; `accelerate launch --cpu` starts one."""

pytestmark = pytest.mark.slow


def start(
    launch: list[str], *arguments: str | Path, program: Path = PROGRAM, **environment: str
) -> subprocess.Popen[str]:
    """Start a program, under a launcher or alone."""
    return subprocess.Popen(
        [*launch, str(program), *map(str, arguments)],
        env={**os.environ, "ACCELERATE_USE_CPU": "true", **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors[-3000:]


@pytest.fixture(scope="module")
def alone(world, tmp_path_factory) -> Path:
    """What one process computes."""
    out = tmp_path_factory.mktemp("alone")
    finish(start([sys.executable], world, out, "-", *CASES))
    return out


def border_distance(case: str, seen: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return how far each token is from a border of the selection: nats of entropy, or of log p."""
    args, mask = METHODS[case].arguments_of("selection"), seen["mask"]
    logps, entropies = seen["logps"].double(), at_resolution(seen["entropies"])
    if "fraction" in args:
        kept = math.ceil(args["fraction"] * int(mask.sum()))
        return (entropies - entropies[mask].sort(descending=True).values[kept - 1]).abs()
    if "tau_p" not in args:
        return torch.full_like(logps, torch.inf)
    rare = spurious_candidates(logps, seen["advantages"], mask, args["tau_p"])
    pool = entropies[mask if args["scope"] == "all" else rare]
    border = pool.quantile(args["quantile"]) if len(pool) else torch.inf
    return torch.minimum((logps - math.log(args["tau_p"])).abs(), (entropies - border).abs())


@pytest.mark.rounding
@pytest.mark.parametrize(
    ("launch", "packed"), [(REPLICAS, "0"), (SHARDED, "1")], ids=["replicas", "packed"]
)
def test_two_ranks_compute_what_one_computes(world, alone, tmp_path, launch, packed):
    """To rounding: sums over tokens and ranks are taken in another order, and one process pads."""
    finish(start(launch, world, tmp_path, alone, *CASES, PACKED=packed))
    for case in CASES:
        seal = json.loads((tmp_path / case / "work" / "checkpoint-6" / SEAL).read_text())
        assert seal["num_processes"] == 2
        assert seal["layout"] == ("whole states" if launch is REPLICAS else "FSDP")
        one, two = (load_file(out / case / SAVED) for out in (alone, tmp_path))
        assert one.keys() == two.keys()
        for step in range(6):
            ours, theirs = ({n: run[f"{step}/{n}"] for n in SEEN} for run in (one, two))
            assert torch.equal(ours["mask"], theirs["mask"])
            for name in ("logps", "entropies", "advantages"):
                # The weights of the later steps carry the rounding of the earlier ones.
                torch.testing.assert_close(theirs[name], ours[name], rtol=0, atol=2e-4)
            # What lies at a border may fall on either side, everything else is the same token by token.
            differs = ours["keep"] != theirs["keep"]
            assert (border_distance(case, ours)[differs] <= ENTROPY_RESOLUTION).all(), (case, step)
            names = [n for n in one if n.startswith(f"{step}/") and n.partition("/")[2] not in SEEN]
            difference = sum((one[n] - two[n]).square().sum() for n in names) ** 0.5
            size = sum(one[n].square().sum() for n in names) ** 0.5
            # Single precision, under one selection (5e-7 was measured). Adam divides a gradient by its size:
            # where it is near 0, its rounding moves a weight by a learning rate (2.2e-5 in later steps).
            assert difference <= (1e-4 if step else 5e-6) * size, (case, step)
            assert (size == 0) == (step in FLAT.get(case, ()))
        for a, b in zip(*(metrics(out / case) for out in (alone, tmp_path)), strict=True):
            for key in ("num_tokens", "num_silenced", "reward", "step"):
                assert a[key] == b[key], (case, key)
            for key in ("loss", "kl", "gradient_norm", "entropy", "clip_high_fraction"):
                assert a[key] == pytest.approx(b[key], rel=1e-4, abs=1e-6), (case, key)
        tables = (
            read_token_file(out / case / "tokens.parquet").to_pandas() for out in (alone, tmp_path)
        )
        # Later weights carry the rounding of earlier steps, and other tokens may be candidates.
        sampled, expected = (one[one["step"] == 1][SAMPLE] for one in tables)
        assert sampled.equals(expected)


def test_a_killed_launch_resumes_to_the_same_bits_also_past_a_checkpoint(world, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(SHARDED, world, whole, "-", "stapo"))
    process = start(SHARDED, world, killed, "-", "stapo")
    log = killed / "stapo" / "work" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while len(read_jsonl(log)) < 5 and time.monotonic() < deadline:
        time.sleep(0.005)
    # Launcher and both ranks, which are in sessions of their own.
    launcher = psutil.Process(process.pid)
    for one in [*launcher.children(recursive=True), launcher]:
        one.kill()
    process.communicate()
    assert not (killed / "stapo" / "model").exists()
    # A damaged part of one rank: all of them take the checkpoint before.
    newest = step_checkpoints(killed / "stapo" / "work")[-1]
    (newest / "rng_state_1.pth").write_bytes(b"garbage")
    finish(start(SHARDED, world, killed, "-", "stapo"))
    after = [record["after_step"] for record in attempts(killed / "stapo" / "work")]
    assert after == [0, step_of(newest) - 1]
    assert_same(killed / "stapo", whole / "stapo")


# The program


def completions(self: StapoTrainer, prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
    """Random tokens that depend on the row of the rollout alone, so that any ranks train on the same."""
    if self.is_fsdp_enabled:
        # vLLM would get the weights here.
        sync = SimpleNamespace(
            accelerator=self.accelerator, _fix_param_name_to_vllm=lambda name, **_: name
        )
        weights = dict(VLLMGeneration._iter_fsdp2_params(sync, self.model))
        assert all(type(weight) is torch.Tensor for weight in weights.values())
    vocabulary = len(self.processing_class)
    first = self.accelerator.process_index * len(prompt_ids)
    found = []
    for row in range(first, first + len(prompt_ids)):
        generator = torch.Generator().manual_seed(1000 * self.state.global_step + row)
        length = int(torch.randint(1, 24, (), generator=generator))
        found.append(torch.randint(5, vocabulary, (length,), generator=generator).tolist())
    return found, None


def rewards(completions: Any, flat: int | None = None, **given: Any) -> list[float]:
    """Some groups without variance, whose sequences the update leaves out; all where the step is `flat`."""
    if given["trainer_state"].global_step == flat:
        return [1.0] * len(completions)
    texts = [conversation[-1]["content"] for conversation in completions]
    return [1.0 if len(text) % 3 == 0 else -1.0 for text in texts]


def main(world: str, out: str, masks: str, *cases: str) -> None:
    for case in cases:
        directory = Path(out) / case
        directory.mkdir(parents=True, exist_ok=True)
        saved: dict[str, torch.Tensor] = {}
        given = {} if masks == "-" else load_file(Path(masks) / case / SAVED)
        norm, select = StapoTrainer._get_grad_norm, update_module.select

        def keep_gradients(self: Any, model: Any, grad_norm: Any = None, saved=saved, norm=norm):
            for name, parameter in model.named_parameters():
                gradient = parameter.grad
                whole = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
                saved[f"{self.state.global_step}/{name.removeprefix('module.')}"] = whole.clone()
            return norm(self, model, grad_norm)

        def keep_mask(
            method: Any, logps: Any, entropies: Any, advantages: Any, mask: Any, step: int,
            number: int, saved=saved, given=given, select=select,
        ):  # fmt: skip
            # The seed of the trainings here is 0, so that of a step is the number of those before it.
            kept = select(method, logps, entropies, advantages, mask, step, number)
            if f"{step}/keep" in saved:
                return kept  # The meter's parts come after the mini-batch.
            seen = (logps, entropies, advantages, mask, kept)
            for name, values in zip(SEEN, seen, strict=True):
                saved[f"{step}/{name}"] = values.clone()
            return given.get(f"{step}/keep", kept)

        with (
            patch.object(StapoTrainer, "_generate_single_turn", completions),
            patch.object(StapoTrainer, "_get_grad_norm", keep_gradients),
            patch.object(update_module, "select", keep_mask),
            patch("training_jobs.parity_reward", partial(rewards, flat=FLAT.get(case, [None])[0])),
            with_settings(packed=os.environ.get("PACKED") == "1"),
        ):
            # A clip that large changes no gradient; tau_p is such that there are candidates.
            run(Path(world), directory, case, gradient_clip=1e9, **CASES[case])
        if os.environ.get("RANK", "0") == "0":
            save_file({k: v.contiguous() for k, v in saved.items()}, directory / SAVED)
    # As a training does: threads of a connection that is open at exit may end a process with a signal.
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
