"""A published folder: what `stapo provenance` writes, and what `stapo verify` finds when it is changed."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forgeries import (
    DRAWN,
    FAILURES,
    FILES,
    FORGERIES,
    LATER,
    ORIGIN,
    PROVENANCE,
    SCORES,
    WEIGHTS,
    Forger,
)
from synthetic import leave_out_raw_data

from stapo.canonical import canonical
from stapo.evaluation.scores import score
from stapo.files import read_jsonl, write_jsonl
from stapo.provenance import SUMS, file_sha256
from stapo.publication import summary
from stapo.publication.commands import command_faults
from stapo.publication.folder import read_published_study
from stapo.publication.manifest import write_provenance
from stapo.publication.verify import CHECKS, SUMMARY_CHECKS, guarded, opened, verify
from stapo.records.scores import read_identity
from stapo.records.step import PHASES
from stapo.study import StudyError, parse_study

pytestmark = pytest.mark.slow

CELL = "tiny/justrl/seed0/t1.0-p1.0/chain-2"
RUN = "runs/tiny/stapo/seed0"


@pytest.fixture
def published(finished, tmp_path: Path) -> Path:
    """A copy of the results under another name, as somebody downloads it."""
    shutil.copytree(finished.path / "results" / "smoke", tmp_path / "downloaded")
    return tmp_path / "downloaded"


def findings(folder: Path) -> tuple[bool, dict[str, bool], str]:
    """Return the verdict, whether each question is answered with ok, and all that was said."""
    said: list[str] = []
    right = verify(folder, said.append)
    answers = {
        line[9:]: line.startswith("ok") for line in said if line.startswith(("ok  ", "error"))
    }
    return right, answers, "\n".join(said)


def first_error(folder: Path, question: str) -> str | None:
    """Return the first line that one question finds wrong, None where nothing is."""
    with opened(folder) as (results, refused):
        return next(iter(refused or guarded(CHECKS[question], results)), None)


def any_error(folder: Path) -> str | None:
    """Return the first line that any question finds wrong."""
    return next(filter(None, (first_error(folder, question) for question in CHECKS)), None)


def change_rows(**columns: Any) -> Callable[[Path], None]:
    """Change the first row of a score file."""

    def change(folder: Path) -> None:
        path = folder / "scores" / f"{CELL}.parquet"
        table = pq.read_table(path)
        rows = table.to_pylist()
        rows[0] |= columns
        pq.write_table(table.from_pylist(rows, schema=table.schema), path)

    return change


def change_problems(change: Callable[[list[Any]], Any]) -> Callable[[Path], None]:
    """Change the responses of one cell, and its scores with them, as the pipeline would make them."""

    def apply(folder: Path) -> None:
        path = folder / "completions" / f"{CELL}.jsonl"
        problems = read_jsonl(path)
        change(problems)
        write_jsonl(path, problems)
        scores = folder / "scores" / f"{CELL}.parquet"
        identity = read_identity(scores)
        with suppress(*FAILURES):
            score(path, identity, scores)

    return apply


def change_json(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

    return apply


def swap_model(folder: Path) -> None:
    weights = "model/model.safetensors"
    shutil.copy(folder / "runs/tiny/grpo/seed0" / weights, folder / RUN / weights)


def swap_base(folder: Path) -> None:
    shutil.copy(folder / RUN / "model/model.safetensors", folder / "models/tiny/base")


def change_prompts(folder: Path) -> None:
    path = folder / "data" / "prompts.jsonl"
    path.write_text(path.read_text().replace("?", "!", 1))


def link_scores(folder: Path) -> None:
    (folder / "scores").rename(folder.parent / "elsewhere")
    (folder / "scores").symlink_to(folder.parent / "elsewhere")


def test_a_finished_study_holds_wherever_it_lies(published):
    right, answers, said = findings(published)
    assert right, said
    assert answers.keys() == CHECKS.keys()
    assert f"SHA256SUMS itself: {file_sha256(published / 'SHA256SUMS')}" in said
    done = subprocess.run(
        ["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=published, check=False
    )
    assert done.returncode == 0
    # Weights are large: a copy may lack them.
    for weights in published.rglob("*.safetensors"):
        weights.unlink()
    right, _, said = findings(published)
    assert right, said
    assert "note     5 files of weights are not here" in said


def test_a_summary_says_what_cannot_be_checked_without_the_raw_data(published):
    leave_out_raw_data(published)
    for suffix in ("pdf", "png"):
        (published / "figures" / f"entropy.{suffix}").unlink()
    (published / "report.html").unlink()
    (published / "runs/tiny/dropped/seed0").mkdir(parents=True)
    (published / "runs/tiny/dropped/seed0/provenance.json").write_text("{}")
    right, answers, said = findings(published)
    assert right, said
    assert "1 files are of another form of the study, such as runs/tiny/dropped" in said
    assert answers.keys() == SUMMARY_CHECKS.keys()
    assert summary.NOTE[:80] in said
    assert "not drawn again" not in said


@pytest.mark.parametrize(
    "change",
    [
        change_json(f"{RUN}/provenance.json", lambda run: run.update(fingerprint="0")),
        change_json(f"{RUN}/provenance.json", lambda run: run.update(prompts="0")),
        change_json(
            f"{RUN}/provenance.json", lambda run: run["outputs"].update({"metrics.jsonl": "0"})
        ),
        change_json(f"{RUN}/provenance.json", lambda run: run["outputs"].popitem()),
        change_json(f"{RUN}/provenance.json", lambda run: run["config"].update(recipe=99)),
        change_json("models/tiny/base.json", lambda model: model.update(layers=9)),
        change_json("provenance.json", lambda about: about.update(training_seconds=9.0)),
        lambda folder: (folder / "tables" / "other.md").write_text("99.9"),
        lambda folder: (folder / "tables" / "values.csv").unlink(),
        lambda folder: (folder / "figures" / "entropy.svg").unlink(),
        lambda folder: (folder / "runs/tiny/stapo/seed0/provenance.json").unlink(),
    ],
)
def test_a_change_of_a_summary_is_found_even_if_its_checksum_is_renewed(published, change):
    leave_out_raw_data(published)
    change(published)
    sums = published / SUMS
    lines = [line.split("  ") for line in sums.read_text().splitlines()]
    renewed = [
        (file_sha256(published / path) if (published / path).exists() else stated, path)
        for stated, path in lines
    ]
    sums.write_text("".join(f"{stated}  {path}\n" for stated, path in renewed))
    right, _, said = findings(published)
    assert not right, said


def test_a_changed_file_of_a_summary_and_added_ones_without_a_checksum_are_found(published):
    leave_out_raw_data(published)
    (published / "tables" / "values.csv").write_text("99.9")
    (published / "regimes.csv").write_text("x\n")
    right, _, said = findings(published)
    assert not right
    assert "tables/values.csv: changed since" in said
    assert "regimes.csv: is not in SHA256SUMS" in said


@pytest.mark.parametrize(
    ("change", "question"),
    [
        (change_rows(correct=True, correct_with_verifier=True, verdict="other"), SCORES),
        (change_rows(answer="7"), SCORES),
        (change_rows(num_tokens=1), SCORES),
        (change_rows(verifier="accepted"), SCORES),
        (change_rows(correct_with_verifier=None), SCORES),
        (change_problems(lambda problems: problems[0].update(gold="0")), SCORES),
        (change_problems(lambda problems: problems[3].update(question="chain:1+1?")), SCORES),
        (change_problems(lambda problems: problems.pop()), SCORES),
        (change_problems(lambda problems: problems.__setitem__(0, problems[1])), SCORES),
        (change_problems(lambda problems: problems[0]["responses"].pop()), SCORES),
        (change_problems(lambda problems: problems.__setitem__(0, [1])), SCORES),
        (change_problems(lambda problems: problems[0].update(responses=None)), SCORES),
        (swap_model, WEIGHTS),
        (swap_base, WEIGHTS),
        (change_prompts, WEIGHTS),
        (change_json(f"{RUN}/provenance.json", lambda run: run.update(outputs={})), WEIGHTS),
        (change_json(f"{RUN}/provenance.json", lambda run: run.update(fingerprint="0")), WEIGHTS),
        (change_json(f"{RUN}/provenance.json", dict.clear), WEIGHTS),
        (
            change_json(
                f"{RUN}/provenance.json", lambda run: run["outputs"].update({"/etc/passwd": "0"})
            ),
            WEIGHTS,
        ),
        (
            change_json("provenance.json", lambda about: about.update(training_gpu_hours=9.0)),
            PROVENANCE,
        ),
        (
            change_json(
                "provenance.json",
                lambda about: about["study"]["training"].update(learning_rate=1.0e-4),
            ),
            ORIGIN,
        ),
        (
            change_json(
                "provenance.json", lambda about: about["study"]["run"]["methods"].remove("grpo")
            ),
            FILES,
        ),
        (link_scores, FILES),
        (lambda folder: (folder / "tables" / "other.md").write_text("99.9"), FILES),
        (lambda folder: (folder / "figures" / "entropy.png").unlink(), FILES),
        (lambda folder: (folder / RUN / "metrics.jsonl").unlink(), FILES),
    ],
)
def test_a_change_is_found_even_by_a_forger(
    published: Path, change: Callable[[Path], Any], question: str
):
    change(published)
    assert any_error(published)
    Forger(published).sum()
    assert first_error(published, question)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found_though_everything_else_agrees(published: Path, name: str):
    forgery, question = FORGERIES[name]
    forger = Forger(published)
    forgery(forger)
    forger.renew(drawn=question == DRAWN)
    assert first_error(published, question)


@pytest.mark.parametrize("name", LATER)
def test_a_forgery_is_found_that_nothing_else_follows_from(published: Path, name: str):
    forgery, question = LATER[name]
    forger = Forger(published)
    forgery(forger)
    forger.sum()
    assert not first_error(published, FILES)
    assert first_error(published, question)


def test_renewing_what_was_not_changed_is_no_forgery(published: Path):
    Forger(published).renew()
    right, _, said = findings(published)
    assert right, said


@pytest.mark.parametrize(
    "name",
    ["tables/main-t1.0-p1.0.md", "tables/main-t1.0-p1.0.tex", "references.bib", "report.html"],
)
def test_tables_and_report_follow_from_the_scores(published, name):
    path = published / name
    path.write_text(path.read_text().replace("STAPO", "STAPO 99.99", 1))
    sums = published / "SHA256SUMS"
    lines = [line.partition("  ")[2] for line in sums.read_text().splitlines()]
    sums.write_text("".join(f"{file_sha256(published / line)}  {line}\n" for line in lines))
    assert not first_error(published, FILES)
    assert first_error(published, DRAWN)
    # A line twice, of which the second is right.
    sums.write_text(f"{'0' * 64}  report.html\n{sums.read_text()}")
    assert "lists a file twice" in str(first_error(published, FILES))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_values_follow_from_the_scores(published, suffix):
    path = published / f"tables/values.{suffix}"
    if suffix == "csv":
        path.write_text(path.read_text().replace(",avg@4,", ",avg@4,1", 1))
    else:
        table = pq.read_table(path)
        rows = table.to_pylist()
        rows[0]["value"] += 1
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    sums = published / "SHA256SUMS"
    lines = [line.partition("  ")[2] for line in sums.read_text().splitlines()]
    sums.write_text("".join(f"{file_sha256(published / line)}  {line}\n" for line in lines))
    assert not first_error(published, FILES)
    assert f"values.{suffix}: does not follow" in str(first_error(published, DRAWN))


def steps_without_end(folder: Path) -> None:
    study = {"steps": 4 * 10**12, "evaluate_every": 1}
    change_json("provenance.json", lambda about: about["study"]["training"].update(study))(folder)


def many_checkpoints(folder: Path) -> None:
    study = {"steps": 2000, "evaluate_every": 1}
    change_json("provenance.json", lambda about: about["study"]["training"].update(study))(folder)


def wide_model(folder: Path) -> None:
    settings = {"hidden_size": 4096, "layers": 64}
    name = "provenance.json"
    change_json(name, lambda about: about["study"]["models"]["tiny"].update(settings))(folder)


def ten_million_rows(folder: Path) -> None:
    path = folder / "scores" / f"{CELL}.parquet"
    table = pq.read_table(path)
    pq.write_table(table.take([0] * 10**5), path)


def fifo(name: str) -> Callable[[Path], None]:
    def put(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return put


def endless(name: str) -> Callable[[Path], None]:
    def put(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to("/dev/zero")

    return put


def sparse(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, 2**40)


HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "FIFO as provenance": (fifo("provenance.json"), "device, FIFO or socket"),
    "endless provenance": (endless("provenance.json"), "is a link"),
    "endless checksums": (endless("SHA256SUMS"), "is a link"),
    "FIFO as a score": (fifo(f"scores/{CELL}.parquet"), "device, FIFO or socket"),
    "FIFO that nothing names": (fifo("tables/more.md"), "device, FIFO or socket"),
    "endless responses": (endless(f"completions/{CELL}.jsonl"), "is a link"),
    "weights that are a hole": (sparse(f"{RUN}/model/model.safetensors"), "nearly all holes"),
    "responses that are a hole": (sparse(f"completions/{CELL}.jsonl"), "nearly all holes"),
    "more rows than responses": (ten_million_rows, "has 100000 rows, expected 400"),
    "deep JSON": (
        lambda folder: (folder / RUN / "provenance.json").write_text('{"a":' * 10**5),
        "nested too deeply",
    ),
    "steps without end": (steps_without_end, "4000000000000 is not a number up to"),
    "more checkpoints than files": (many_checkpoints, "the study needs"),
    "a wide model": (wide_model, "of a training with other settings"),
    "no text": (
        lambda folder: (folder / f"completions/{CELL}.jsonl").write_bytes(b"\xff\n" * 100),
        "can't decode",
    ),
}
"""What a folder holds that is not to be read, and the line that says so."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_ends_in_a_line(published: Path, name: str):
    put, line = HOSTILE[name]
    put(published)
    found: list[str | None] = []
    try:
        # Checksums are the first question, and another test's.
        found += [first_error(published, question) for question in list(CHECKS)[1:6]]
    except StudyError as error:
        found += error.errors
    assert any(line in str(one) for one in found), found
    assert not any("\n" in str(one) for one in found)


def test_names_of_files_do_not_write_lines_of_their_own(published):
    (published / "tables" / "a\nok       all is well\x1b[2J").write_text("")
    right, answers, said = findings(published)
    assert not right
    assert "\x1b" not in said
    assert "all is well" not in answers


def test_what_is_missing_or_too_much_is_named(published):
    (published / "figures" / "entropy.png").unlink()
    (published / "extra.txt").write_text("?")
    right, _, said = findings(published)
    assert not right
    assert "figures/entropy.png: missing" in said
    assert "extra.txt: belongs to nothing of this study" in said


def test_what_another_form_of_the_study_left_is_noted_and_no_forgery(published):
    for path in (f"runs/tiny/dropped/seed0/model/{SUMS}", "completions/tiny/base/t2/chain-9.jsonl"):
        (published / path).parent.mkdir(parents=True, exist_ok=True)
        (published / path).write_text("\x00")
    right, _, said = findings(published)
    assert right, said
    assert "2 files are of another form of the study, such as completions/" in said
    (published / "runs/tiny/dropped/seed0/model/pytorch_model.bin").write_text("pickle")
    assert not findings(published)[0]


def test_what_was_given_up_before_there_were_results_was_no_choice(published):
    study = read_published_study(published)
    (run, *_), raw = study.runs(), study.model_dump(mode="json", exclude_none=True)
    raw["run"]["benchmarks"] = [*raw["run"]["benchmarks"], "chain-4"]
    command = ["python", "-m", "stapo", "train", "--study"]
    # Commands held the study themselves before they named a file.
    before = {"command": [*command, canonical(raw)]}
    now = {"command": [*command, "work/smoke/studies/0123456789abcdef.json"], "study": raw}
    for attempt in (before, now):
        assert list(command_faults(study, run, attempt, last=False)) == []
        (line,) = command_faults(study, run, attempt, last=True)
        assert line == "lists benchmarks that are not shown: chain-4"
    del now["study"]
    (line,) = command_faults(study, run, now, last=True)
    assert line.endswith("0123456789abcdef.json, a study that the attempt does not record")
    assert not list(command_faults(study, run, {"command": [*command, "mine.yaml"]}, last=True))


def test_another_folder_is_bad_input(tmp_path):
    with pytest.raises(StudyError, match="no results folder"):
        verify(tmp_path, print)
    command = [sys.executable, "-m", "stapo", "verify", str(tmp_path)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def test_a_run_says_what_it_was_made_from_and_with(finished):
    results = finished.path / "results" / "smoke"
    run = json.loads((results / RUN / "provenance.json").read_text())
    assert run["outputs"]["model/model.safetensors"] == file_sha256(
        results / RUN / "model/model.safetensors"
    )
    assert run["base"]["model.safetensors"] == file_sha256(
        results / "models/tiny/base/model.safetensors"
    )
    assert run["prompts"] == file_sha256(results / "data/prompts.jsonl")
    assert run["steps"] == 8
    (attempt,) = run["attempts"]
    assert attempt["after_step"] == 0
    assert attempt["command"][:4] == [Path(sys.executable).name, "-m", "stapo", "train"]
    named = attempt["command"][attempt["command"].index("--study") + 1]
    assert attempt["study"] == json.loads((finished.path / named).read_text())
    # The steps are a part of the attempt, the rest is starting and publishing.
    steps = [
        json.loads(line) for line in (results / RUN / "metrics.jsonl").read_text().splitlines()
    ]
    spent = sum(step["seconds"].get(phase, 0) for step in steps for phase in PHASES)
    assert run["seconds"] == pytest.approx(spent, rel=1e-9)
    assert 0 < run["seconds"] < attempt["seconds"]
    assert run["environment"]["packages"]["torch"].startswith("2.13.0")
    assert len(run["environment"]["lock"]) == 64
    study = json.loads((results / "provenance.json").read_text())
    assert study["prompts"] == run["prompts"]
    assert study["fingerprints"]["tiny/stapo/seed0"] == run["fingerprint"]


def test_what_a_narrower_study_leaves_is_not_listed_and_a_stale_training_is_refused(workspace):
    workspace.study["run"]["methods"] = ["justrl", "stapo"]
    study = parse_study(workspace.study)
    _, sums = write_provenance(study, workspace.path)
    assert "grpo" not in sums.read_text()
    run = workspace.path / "results/smoke" / RUN / "provenance.json"
    run.write_text(run.read_text().replace(json.loads(run.read_text())["fingerprint"], "0" * 16))
    with pytest.raises(RuntimeError, match="tiny stapo seed 0: trained with other settings"):
        write_provenance(study, workspace.path)
