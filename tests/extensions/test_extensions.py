"""docs/extend.md and docs/how-to, executed: all that their table names is added in a copy and used.

The pages' examples are what is added. Each begins with a comment that says where it goes: `# FILE` is a new
file, `# FILE, in NAME` the last entry of NAME, `# FILE, before NAME` stands before it. One of their studies
is run here; tests/pipeline/test_documented_commands.py checks all.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest

from stapo.files import write_jsonl
from stapo.repository import ROOT
from stapo.study.sources import TinyData
from stapo.training.prompts import tiny_prompts

# One process: the copy and the run of its study are shared.
pytestmark = [pytest.mark.slow, pytest.mark.pipeline]

HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
PAGE = "\n".join(page.read_text() for page in (ROOT / "docs" / "extend.md", *HOW_TO))
STUDY = "workflows/studies/mine.yaml"
EXAMPLE = re.compile(
    r"```(?:python|yaml)\n# (?P<file>[\w./-]+)(?:, (?P<where>in|before) (?P<name>[*\w]+))?\n"
    r"(?P<text>.*?)```",
    re.DOTALL,
)


@dataclass(frozen=True)
class Row:
    """One line of the table: a thing, how many files it takes, and which."""

    thing: str
    files: int
    places: list[str]


def rows_of(page: str) -> dict[str, Row]:
    rows = {}
    for thing, files, places in re.findall(r"^\| (an? [^|]*) \| (\d) \| ([^|]*) \|", page, re.M):
        rows[thing] = Row(thing, int(files), re.findall(r"`([^`]*)`", places))
    return rows


def examples_of(page: str) -> dict[str, list[re.Match[str]]]:
    """Return the examples below each heading that names a thing, without other studies than the one."""
    sections = re.split(r"^## (.*)$", page, flags=re.M)
    found = {
        thing[0].lower() + thing[1:]: [
            example
            for example in EXAMPLE.finditer(text)
            if example["file"] == STUDY or not example["text"].startswith("extends:")
        ]
        for thing, text in zip(sections[1::2], sections[2::2], strict=True)
    }
    return {thing: examples for thing, examples in found.items() if examples}


ROWS, EXAMPLES = rows_of(PAGE), examples_of(PAGE)


def add(root: Path, example: re.Match[str]) -> None:
    """Do what an example's first line says."""
    path, text = root / example["file"], example["text"]
    if example["where"] is None:
        assert not path.exists(), path
        path.write_text(text)
        return
    lines = path.read_text().splitlines(keepends=True)
    inside = example["where"] == "in"
    start = re.escape(example["name"]) + (r"\b.*[(\[{:]$" if inside else r"(,$|: .*=)")
    (at,) = [i for i, line in enumerate(lines) if re.match(start, line.strip())]
    if inside:
        after = range(at + 1, len(lines))
        at = next((i for i in after if not lines[i].startswith(" ")), len(lines))
    elif not lines[at].startswith(" "):
        text += "\n\n"
    path.write_text("".join([*lines[:at], text, *lines[at:]]))


@dataclass
class Copy:
    """A copy of the repository, with an empty directory in which its programs run."""

    root: Path
    work: Path
    changed: dict[str, list[str]] = field(default_factory=dict)
    """The files that each thing took."""

    def contents(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.root)): path.read_bytes() for path in files_below(self.root)
        }

    def run(self, *command: str, fails: bool = False, **environment: str) -> str:
        """Run a module with the package of the copy; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", *command],
            cwd=self.work,
            env={
                **os.environ,
                "PYTHONPATH": str(self.root),
                "OMP_NUM_THREADS": "1",
                "COLUMNS": "200",
                "STAPO_DATA_DIR": str(self.work / "rows"),
                "HF_HUB_CACHE": str(self.work / "hub"),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def snakemake(self, *arguments: str) -> str:
        files = ["--snakefile", str(self.root / "Snakefile"), "--configfile", str(self.study)]
        return self.run("snakemake", *arguments, "--cores", "2", *files)

    @property
    def study(self) -> Path:
        return self.root / STUDY

    @property
    def results(self) -> Path:
        return self.work / "results" / "mine"

    def table(self, suffix: str) -> str:
        (path,) = (self.results / "tables").glob(f"main-*.{suffix}")
        return path.read_text()


def files_below(root: Path) -> list[Path]:
    return [p for p in root.rglob("*") if p.is_file() and "__pycache__" not in p.parts]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """The repository with everything added; one addition on top of the others."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    made = Copy(tmp_path_factory.mktemp("repository"), tmp_path_factory.mktemp("work"))
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists():
            (made.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, made.root / name)
    before = made.contents()
    for thing, examples in EXAMPLES.items():
        for example in examples:
            add(made.root, example)
        after = made.contents()
        made.changed[thing] = [name for name in after if after[name] != before.get(name)]
        before = after
    (made.work / "rows").mkdir()
    questions, rows = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (made.work / "rows" / "sums.jsonl").write_text(rows)
    (made.study.parent / "questions.jsonl").write_text(questions)
    prompts = tiny_prompts(TinyData(builder="tiny-arithmetic", prompts=64))
    write_jsonl(made.study.parent / "prompts.jsonl", list(prompts))
    return made


@pytest.fixture(scope="module")
def finished(copy: Copy) -> Copy:
    """The same, after its study has run."""
    copy.snakemake("--show-failed-logs")
    return copy


def test_every_row_of_the_table_has_an_example():
    assert len(ROWS) >= 10
    of_a_study = {thing for thing, row in ROWS.items() if not row.places and row.files == 1}
    assert len(of_a_study) == 6
    assert EXAMPLES.keys() | of_a_study == ROWS.keys()


@pytest.mark.parametrize("thing", EXAMPLES)
def test_a_thing_takes_the_files_that_the_table_says(copy, thing):
    row, changed = ROWS[thing], copy.changed[thing]
    assert len(changed) == row.files <= 2, changed
    for name in changed:
        assert any(name == place or name.startswith(f"{place}/") for place in row.places), name


def test_a_study_is_checked_with_its_methods_and_planned(copy):
    said = copy.run("stapo", "check", str(copy.study))
    assert "mine: 3 trainings of 4 steps" in said
    for what in (
        "tight-q50",
        "0.2 / 0.22",
        "dual_clip 10",
        "quantile 0.5",
        "tau_h 2",
        "rare.py:silence_rare; sha256: ",
        "training.reward: runs rewards.py:score; sha256: ",
        "benchmarks.own: 2 problems in questions.jsonl; sha256: ",
        "data: 64 rows in prompts.jsonl; sha256: ",
        "group_size 8",
    ):
        assert what in said, said
    said = copy.snakemake("-n", "--quiet", "rules")
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", said, re.M))
    assert (jobs["train"], jobs["score"]) == ("3", "8")


def test_a_size_is_planned_from_the_configuration_in_the_cache(copy, tmp_path):
    study = tmp_path / "large.yaml"
    study.write_text("extends: paper\nname: large\nrun: {sizes: [4B]}\n")
    refused = copy.run("stapo", "plan", str(study), fails=True)
    assert "shape of Qwen/Qwen3-4B-Base unknown" in refused
    config = {
        "num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151936,
        "tie_word_embeddings": True,
    }  # fmt: skip
    model = copy.work / "hub" / "models--Qwen--Qwen3-4B-Base"
    snapshot = model / "snapshots" / ("3" * 40)
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(snapshot.name)
    (snapshot / "config.json").write_text(json.dumps(config))
    said = copy.run("stapo", "plan", str(study), "--gpu", "b200", "--gpus", "8")
    # 4.02 billion parameters in fp32.
    assert re.search(r"base model 4B +1/1 +- +- +16\.1 GB", said), said
    assert "b200-hours" in said
    assert "b200" in copy.run("stapo", "plan", "--help")


def test_the_study_runs_to_its_end_and_is_verified(finished):
    checked = finished.run("stapo", "verify", str(finished.results))
    assert "does not hold" not in checked
    assert "the selection rare.py:silence_rare is not part of the folder" in checked


def test_a_method_and_a_token_selection_train(finished):
    silenced = {}
    for method in ("tight-q50", "fixed-h2", "rare"):
        path = finished.results / "runs" / "tiny-wide" / method / "seed0" / "metrics.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        assert [record["step"] for record in records] == [1, 2, 3, 4]
        silenced[method] = sum(record["num_silenced"] for record in records)
        assert ("mask_scope" in records[0]) == (method == "tight-q50")
    # Of a tau_p of 0.2 there are candidates within 4 steps.
    assert silenced["fixed-h2"] > 0
    assert silenced["rare"] > 0


def test_a_selection_and_a_benchmark_beside_the_study_are_compared_with_p_values(finished):
    values = pd.read_csv(finished.results / "tables" / "values.csv")
    assert "own" in set(values["benchmark"])
    compared = values[(values["benchmark"] == "Avg") & values["p_value"].notna()]
    assert set(compared["method"]) == {"rare"}
    assert set(compared["reference"]) == {"tight-q50", "fixed-h2"}
    scores = finished.results / "scores" / "tiny-wide" / "rare" / "seed0" / "t0.6-p0.95"
    assert len(pd.read_parquet(scores / "own.parquet")) == 2 * 4
    published = (finished.results / "provenance.json").read_text()
    assert '"selection": "rare.py:silence_rare"' in published
    assert str(finished.root) not in json.dumps(json.loads(published)["study"])


def test_a_file_that_changes_reruns_what_depends_on_it(finished):
    """A changed selection trains its method again, and nothing else; changed back, nothing runs."""
    code = finished.study.parent / "rare.py"
    before = code.read_text()
    code.write_text(before + "\n")
    said = finished.snakemake("-n", "--quiet", "rules")
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", said, re.M))
    assert (jobs["train"], jobs.get("base_model"), jobs["generate"]) == ("1", None, "1")
    code.write_text(before)
    assert "Nothing to be done" in finished.snakemake("-n")


def test_a_figure_is_drawn_and_reported(finished):
    figures = finished.results / "figures"
    assert (figures / "zero_advantage_fraction.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (figures / "zero_advantage_fraction.svg").read_text()
    assert "responses without advantage [%]" in (finished.results / "report.html").read_text()


def test_a_column_is_in_every_format_that_it_names(finished):
    """In all five at once: tests/unit/analysis/test_columns.py."""
    shown = {
        "md": (finished.table("md"), "| Finished % |"),
        "tex": (finished.table("tex"), r"& Finished \% &"),
        "html": ((finished.results / "report.html").read_text(), ">Finished %</th>"),
        "csv": (finished.table("csv"), ",Avg,finished %,"),
    }
    for name, (text, heading) in shown.items():
        assert heading in text, name
    assert "Finished %" not in finished.run("stapo", "show", str(finished.study))


def test_a_benchmark_is_answered_under_a_decoding_and_graded_by_lm_eval(finished):
    results = finished.results
    path = "tiny-wide/base/t0.6-p0.95/sums"
    scores = pd.read_parquet(results / "scores" / f"{path}.parquet")
    assert len(scores) == 2 * 4
    answers = results / "completions" / f"{path}.jsonl"
    regraded = finished.run("stapo", "regrade", str(answers), "--benchmark", "sums")
    assert f"{100 * scores['correct'].mean():.2f} %" in regraded
    assert "sums avg@4" in finished.table("md")


QUICK = (
    "numerics/test_against_oracle.py::test_selections_are_all_there",
    "numerics/test_methods.py",
    "unit/test_docs.py",
    "unit/test_layers.py",
    "unit/study/test_study.py",
    "unit/cli/test_bad_input.py",
    "unit/evaluation/test_task.py",
    "unit/operations/test_costs.py",
    "unit/operations/test_plan.py",
    "unit/training/test_minibatch.py",
    "unit/analysis/test_citations.py",
    "unit/analysis/test_columns.py",
    "unit/analysis/test_curves.py",
    "unit/analysis/test_draw.py",
    "unit/analysis/test_hyperparameters.py",
    "unit/analysis/test_report.py",
    "unit/analysis/test_report_plots.py",
    "unit/analysis/test_tables.py",
    "unit/analysis/test_values.py",
)
"""The project's tests that list what there is: those would complain of a forgotten file."""


def test_the_projects_own_tests_still_pass(copy):
    tests = copy.root / "tests"
    pytest_of_copy = ("pytest", "-q", "-p", "no:cacheprovider")
    quick = [str(tests / name) for name in QUICK]
    assert " passed" in copy.run(*pytest_of_copy, "-k", "not trains", *quick)
    studies = str(tests / "pipeline" / "test_studies.py")
    assert "2 passed" in copy.run(*pytest_of_copy, "-k", "mine or counted", studies)


def test_the_additions_have_the_projects_style(copy):
    changed = {name for names in copy.changed.values() for name in names if name.endswith(".py")}
    files = [str(copy.root / name) for name in sorted(changed)]
    # The settings are those of the nearest pyproject.toml, which is the copy's.
    copy.run("ruff", "check", "--no-cache", *files)
    copy.run("ruff", "format", "--no-cache", "--check", *files)
