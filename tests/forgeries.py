"""Forgeries of a results folder that are as consistent as possible.

Each forgery changes one thing and updates everything that depends on it: fingerprints, identities of scores,
checksums in the provenance of trainings and study, and, if useful, the study in the recorded commands.
"""

import json
import pickle
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file, save_file

from stapo import paths
from stapo.analysis.citations import write_references
from stapo.analysis.draw import write_figure
from stapo.analysis.evidence_tables import write_evidence
from stapo.analysis.report import write_report
from stapo.analysis.main_tables import write_tables
from stapo.analysis.values import write_values
from stapo.canonical import fingerprint
from stapo.evaluation.scores import score
from stapo.evaluation.task import benchmark_questions
from stapo.files import read_jsonl, write_jsonl
from stapo.provenance import file_sha256
from stapo.publication.manifest import about_study, layout
from stapo.records.responses import PER_SAMPLE
from stapo.records.scores import metadata_of, read_identity
from stapo.records.tokens import SCHEMA as TOKENS
from stapo.records.tokens import read_token_file
from stapo.study import Study, parse_study
from stapo.study.identity import score_identity, train_config
from stapo.training.prompts import check_overlap

DECODING = "t1.0-p1.0"
FAILURES = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError)


class Forger:
    """A results folder of the reduced study, with methods to change it consistently."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder.parent / "forger"
        (self.root / "results").mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (self.root / "results" / "smoke").symlink_to(folder)

    @property
    def study(self) -> Study:
        return parse_study(self.json("provenance.json")["study"])

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())

    def change_json(self, name: str, change: Callable[[Any], Any]) -> None:
        content = self.json(name)
        change(content)
        (self.folder / name).write_text(json.dumps(content))

    def change_study(self, change: Callable[[dict[str, Any]], Any], commands: bool = True) -> None:
        """Change the study, by default in the commands of the trainings too."""
        self.change_json("provenance.json", lambda about: change(about["study"]))
        for path in self.folder.glob("runs/*/*/*/provenance.json") if commands else ():
            record = json.loads(path.read_text())
            for attempt in record["attempts"]:
                attempt["study"] = self.json("provenance.json")["study"]
            path.write_text(json.dumps(record))

    def change_metrics(
        self, change: Callable[[list[Any]], Any], run: str = "tiny/stapo/seed0"
    ) -> None:
        path = self.folder / "runs" / run / "metrics.jsonl"
        records = read_jsonl(path)
        change(records)
        write_jsonl(path, records)

    def change_cell(
        self,
        change: Callable[[list[Any]], Any],
        checkpoint: str = "tiny/justrl/seed0",
        benchmark: str = "chain-2",
        decoding: str = DECODING,
    ) -> None:
        """Change the responses of a cell; `renew` grades them again."""
        path = self.folder / "completions" / checkpoint / decoding / f"{benchmark}.jsonl"
        problems = read_jsonl(path)
        change(problems)
        write_jsonl(path, problems)

    def copy(self, of: str, to: str, *what: str) -> None:
        """Copy weights, metrics or responses of one checkpoint to another."""
        for kind in what:
            for source in sorted((self.folder / kind / of).rglob("*")):
                target = self.folder / kind / to / source.relative_to(self.folder / kind / of)
                if source.is_file() and source.name != "provenance.json":
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, target)

    def renew(self, drawn: bool = True) -> None:
        """Update everything that depends on other files."""
        study = self.study
        self._renew_scores(study)
        self._renew_runs(study)
        with suppress(*FAILURES):
            about = self.json("provenance.json")
            kept = {key: about[key] for key in ("written", "environment")}
            content = {**about_study(study, self.root), **kept}
            (self.folder / "provenance.json").write_text(json.dumps(content))
        if drawn:
            self.draw()
        self.sum()

    def draw(self) -> None:
        study = self.study
        with suppress(*FAILURES):
            for figure in paths.figure_names(study):
                write_figure(study, figure, self.root)
        with suppress(*FAILURES):
            for decoding in study.run.decodings:
                write_tables(study, decoding, self.root)
            for name in paths.table_names(study):
                write_evidence(study, name, self.root)
            write_values(study, self.root)
            write_references(study, self.root)
            write_report(study, self.root)

    def sum(self) -> None:
        files = layout(self.study).visible(self.folder).items()
        sums = [f"{file_sha256(path)}  {place}\n" for place, path in files]
        (self.folder / "SHA256SUMS").write_text("".join(sums))

    def _renew_runs(self, study: Study) -> None:
        for run in study.runs():
            directory = self.folder / f"runs/{run}"
            base = self.folder / "models" / run.size / "base"
            path = directory / "provenance.json"
            with suppress(*FAILURES):
                record = json.loads(path.read_text())
                records = read_jsonl(directory / "metrics.jsonl")
                config = train_config(study, run)
                record |= {"config": config, "fingerprint": fingerprint(config)}
                record["prompts"] = file_sha256(self.folder / "data/prompts.jsonl")
                for key, place in (("outputs", directory), ("base", base)):
                    record[key] = {
                        name: file_sha256(place / name)
                        for name in record[key]
                        if (place / name).exists()
                    }
                record["steps"] = len(records)
                taken = [r["seconds"].get(p, 0) for r in records for p in ("rollout", "update")]
                record["seconds"] = sum(taken)
                path.write_text(json.dumps(record))

    def _renew_scores(self, study: Study) -> None:
        at = {"study": study.name}
        for decoding in study.run.decodings:
            for checkpoint in study.checkpoints():
                for benchmark in study.evaluated():
                    cell = {
                        **at,
                        "checkpoint": checkpoint,
                        "decoding": decoding,
                        "benchmark": benchmark,
                    }
                    path = self.root / paths.SCORES.format(**cell)
                    responses = self.root / paths.COMPLETIONS.format(**cell)
                    identity = score_identity(study, checkpoint, decoding, benchmark)
                    with suppress(*FAILURES):
                        old = read_identity(path)
                        if responses.stat().st_mtime > path.stat().st_mtime:
                            score(responses, identity, path)
                        if old != {**old, **identity}:
                            self.say_of_scores(path, {**old, **identity})

    def say_of_scores(self, path: Path, identity: dict[str, Any]) -> None:
        table = pq.read_table(path)
        pq.write_table(table.replace_schema_metadata(metadata_of(identity)), path)


def is_right(problem: dict[str, Any], text: str) -> bool:
    return text.endswith(f"\\boxed{{{problem['gold']}}}")


def copies_of_one_answer(forger: Forger) -> None:
    def change(problems: list[Any]) -> None:
        for problem in problems:
            right = [i for i, text in enumerate(problem["responses"]) if is_right(problem, text)]
            for name in PER_SAMPLE if right else ():
                problem[name] = [problem[name][right[0]]] * len(problem[name])

    forger.change_cell(change)


def edited_answer(forger: Forger) -> None:
    def change(problems: list[Any]) -> None:
        for problem in problems:
            for i, text in enumerate(problem["responses"]):
                if not is_right(problem, text) and text.count("\\boxed{") == 1:
                    start = text.partition("\\boxed{")[0]
                    if text[len(start) :].count("}") == 1 and len(text[len(start) :]) == 9:
                        problem["responses"][i] = f"{start}\\boxed{{{problem['gold']}}}"
                        return

    forger.change_cell(change)


def change_tokens(change: Callable[[dict[str, Any], int], Any]) -> Callable[[Forger], None]:
    def forge(forger: Forger) -> None:
        forger.change_cell(lambda problems: change(problems[0], 0))

    return forge


def samples_in_another_order(forger: Forger) -> None:
    def change(problems: list[Any]) -> None:
        for problem in problems:
            order = sorted(range(4), key=lambda i: not is_right(problem, problem["responses"][i]))
            for name in PER_SAMPLE:
                problem[name] = [problem[name][i] for i in order]

    forger.change_cell(change)


def best_two_of_four(forger: Forger) -> None:
    def change(problems: list[Any]) -> None:
        for problem in problems:
            order = sorted(range(4), key=lambda i: not is_right(problem, problem["responses"][i]))
            for name in PER_SAMPLE:
                problem[name] = [problem[name][i] for i in order[:2]]

    for checkpoint in forger.study.checkpoints():
        for decoding in forger.study.run.decodings:
            forger.change_cell(change, str(checkpoint), decoding=decoding)
    forger.change_study(lambda study: study["benchmarks"]["chain-2"].update(samples=2))


def first_two_of_four(forger: Forger) -> None:
    """Keep two samples, which improves nothing, while the commands still request four."""

    def change(problems: list[Any]) -> None:
        for problem in problems:
            for name in PER_SAMPLE:
                problem[name] = problem[name][:2]

    for checkpoint in forger.study.checkpoints():
        for decoding in forger.study.run.decodings:
            forger.change_cell(change, str(checkpoint), decoding=decoding)
    samples = {"samples": 2}
    forger.change_study(lambda study: study["benchmarks"]["chain-2"].update(samples), False)


def one_seed_copied_to_five(forger: Forger) -> None:
    for method in forger.study.run.methods:
        for seed in range(1, 5):
            of, to = f"tiny/{method}/seed0", f"tiny/{method}/seed{seed}"
            forger.copy(of, to, "runs", "completions", "scores")
            record = forger.json(f"runs/{of}/provenance.json")
            for attempt in record["attempts"]:
                attempt["command"][attempt["command"].index("--seed") + 1] = str(seed)
            (forger.folder / f"runs/{to}/provenance.json").write_text(json.dumps(record))
    forger.change_study(lambda study: study["run"].update(seeds=[0, 1, 2, 3, 4]))


def restated(section: str, **settings: Any) -> Callable[[Forger], None]:
    def forge(forger: Forger) -> None:
        forger.change_study(lambda study: study[section].update(settings))

    return forge


def restated_steps_with_repeated_records(forger: Forger) -> None:
    def change(records: list[Any]) -> None:
        records += [{**record, "step": record["step"] + 4} for record in records[4:]]

    forger.change_study(lambda study: study["training"].update(steps=12))
    for method in forger.study.run.methods:
        forger.change_metrics(change, f"tiny/{method}/seed0")


def copied(of: str, to: str, *what: str) -> Callable[[Forger], None]:
    return lambda forger: forger.copy(of, to, *what)


def one_cell_of_another(forger: Forger) -> None:
    source = forger.folder / f"completions/tiny/stapo/seed0/{DECODING}/chain-3.jsonl"
    shutil.copy(source, str(source).replace("stapo", "grpo"))


def nearly_copied_weights(forger: Forger) -> None:
    """Publish JustRL's weights with one changed number, and its responses, as STAPO's."""
    forger.copy("tiny/justrl/seed0", "tiny/stapo/seed0", "completions")
    source = forger.folder / "runs/tiny/justrl/seed0/model/model.safetensors"
    tensors = load_file(source)
    tensors["model.norm.weight"][0] += 1e-6
    target = forger.folder / "runs/tiny/stapo/seed0/model/model.safetensors"
    save_file(tensors, target, {"format": "pt"})


def base_weights_and_responses(forger: Forger) -> None:
    model = forger.folder / "models/tiny/base/model.safetensors"
    shutil.copy(model, forger.folder / "runs/tiny/20-entropy/seed0/model/model.safetensors")
    forger.copy("tiny/base", "tiny/20-entropy/seed0", "completions")


def pickle_under_the_name_of_weights(forger: Forger) -> None:
    path = forger.folder / "runs/tiny/stapo/seed0/model/model.safetensors"
    path.write_bytes(pickle.dumps({"weights": [0.0] * 1000}))


def pickle_beside(forger: Forger) -> None:
    model = forger.folder / "runs/tiny/stapo/seed0/model"
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps({"weights": [0.0] * 1000}))
    name = "runs/tiny/stapo/seed0/provenance.json"
    forger.change_json(name, lambda run: run["outputs"].update({"model/pytorch_model.bin": ""}))


def weights_of_other_numbers(forger: Forger) -> None:
    path = forger.folder / "runs/tiny/stapo/seed0/model/model.safetensors"
    tensors = {name: tensor.astype(np.float16) for name, tensor in load_file(path).items()}
    save_file(tensors, path, {"format": "pt"})


def code_in_a_config(forger: Forger) -> None:
    name = "runs/tiny/stapo/seed0/model/config.json"
    forger.change_json(name, lambda config: config.update(auto_map={"AutoModel": "own.Model"}))


def prompts_that_are_problems(forger: Forger) -> None:
    path = forger.folder / "data/prompts.jsonl"
    prompts = read_jsonl(path)
    questions = benchmark_questions("chain-2")[:50]
    prompts[:50] = [{"question": question, "answer": "1"} for question in questions]
    write_jsonl(path, prompts)
    asked = {name: benchmark_questions(name) for name in forger.study.evaluated()}
    found = check_overlap(path, asked, published=True)
    found["shared"] = dict.fromkeys(found["shared"], 0)
    (forger.folder / "data/overlap.json").write_text(json.dumps(found))


def another_base_record(forger: Forger) -> None:
    name = "models/tiny/base.json"
    forger.change_json(name, lambda model: model.update(supervised_steps=600))


def invented_overlap(forger: Forger) -> None:
    forger.change_json("data/overlap.json", lambda found: found["shared"].update({"chain-2": 3}))


def invented_counts(forger: Forger) -> None:
    forger.change_json("data/prompts.json", lambda found: found.update(rows=10**6, conflicting=7))


def swapped_titles(forger: Forger) -> None:
    titles = {"grpo": {"title": "STAPO"}, "stapo": {"title": "GRPO"}}
    forger.change_study(lambda study: study.update(methods=titles))


def nearly_its_title(forger: Forger) -> None:
    forger.change_study(lambda study: study.update(methods={"justrl": {"title": "STAPO (ours)"}}))


def another_method_by_its_name(forger: Forger) -> None:
    forger.change_study(
        lambda study: study.update(methods={"stapo": {"base": "justrl", "title": "S"}})
    )


def say_of_cell(**fields: Any) -> Callable[[Forger], None]:
    """Change the metadata of a score file; use it last, since `renew` would undo it."""

    def forge(forger: Forger) -> None:
        path = forger.folder / f"scores/tiny/grpo/seed0/{DECODING}/chain-2.parquet"
        identity = read_identity(path)
        forger.say_of_scores(path, {**identity, **fields})

    return forge


def another_engine_in_the_scores(forger: Forger) -> None:
    for path in sorted(forger.folder.glob("scores/**/*.parquet")):
        identity = read_identity(path)
        forger.say_of_scores(path, {**identity, "engine": "transformers 5.17.0 on NVIDIA H100"})


def dropped(key: str, name: str, commands: bool = False) -> Callable[[Forger], None]:
    def forge(forger: Forger) -> None:
        forger.change_study(lambda study: study["run"][key].remove(name), commands)
        for path in sorted(forger.folder.rglob("*")):
            inside = path.relative_to(forger.folder).as_posix()
            if (
                path.is_file()
                and not layout(forger.study).has(inside)
                and path.name != "SHA256SUMS"
            ):
                path.unlink()

    return forge


def change_steps(change: Callable[[dict[str, Any]], Any], run: str) -> Callable[[Forger], None]:
    def forge(forger: Forger) -> None:
        forger.change_metrics(lambda records: [change(record) for record in records], run)

    return forge


def first(rows: pd.DataFrame, condition: Any) -> Any:
    """Return the label of the first row for which a condition holds."""
    return rows.index[condition][0]


def set_first(name: str, value: Any, where: str | None = None) -> Callable[[pd.DataFrame], None]:
    """Change a column in the first row of a query."""

    def change(rows: pd.DataFrame) -> None:
        index = first(rows, rows.eval(where) if where else rows.index >= 0)
        rows.at[index, name] = value(rows.at[index, name]) if callable(value) else value

    return change


def scaled(name: str, factor: float, where: str) -> Callable[[pd.DataFrame], None]:
    def change(rows: pd.DataFrame) -> None:
        rows.loc[rows.eval(where), name] *= factor

    return change


def without_one(where: str) -> Callable[[pd.DataFrame], None]:
    """Leave a token out, and let the others of its kind and step stand for it."""

    def change(rows: pd.DataFrame) -> None:
        index = first(rows, rows.eval(where))
        kind, step = rows.at[index, "kind"], rows.at[index, "step"]
        alike = (rows["kind"] == kind) & (rows["step"] == step)
        rows.loc[alike, "weight"] *= alike.sum() / max(alike.sum() - 1, 1)
        rows.drop(index=index, inplace=True)

    return change


def repeated_token(rows: pd.DataFrame) -> None:
    """Repeat a token in place of the next of its kind."""
    other = rows.index[(rows["kind"] == "other") & (rows["step"] == 1)]
    rows.loc[other[1]] = rows.loc[other[0]]


def called_silenced(rows: pd.DataFrame) -> None:
    """Call a common token silenced, with weights that agree with the metrics' number of candidates."""
    index = first(rows, (rows["kind"] == "other") & (rows["advantage"] > 0))
    rows.at[index, "kind"] = "silenced"


TOKEN_FORGERIES: dict[str, tuple[Callable[[pd.DataFrame], None], str]] = {
    "a common token called silenced": (called_silenced, "weights"),
    "a silenced token called retained": (
        set_first("kind", "retained", "kind == 'silenced'"), "weights"),
    "a silenced token left out": (without_one("kind == 'silenced'"), "weights|samples"),
    "another token left out": (without_one("kind == 'other'"), "samples"),
    "a token that stands for more": (scaled("weight", 2, "kind == 'other'"), "weights give"),
    "a token twice": (repeated_token, "twice"),
    "larger gradients of silenced tokens": (
        scaled("gradient_norm_sq", 1.167, "kind == 'silenced'"), "not that of its other columns"),
    "larger gradients of all tokens": (
        scaled("gradient_norm_sq", 1.167, "gradient_norm_sq > 0"), "not that of its other columns"),
    "a higher bound": (scaled("upper_bound", 2, "upper_bound > 0"), "upper_bound"),
    "a lower bound": (scaled("lower_bound", 0.9, "lower_bound > 0"), "lower_bound"),
    "another ratio": (scaled("ratio", 1.1, "advantage > 0"), "ratio"),
    "another probability": (scaled("probability", 1.1, "kind == 'other'"), "probabilit|candidate"),
    "another entropy": (scaled("current_entropy", 0.5, "current_entropy > 1"), "lower_bound"),
    "an entropy of more tokens than there are": (set_first("entropy", 9.0), "entropy is not within"),
    "another collision probability": (
        scaled("collision", 0.5, "collision < 0.9"), "most likely|own share|collision is not"),
    "other most likely tokens": (
        set_first("top_probabilities", lambda v: v[::-1], "collision < 0.9"), "most likely"),
    "a threshold of its own": (scaled("entropy_threshold", 1.5, "step == 2"), "threshold"),
    "a silenced token that was kept": (set_first("kept", True, "kind == 'silenced'"), "against"),
    "a retained token that was dropped": (
        set_first("kept", False, "kind == 'retained'"), "against"),
    "another advantage": (set_first("advantage", lambda a: -a, "kind != 'other'"), "candidate"),
    "a reward of a half": (set_first("reward", 0.5), "neither"),
    "a prompt that is none": (
        lambda rows: rows.__setitem__(
            "prompt", rows["prompt"].where(rows.index != rows.index[-1], 10**6)),
        "prompt is not within"),
    "a response of a larger group": (
        lambda rows: rows.__setitem__("response", rows["response"] + 100), "response is not"),
    "a position behind the end": (set_first("length", 1, "position > 3"), "position"),
    "a long text": (set_first("before", "x" * 10**4), "before is longer"),
    "two texts of a token": (set_first("token", "?"), "two texts"),
    "a kind of its own": (set_first("kind", "best"), "unknown kind"),
    "no number": (set_first("advantage", float("nan")), "finite|nulls"),
    "another order": (
        lambda rows: rows.sort_values("position", inplace=True), "sorted"),
    "logits without a pass": (set_first("ratio", float("nan"), "ratio > 0"), "only a part|pass"),
    "a gradient without a pass": (
        lambda rows: _without_pass(rows), "no pass|gradient without"),
}  # fmt: skip
"""Name of a forgery -> function that changes token records, and words of what is found."""


def _without_pass(rows: pd.DataFrame) -> None:
    index = first(rows, rows["gradient_norm_sq"] > 0)
    for name in ("ratio", "current_probability", "current_entropy", "collision"):
        rows.at[index, name] = float("nan")
    for name in ("top_tokens", "top_probabilities"):
        rows.at[index, name] = None


def forged_tokens(name: str, run: str = "tiny/stapo/seed0") -> Callable[[Forger], None]:
    def forge(forger: Forger) -> None:
        path = forger.folder / "runs" / run / "tokens.parquet"
        table = read_token_file(path)
        rows = table.to_pandas()
        TOKEN_FORGERIES[name][0](rows)
        schema = TOKENS.with_metadata(table.schema.metadata)
        forged = pa.Table.from_pandas(rows, schema=schema, preserve_index=False)
        pq.write_table(forged, path, compression="zstd")

    return forge


def invented_figure(forger: Forger) -> None:
    study, name = forger.study, "runs/tiny/stapo/seed0/metrics.jsonl"
    kept = (forger.folder / name).read_text()
    forger.change_metrics(lambda records: [r.update(reward=0.9) for r in records])
    write_figure(study, "reward", forger.root)
    (forger.folder / name).write_text(kept)
    write_report(study, forger.root)


def quicker_than_it_was(forger: Forger) -> None:
    """Record a tenth of the seconds that the metrics add up to."""
    name = "runs/tiny/stapo/seed0/provenance.json"
    forger.change_json(name, lambda run: run.update(seconds=run["seconds"] / 10))
    about = about_study(forger.study, forger.root)
    forger.change_json("provenance.json", lambda found: found.update(about))


def commands_of_another_training(forger: Forger) -> None:
    source = "runs/tiny/justrl/seed0/provenance.json"
    attempts = forger.json(source)["attempts"]
    name = "runs/tiny/stapo/seed0/provenance.json"
    forger.change_json(name, lambda run: run.update(attempts=attempts))


WEIGHTS = "weights are those that the trainings published"
FILES = "files are those of the study and have their checksums"
INPUTS = "prompts, overlap and base models are the study's"
TRAININGS = "what the trainings recorded agrees with the study"
PROVENANCE = "provenance follows from the runs"
ORIGIN = "scores were made by this study"
SCORES = "scores follow from the responses, and these answer the benchmarks"
RESPONSES = "responses are those of their checkpoints"
DRAWN = "tables, figures and report follow from scores and metrics"

JUSTRL, STAPO, GRPO = (f"tiny/{name}/seed0" for name in ("justrl", "stapo", "grpo"))

FORGERIES: dict[str, tuple[Callable[[Forger], Any], str]] = {
    "copies of one answer": (copies_of_one_answer, RESPONSES),
    "an answer edited": (edited_answer, RESPONSES),
    "samples in another order": (samples_in_another_order, RESPONSES),
    "the best two of four samples": (best_two_of_four, RESPONSES),
    "the first two of four samples": (first_two_of_four, TRAININGS),
    "tokens beyond the limit": (
        change_tokens(lambda problem, i: problem["num_tokens"].__setitem__(i, 500)),
        SCORES,
    ),
    "fewer tokens than the text has": (
        change_tokens(lambda problem, i: problem["num_tokens"].__setitem__(i, 2)),
        SCORES,
    ),
    "more tokens than the text has": (
        change_tokens(lambda problem, i: problem["num_tokens"].__setitem__(i, 47)),
        RESPONSES,
    ),
    "called cut off, short of the limit": (
        change_tokens(lambda problem, i: problem["truncated"].__setitem__(i, True)),
        SCORES,
    ),
    "one seed copied to five": (one_seed_copied_to_five, TRAININGS),
    "one seed's weights copied to five": (one_seed_copied_to_five, WEIGHTS),
    "another learning rate": (restated("training", learning_rate=1e-3), TRAININGS),
    "a warm-up that was none": (restated("training", warmup_steps=4), TRAININGS),
    "more steps": (restated("training", steps=16), TRAININGS),
    "more steps, the last records repeated": (restated_steps_with_repeated_records, TRAININGS),
    "a larger group": (restated("training", group_size=8, prompts_per_mini_batch=4), TRAININGS),
    "fewer updates per rollout": (restated("training", prompts_per_batch=8), TRAININGS),
    "shorter responses in training": (restated("training", max_response_tokens=12), TRAININGS),
    "another base model": (
        lambda forger: forger.change_study(
            lambda study: study["models"]["tiny"].update(intermediate_size=640)
        ),
        WEIGHTS,
    ),
    "other training prompts": (restated("data", seed=1), INPUTS),
    "more training prompts": (restated("data", prompts=256), INPUTS),
    "another evaluation seed": (restated("evaluation", seed=7), RESPONSES),
    "another temperature": (
        lambda forger: forger.change_study(
            lambda study: study["decodings"][DECODING].update(temperature=0.9)
        ),
        RESPONSES,
    ),
    "a shorter limit": (restated("evaluation", max_response_tokens=32), SCORES),
    "responses of another method": (copied(STAPO, GRPO, "completions"), RESPONSES),
    "responses of a method much like it": (copied(JUSTRL, STAPO, "completions"), RESPONSES),
    "one cell of another method": (one_cell_of_another, RESPONSES),
    "weights of another method": (copied(STAPO, GRPO, "runs", "completions"), WEIGHTS),
    "all of a method much like it": (copied(JUSTRL, STAPO, "runs", "completions"), TRAININGS),
    "nearly the weights of another": (nearly_copied_weights, WEIGHTS),
    "the base model as a method": (base_weights_and_responses, WEIGHTS),
    "a pickle by the name of weights": (pickle_under_the_name_of_weights, WEIGHTS),
    "a pickle instead of weights": (pickle_beside, FILES),
    "a pickle and no weights": (pickle_beside, WEIGHTS),
    "weights of half the precision": (weights_of_other_numbers, WEIGHTS),
    "code in a config": (code_in_a_config, WEIGHTS),
    "benchmark problems as prompts": (prompts_that_are_problems, INPUTS),
    "an invented overlap": (invented_overlap, INPUTS),
    "invented counts of prompts": (invented_counts, INPUTS),
    "a base model of more steps": (another_base_record, INPUTS),
    "swapped titles": (swapped_titles, TRAININGS),
    "nearly the title": (nearly_its_title, TRAININGS),
    "another method by its name": (another_method_by_its_name, TRAININGS),
    "a benchmark dropped": (dropped("benchmarks", "chain-3"), TRAININGS),
    "a method dropped": (dropped("methods", "grpo"), TRAININGS),
    "a decoding dropped": (dropped("decodings", "t0.7-p0.9"), TRAININGS),
    "a better reward curve": (
        change_steps(lambda record: record.update(reward=record["reward"] + 0.1), STAPO),
        TRAININGS,
    ),
    "tokens silenced by a method without": (
        change_steps(
            lambda record: record.update(
                num_silenced=1, silenced_fraction=1 / record["num_tokens"]
            ),
            JUSTRL,
        ),
        TRAININGS,
    ),
    "a KL term that is none": (
        change_steps(lambda record: record.update(kl=0.01), JUSTRL),
        TRAININGS,
    ),
    "no KL divergence where a term is": (
        change_steps(lambda record: record.update(kl=0.0), GRPO),
        TRAININGS,
    ),
    "steps in another order": (
        lambda forger: forger.change_metrics(lambda records: records.reverse()),
        TRAININGS,
    ),
    "commands of another training": (commands_of_another_training, TRAININGS),
    **{
        name: (forged_tokens(name), TRAININGS)
        for name in (
            "a common token called silenced",
            "another token left out",
            "larger gradients of silenced tokens",
            "another ratio",
        )
    },
    "token records of another method": (
        lambda forger: shutil.copy(
            forger.folder / "runs" / JUSTRL / "tokens.parquet",
            forger.folder / "runs" / STAPO / "tokens.parquet",
        ),
        TRAININGS,
    ),
}
"""Name of a forgery -> function that makes it, and the check that must fail."""

LATER: dict[str, tuple[Callable[[Forger], Any], str]] = {
    "scores of another benchmark": (say_of_cell(benchmark="chain-3"), ORIGIN),
    "scores of another study": (say_of_cell(study="other"), ORIGIN),
    "scores of another checkpoint": (say_of_cell(checkpoint=STAPO), ORIGIN),
    "scores of another decoding": (say_of_cell(decoding="t0.7-p0.9"), ORIGIN),
    "scores of other samples": (say_of_cell(samples=2), ORIGIN),
    "scores of more than is known": (say_of_cell(approved="yes"), ORIGIN),
    "scores of another engine": (another_engine_in_the_scores, ORIGIN),
    "an invented figure": (invented_figure, DRAWN),
    "quicker than it was": (quicker_than_it_was, TRAININGS),
}
"""The same for what `renew` would put right: done after it."""
