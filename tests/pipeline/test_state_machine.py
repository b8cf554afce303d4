"""Whatever is changed, taken back, stopped, killed or fails: one more run gives what a fresh directory gives.

Random sequences over a reduced study with stages of milliseconds (`stub`); Snakemake, the rules, locks and
publishing are the real ones. Before the last run `status` must have said what is left.
STAPO_SEQUENCES sets how many sequences; each depends on its number alone, and on when a signal arrives.
"""

import io
import json
import os
import random
import signal
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from world import STATES, World

from stapo.suite import paths
from stapo.suite.jobs import jobs_of
from stapo.suite.operations.status import print_status, progress
from stapo.suite.study import Study

SEQUENCES = int(os.environ.get("STAPO_SEQUENCES", "2"))
LONGEST_SECONDS = 8.0
"""Until a signal: about what a whole run takes."""
CURVE = {"every": 2, "benchmarks": ["chain-2"], "decoding": "t1.0-p1.0"}
CHANGES: dict[str, dict[str, Any]] = {
    "method": {"methods": {"stapo": {"tau_p": 0.01}}},
    "title": {"methods": {"stapo": {"title": "Another title"}}},
    "training": {"training": {"learning_rate": 1.0e-4}},
    "evaluation": {"evaluation": {"seed": 7}},
    "prompts": {"data": {"prompts": 512}},
    "base model": {"models": {"tiny": {"supervised_steps": 7}}},
    "steps kept": {"training": {"evaluate_every": 4}},
    "curve": {"evaluation": {"curve": CURVE}},
    "interventions": {"interventions": {"checkpoints": ["tiny/base", "tiny/stapo/seed0"]}},
}
FAILING = ("train", "intervene", "generate", "score", "tables", "evidence", "provenance")
EVENTS = ("change", "change", "revert", "run", "ctrl-c", "kill", "orphan", "fail", "times")
"""Each sequence leaves out two."""


class Changing(World):
    """A directory in which a study is changed and run."""

    def __init__(self, path: Path, changed: set[str]) -> None:
        super().__init__(path, STATES, stub=True)
        self.changed = set(changed)

    def now(self) -> Study:
        """Make the study what the changes say, and return it."""
        self.study = STATES
        for name in sorted(self.changed):
            self.change(CHANGES[name])
        return self.parsed()


def published(world: Changing) -> dict[str, bytes]:
    """Return every file of the study's layout, weights included.

    A training's record goes on naming the weights of steps that were asked for once: those are left out.
    """
    study = world.now()
    models = [paths.checkpoint_path(study.name, name) for name in study.checkpoints()]
    files = [*jobs_of(study).published(), paths.CHECKSUMS.format(study=study.name)]
    files += [f"{model}/model.safetensors" for model in models]
    found = {path: (world.path / path).read_bytes() for path in files}
    kept = {"model", "metrics.jsonl", "tokens.parquet", *(f"step{n}" for n in study.kept_steps())}
    for path in (job.outputs[-1] for job in jobs_of(study).all("train")):
        record = json.loads(found[path])
        outputs = record["outputs"].items()
        record["outputs"] = {k: v for k, v in outputs if k.partition("/")[0] in kept}
        found[path] = json.dumps(record).encode()
    return found


def happen(world: Changing, kind: str, rng: random.Random) -> str:
    """Let one thing happen; return what."""
    seconds, name, stage = rng.uniform(0.5, LONGEST_SECONDS), rng.choice([*CHANGES]), ""
    world.now()
    if kind == "change":
        world.changed.add(name)
    elif kind == "revert":
        world.changed.clear()
    elif kind == "run":
        world.run()
    elif kind == "times":
        world.other_times(rng.randrange(10))
    elif kind == "fail":
        stage = rng.choice(FAILING)
        (world.path / "FAIL").write_text(stage)
        world.snakemake()
        (world.path / "FAIL").unlink()
    else:
        sent = signal.SIGINT if kind == "ctrl-c" else signal.SIGKILL
        world.interrupt(seconds, sent, everything=kind != "orphan")
    return f"{kind} (change {name}, after {seconds:.1f} s, stage {stage})"


def check_what_is_said(world: Changing) -> None:
    """Hold `status` against the jobs that Snakemake announces."""
    study = world.now()
    jobs = set(world.jobs())
    stream = io.StringIO()
    with chdir(world.path):
        found = progress(study)
        print_status(study, Console(file=stream, width=120))
    said = (jobs, stream.getvalue())
    left = {one.stage for one in found if one.state != "done"}
    assert bool(left) == bool(jobs), said
    assert "train" not in left or "train" in jobs, said
    answered = {"generate", "generate_curve", "score", "score_curve"}
    assert not left & {"generate", "score"} or jobs & answered, said


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """What a fresh directory gives, by the changes of the study."""

    @cache
    def run(changed: frozenset[str]) -> dict[str, bytes]:
        world = Changing(tmp_path_factory.mktemp("fresh"), {*changed})
        world.now()
        world.run()
        return published(world)

    return run


@pytest.mark.parametrize("number", range(SEQUENCES))
def test_one_run_gives_what_a_fresh_directory_gives(tmp_path, fresh, number):
    rng, world = random.Random(number), Changing(tmp_path, set())
    happened = []
    try:
        for kind in rng.sample(EVENTS, len(EVENTS) - 2):
            happened.append(happen(world, kind, rng))
        check_what_is_said(world)
        world.run()
        expected, found = fresh(frozenset(world.changed)), published(world)
        assert [p for p in expected if found[p] != expected[p]] == []
        check_what_is_said(world)
    except AssertionError as error:
        raise AssertionError(f"after: {', '.join(happened)}\n{error}") from error
