"""A longer training goes on from a shorter one with the same settings: its first steps are the same.

Nothing in a step depends on how many follow: the learning rate is constant after its warm-up, and the order
of the prompts is the beginning of that of more steps. Only the sample of tokens that is recorded of a step is
smaller in a longer training; of these steps it stays the shorter one's.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stapo.core.checkpoints import (
    ASIDE,
    SEAL,
    newest_whole,
    put_in_place,
    seal,
    step_checkpoints,
    step_of,
)
from stapo.core.checksums import damaged_file
from stapo.core.files import DamagedFileError, canonical, link_tree, read_json
from stapo.core.ranks import say
from stapo.suite.paths import TRAINED


def adopt_shorter(
    work: Path,
    config: Mapping[str, Any],
    kept: Mapping[int, Path],
    identity: Mapping[str, Any],
    input_fingerprint: Callable[[Mapping[str, Any]], str],
) -> None:
    """Give a training without checkpoint the newest one of the longest shorter training beside it, if any.

    Files of the other are linked, not changed. `kept` has the directories of weights by step, as in
    `train_from_newest`; `input_fingerprint` returns the fingerprint in the identity of checkpoints for a
    configuration.
    """
    if step_checkpoints(work):
        return
    for steps, other in sorted(_shorter(work, config), reverse=True):
        theirs = {**identity, "fingerprint": input_fingerprint(read_json(other / "config.json"))}
        # Another training may remove its checkpoints meanwhile, or have another layout of them.
        with suppress(OSError, ValueError):
            _link_weights(work, kept, other, steps)
            lost = [step for step, path in kept.items() if not path.exists()]
            checkpoint = newest_whole(other, theirs, min(lost, default=None))
            if checkpoint is not None:
                _link_checkpoint(checkpoint, work, identity)
                note = f"the same settings with {steps} steps"
                return say(f"going on from step {step_of(checkpoint)} of {other}: {note}")


def _shorter(work: Path, config: Mapping[str, Any]) -> Iterator[tuple[int, Path]]:
    """Yield steps and directory of each training whose configuration differs in fewer steps alone."""
    for path in work.parent.glob("*/config.json"):
        with suppress(OSError, DamagedFileError, KeyError, TypeError):
            theirs = read_json(path)
            steps = theirs["training"]["steps"]
            longer = {"training": {**theirs["training"], "steps": config["training"]["steps"]}}
            is_same = canonical({**theirs, **longer}) == canonical(config)
            if is_same and steps < config["training"]["steps"]:
                yield steps, path.parent


def _link_weights(work: Path, kept: Mapping[int, Path], other: Path, steps: int) -> None:
    """Link the weights of steps that both trainings keep; the last ones of the other are in its results."""
    for step, path in kept.items():
        source = other / (f"{TRAINED}/model" if step == steps else path.relative_to(work))
        if not path.exists() and source.exists() and not damaged_file(source):
            link_tree(source, path)


def _link_checkpoint(checkpoint: Path, work: Path, identity: Mapping[str, Any]) -> None:
    """Link a checkpoint into another work directory, with a seal of its own."""
    aside = work / ASIDE / checkpoint.name
    link_tree(checkpoint, aside)
    (aside / SEAL).unlink()  # Written in place, it would change the other's.
    seal(aside, dict(identity))
    put_in_place(aside, work, None)
    shutil.rmtree(work / ASIDE, ignore_errors=True)
