"""A published folder: what `stapo provenance` writes, and what `stapo verify` finds when it is changed."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs import ran
from synthetic import leave_out_raw_data

from stapo.core.checksums import SUMS, file_sha256
from stapo.core.files import fingerprint, read_jsonl, write_jsonl
from stapo.suite.evaluation.scores import score
from stapo.suite.publication.folder import (
    about_study,
    admit,
    layout,
    read_published_study,
    write_provenance,
)
from stapo.suite.publication.verify import (
    CHECKS,
    LIMITS,
    RAW_CHECKS,
    SUMMARY,
    guarded,
    opened,
    verify,
)
from stapo.suite.records.scores import METADATA_KEY, read_identity
from stapo.suite.study import StudyError, parse_study

FILES, TRAININGS, INPUTS, PROVENANCE = CHECKS
RECORDS, ORIGIN, SCORES, DRAWN = RAW_CHECKS
ALL = {**CHECKS, **RAW_CHECKS}
DECODING = "t1.0-p1.0"
CELL = f"tiny/justrl/seed0/{DECODING}/chain-2"
ANSWERS, SCORE = f"completions/{CELL}.jsonl", f"scores/{CELL}.parquet"
GRPO, JUSTRL, STAPO = (f"runs/tiny/{name}/seed0" for name in ("grpo", "justrl", "stapo"))
RUN, ABOUT, MODEL = f"{STAPO}/provenance.json", "provenance.json", "model/model.safetensors"

Change = Callable[[Path], Any]


@pytest.fixture
def published(finished, tmp_path: Path) -> Path:
    """A copy of the results under another name, as somebody downloads it."""
    shutil.copytree(finished.path / "results" / "smoke", tmp_path / "downloaded")
    return tmp_path / "downloaded"


def findings(folder: Path) -> tuple[bool, str]:
    """Return the verdict, and all that was said."""
    said: list[str] = []
    found = verify(folder, said.append)
    return not found["failed"], "\n".join(said)


def first_error(folder: Path, question: str) -> str | None:
    """Return the first line that one question finds wrong, None where nothing is."""
    with opened(folder) as (results, refused):
        return next(iter(refused or guarded(ALL[question], results)), None)


def summed(folder: Path) -> None:
    """Write `SHA256SUMS` again, as somebody who found a checksum wrong."""
    study = read_published_study(folder)
    belongs = layout(study)
    old = dict(reversed(line.split("  ")) for line in (folder / SUMS).read_text().splitlines())
    new = old | {path: file_sha256(at) for path, at in admit(study, folder, belongs)[0].items()}
    lines = [f"{sha}  {path}\n" for path, sha in sorted(new.items()) if belongs.has(path)]
    (folder / SUMS).write_text("".join(lines))


def recorded(folder: Path) -> None:
    """Let the trainings and the study name the files as they are now."""
    for path in folder.glob("runs/*/*/*/provenance.json"):
        record = json.loads(path.read_text())
        for key, place in (("outputs", path.parent), ("base", folder / "models/tiny/base")):
            record[key] = {name: file_sha256(place / name) for name in record[key]}
        path.write_text(json.dumps(record))
    with opened(folder) as (results, _):
        found = about_study(results.study, results.root)
    edited(ABOUT, lambda about: about.update({**found, "study": about["study"]}))(folder)


def edited(name: str, change: Callable[[Any], Any]) -> Change:
    """Change the content of a JSON file, the records of JSON lines or the rows of a Parquet file."""

    def apply(folder: Path) -> None:
        path = folder / name
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            change(rows := table.to_pylist())
            pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
        elif path.suffix == ".jsonl":
            change(records := read_jsonl(path))
            for record in records:  # Of responses.
                if record.pop("checksum", None):
                    record["checksum"] = fingerprint(record)
            write_jsonl(path, records)
        else:
            change(content := json.loads(path.read_text()))
            path.write_text(json.dumps(content))

    return apply


def then(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


first_run = partial(edited, RUN)


def study_changed(change: Callable[[dict[str, Any]], Any]) -> Change:
    return edited(ABOUT, lambda about: change(about["study"]))


def in_attempts(change: Callable[[dict[str, Any]], Any]) -> Change:
    return first_run(lambda run: change(run["attempts"][-1]["study"]))


def copied(of: str, to: str) -> Change:
    return lambda folder: shutil.copy(folder / of, folder / to)


def text_changed(name: str, old: str, new: str) -> Change:
    def apply(folder: Path) -> None:
        text = (folder / name).read_bytes()
        assert old.encode() in text
        (folder / name).write_bytes(text.replace(old.encode(), new.encode(), 1))

    return apply


def graded(folder: Path) -> None:
    """Grade the responses of a cell again, if the pipeline would."""
    with suppress(OSError, ValueError, LookupError, TypeError, RuntimeError):
        score(folder / ANSWERS, read_identity(folder / SCORE), folder / SCORE)


def cell_changed(change: Callable[[list[Any]], Any]) -> Change:
    return then(edited(ANSWERS, change), graded)


def said_of_score(**fields: Any) -> Change:
    def apply(folder: Path) -> None:
        identity = {**read_identity(folder / SCORE), **fields}
        metadata = {METADATA_KEY: json.dumps(identity)}
        table = pq.read_table(folder / SCORE).replace_schema_metadata(metadata)
        pq.write_table(table, folder / SCORE)

    return apply


ACCIDENTS: dict[str, tuple[Change, str]] = {
    "a file that nothing names": (lambda f: (f / "tables/other.md").write_text("99.9"), FILES),
    "a lost table": (lambda f: (f / "tables/values.csv").unlink(), FILES),
    "a pickle beside weights": (lambda f: (f / STAPO / "model/a.bin").write_bytes(b"\x80"), FILES),
    "weights of another method": (copied(f"{GRPO}/{MODEL}", f"{STAPO}/{MODEL}"), TRAININGS),
    "prompts of another run": (text_changed("data/prompts.jsonl", "?", "!"), TRAININGS),
    "a training of other settings": (first_run(lambda run: run["config"].update(seed=7)), TRAININGS),
    "more steps in the study": (study_changed(lambda study: study["training"].update(steps=16)), TRAININGS),
    "more samples that were asked": (
        in_attempts(lambda s: s["benchmarks"]["chain-2"].update(samples=8)), TRAININGS),
    "other prompts in the study": (study_changed(lambda study: study["data"].update(prompts=64)), INPUTS),
    "a base model of more steps": (
        edited("models/tiny/base.json", lambda model: model.update(supervised_steps=600)), INPUTS),
    "a base model of a hub": (
        edited(ABOUT, lambda a: a["models"].update(tiny={"hub": "a/b", "revision": "main"})), INPUTS),
    "another overlap": (
        edited("data/overlap.json", lambda found: found["shared"].update({"chain-2": 3})), INPUTS),
    "other GPU hours": (edited(ABOUT, lambda about: about.update(training_gpu_hours=9.0)), PROVENANCE),
    "a GPU on which nothing ran": (
        edited(ABOUT, lambda about: about["environment"].update(gpus=["NVIDIA H100"])), PROVENANCE),
    "a lost step": (then(edited(f"{STAPO}/metrics.jsonl", lambda own: own.pop(3)), recorded), RECORDS),
    "seconds of a lost attempt": (first_run(lambda run: run.update(seconds=0.1)), RECORDS),
    **{f"scores of another {name}": (said_of_score(**{name: value}), ORIGIN) for name, value in (
        ("checkpoint", "tiny/stapo/seed0"), ("engine", "transformers 5 on NVIDIA H100"),
        ("provenance", {"processor": "another"}))},
    "other counts beside the reward": (
        said_of_score(differs_from_reward={"accepted": 9, "rewarded": 9}), SCORES),
    "a score edited": (edited(SCORE, lambda rows: rows[0].update(answer="7")), SCORES),
    "a score file cut": (
        lambda folder: os.truncate(folder / SCORE, 1000), ORIGIN),
    "a verdict of no verifier": (edited(SCORE, lambda rows: rows[0].update(verifier="accepted")), SCORES),
    "another gold": (cell_changed(lambda problems: problems[0].update(gold="0")), SCORES),
    "a problem lost": (cell_changed(list.pop), SCORES),
    "tokens beyond the limit": (
        cell_changed(lambda problems: problems[0]["num_tokens"].__setitem__(0, 500)), SCORES),
    "responses of another method": (
        then(copied(f"completions/tiny/grpo/seed0/{DECODING}/chain-2.jsonl", ANSWERS), graded), SCORES),
    "another temperature": (
        study_changed(lambda study: study["decodings"][DECODING].update(temperature=0.9)), SCORES),
    **{f"an edited {name}": (text_changed(name, "STAPO", "STAPO 99.99"), DRAWN) for name in (
        f"tables/main-{DECODING}.md", "tables/stability.csv", "report.html", "figures/reward.svg")},
    "a figure of another study": (copied("figures/reward.png", "figures/entropy.png"), DRAWN),
}  # fmt: skip
"""Accident -> what it does to a folder, and the question that finds it though checksums were renewed."""


@pytest.mark.parametrize("name", ACCIDENTS)
def test_an_accident_is_found_though_the_checksums_were_renewed(published: Path, name: str):
    change, question = ACCIDENTS[name]
    change(published)
    assert first_error(published, FILES)
    summed(published)
    found = first_error(published, question)
    assert found
    assert "/results/smoke/" not in found  # It is read by this path in a temporary directory.


def test_a_finished_study_holds_wherever_it_lies(published):
    right, said = findings(published)
    assert right, said
    assert all(f"ok       {question}" in said for question in ALL)
    assert f"SHA256SUMS itself: {file_sha256(published / SUMS)}" in said
    ran("sha256sum", "--check", "--quiet", SUMS, at=published)

    # As after a change of the catalogue: what determines no result may differ.
    def change(study: dict[str, Any]) -> None:
        study["engine"] = {"models": {"32B": {"vllm_gpu_memory": 0.9}}, "no_such_setting": 1}
        del study["models"]["8B"]

    study_changed(change)(published)
    in_attempts(change)(published)
    said_of_score(study="its former name")(published)
    summed(published)
    # As if this figure came after the study.
    for figure in (published / "figures").glob("reward_entropy.*"):
        figure.unlink()
    lines = (published / SUMS).read_text().splitlines(keepends=True)
    (published / SUMS).write_text("".join(line for line in lines if "reward_entropy" not in line))
    # Weights are large: a copy may lack them, and what can be drawn again. Another form of the study may have
    # left something.
    (published / "report.html").unlink()
    for weights in published.rglob("*.safetensors"):
        weights.unlink()
    shutil.rmtree(published / STAPO / "model")
    for path in (f"runs/tiny/dropped/seed0/model/{SUMS}", "completions/tiny/base/t2/chain-9.jsonl"):
        (published / path).parent.mkdir(parents=True, exist_ok=True)
        (published / path).write_text("\x00")
    right, said = findings(published)
    assert right, said
    assert "note     5 files of weights are not here" in said
    assert "note     1 figures or reports are not here" in said
    assert "2 files are of another form of the study, such as completions/" in said
    assert LIMITS[:80] in said
    (published / "runs/tiny/dropped/seed0/model/pytorch_model.bin").write_text("pickle")
    assert first_error(published, FILES)


def test_a_summary_says_what_cannot_be_checked_without_the_raw_data(published):
    leave_out_raw_data(published)
    for path in ("figures/entropy.pdf", "figures/entropy.png", "report.html"):
        (published / path).unlink()
    right, said = findings(published)
    assert right, said
    assert all(f"ok       {question}" in said for question in CHECKS)
    assert not any(question in said for question in RAW_CHECKS)
    assert SUMMARY[:80] in said
    for change, question in (
        (first_run(lambda run: run.update(fingerprint="0")), TRAININGS),
        (edited("models/tiny/base.json", lambda model: model.update(layers=9)), INPUTS),
        (edited(ABOUT, lambda about: about.update(training_seconds=9.0)), PROVENANCE),
    ):
        change(published)
        summed(published)
        assert first_error(published, question)


def in_place_of(name: str, put: Change) -> Change:
    return lambda folder: [(folder / name).unlink(missing_ok=True), put(folder / name)]


def sparse(path: Path) -> None:
    """Write a file of 1 TB that takes no space."""
    with path.open("wb") as stream:
        stream.truncate(10**12)


HOSTILE: dict[str, tuple[Change, str]] = {
    "FIFO as provenance": (in_place_of(ABOUT, os.mkfifo), "device, FIFO or socket"),
    "endless provenance": (
        in_place_of(ABOUT, lambda path: path.symlink_to("/dev/zero")), "is a link"),
    "FIFO that nothing names": (in_place_of("tables/more.md", os.mkfifo), "device, FIFO or socket"),
    "weights of a terabyte without content": (
        in_place_of("models/tiny/base/model.safetensors", sparse), "nearly all of them holes"),
    "a record of a terabyte": (in_place_of(RUN, sparse), "bytes, more than"),
    "a checksum listed twice": (
        lambda f: (f / SUMS).write_text((sums := (f / SUMS).read_text()) + sums.partition("\n")[0]),
        "lists a file twice"),
    "deep JSON": (lambda folder: (folder / RUN).write_text('{"a":' * 10**5), "not a JSON mapping"),
    "no text": (lambda folder: (folder / ANSWERS).write_bytes(b"\xff\n" * 100), "Invalid JSON"),
    "a path that leaves the folder": (
        first_run(lambda run: run["outputs"].update({"../../../../../etc/passwd": "0"})), "changed"),
    "a name that writes lines": (
        lambda f: (f / "tables" / "a\nok       all is well\x1b[2J").write_text(""), r"a\nok"),
}  # fmt: skip
"""What a folder holds that is not to be read, and what the line says that names it."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_ends_in_a_line(published: Path, name: str):
    put, line = HOSTILE[name]
    put(published)
    (published / "figures" / "entropy.png").unlink()
    try:
        right, said = findings(published)
    except StudyError as error:
        right, said = False, "\n".join(error.errors)
    assert not right
    assert line in said
    assert "\nok       all" not in said
    assert "\x1b" not in said


def test_what_a_narrower_study_leaves_is_not_listed_and_a_stale_training_is_refused(workspace):
    workspace.study["run"]["methods"] = ["justrl", "stapo"]
    study = parse_study(workspace.study)
    run = workspace.path / "results/smoke" / RUN
    shutil.rmtree(run.parent / "model")  # Raw data without weights are listed with them.
    _, sums = write_provenance(study, workspace.path)
    assert "grpo" not in sums.read_text()
    assert f"  {STAPO}/{MODEL}\n" in sums.read_text()
    run.write_text(run.read_text().replace(json.loads(run.read_text())["fingerprint"], "0" * 16))
    with pytest.raises(RuntimeError, match="tiny stapo seed 0: trained with other settings"):
        write_provenance(study, workspace.path)
