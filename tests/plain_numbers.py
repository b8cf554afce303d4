"""Numbers of a results folder by plain loops, written from the documentation alone and not from the code."""

import csv
import json
import math
import re
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq

Scores = dict[tuple[str, ...], dict[int, float]]
LOWEST, HIGHEST = "Lowest entropy [ratio]", "Highest entropy [ratio]"


def mean(values: list[float]) -> float:
    """Return the arithmetic mean."""
    return math.fsum(values) / len(values) if values else math.nan


def table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file, none if there is no such file."""
    return list(csv.DictReader(path.open(encoding="utf-8", newline=""))) if path.exists() else []


def compare(where: str, printed: str, value: float, digits: int | None = None) -> list[str]:
    """Return a line if a cell is not the value at six decimals or at so many digits."""
    size = math.floor(math.log10(abs(value))) + 1 if digits and abs(value) > 0 else 0
    unit = 10.0 ** (size - digits if digits else -6)
    if printed and abs(float(printed) - value) <= 0.501 * unit:  # False if the value is NaN.
        return []
    return [f"{where}: printed {printed or 'nothing'}, computed {value:.12g}"]


def read_scores(folder: Path) -> Scores:
    """Return right shares by (size, method, seed, step, decoding, benchmark) and problem."""
    text = (folder / "provenance.json").read_text(encoding="utf-8")
    rule = json.loads(text)["study"]["evaluation"]["verdict"] == "rule"
    column = "correct" if rule else "correct_with_verifier"
    scores: Scores = {}
    by_seed: dict[tuple[str, ...], list[dict[int, float]]] = defaultdict(list)
    for path in sorted((folder / "scores").rglob("*.parquet")):
        size, method, *middle, decoding, _ = path.relative_to(folder / "scores").parts
        seed = next((part[4:] for part in middle if part.startswith("seed")), "")
        step = next((part[4:] for part in middle if part.startswith("step")), "")
        samples: dict[int, list[float]] = defaultdict(list)
        for row in pq.read_table(path, columns=["problem", column]).to_pylist():
            samples[row["problem"]].append(float(row[column]))
        shares = {problem: mean(right) for problem, right in samples.items()}
        scores[size, method, seed, step, decoding, path.stem] = shares
        if not step:  # The weights of the tables. An empty seed stands for all seeds.
            by_seed[size, method, "", "", decoding, path.stem].append(shares)
    for key, seeds in by_seed.items():
        scores[key] = {problem: mean([shares[problem] for shares in seeds]) for problem in seeds[0]}
    return scores


def points(scores: Scores, key: tuple[str, ...], other: str = "") -> float:
    """Return avg@N in percent, or how much higher it is than another method's, by problem."""
    averages = []
    for found, shares in scores.items():
        average = key[-1].startswith("Avg") and found[:-1] == key[:-1]
        if found == key or (average and plain(found[-1]) != plain(key[-1][len("Avg without ") :])):
            minus = scores[found[0], other, *found[2:]] if other else dict.fromkeys(shares, 0.0)
            averages.append(100 * mean([share - minus[row] for row, share in shares.items()]))
    return mean(averages)


def check_scores(folder: Path) -> list[str]:
    """Compare accuracies and differences with values.csv."""
    scores, lines, seen = read_scores(folder), [], set()
    rows = table(folder / "tables/values.csv")
    for row in rows:
        other, metric = row.get("reference", ""), row["metric"]
        key = tuple(row[k] for k in ("size", "method", "seed", "step", "decoding", "benchmark"))
        if not key[-1].startswith("Avg") and key not in scores:  # Last weights: no step folder.
            key = (*key[:3], "", *key[4:])
        if re.fullmatch(r"avg@(\d+|N)", metric) or (other and metric == "difference of avg@N"):
            seen.add(key)
            where = " ".join(("values.csv", metric, other, *key))
            lines += compare(where, row["value"], points(scores, key, other))
    wanted = {*scores, *((*key[:-1], "Avg") for key in scores if not key[2] and not key[3])}
    return lines + [f"values.csv lacks {k}" for k in sorted(wanted) if k not in seen]


def ratios(steps: list[dict], warm_up: int) -> dict[str, float]:
    """Return the entropy ratios of a training, by the column of stability.csv."""
    entropy, count = [step["entropy"] for step in steps], len(steps)
    after = entropy[max(1, round(count / 50), warm_up) :]
    start = mean(entropy[: max(1, round(count / 100))])
    level, width = mean(after[: max(1, round(count / 50))]), max(1, count // 20)
    begins = [place - width // 2 for place in range(len(after))]
    moving = [mean(after[max(0, begin) : begin + width]) for begin in begins]
    return {LOWEST: min(moving) / max(start, level), HIGHEST: max(moving) / min(start, level)}


def plain(name: str) -> str:
    """Return letters and digits of a name: those of "STAPO (v2)" and "stapo-v2" are equal."""
    return re.sub("[^a-z0-9]", "", name.lower()).replace("justrlfullmask", "fullmask")


def cell(column: str, runs: list[list[dict]], silenced: list[float], warm_up: int) -> float | None:
    """Return what a cell of a table of evidence must be, None for columns that are not checked."""
    if column in (LOWEST, HIGHEST):
        return math.exp(mean([math.log(ratios(steps, warm_up)[column]) for steps in runs]))
    if "reward" in column.lower() and ", " not in column:
        parts = [steps[len(steps) // 2 if "half" in column.lower() else 0 :] for steps in runs]
        return mean([mean([step["reward"] for step in steps]) for steps in parts])
    return mean(silenced) if column == "Tokens" else None


def check_runs(folder: Path) -> list[str]:
    """Compare entropy, reward and silenced tokens with the tables of evidence and the metrics."""
    lines, tables = [], {path.name: table(path) for path in folder.glob("tables/*.csv")}
    warm = [row for row in tables["hyperparameters.csv"] if "warm-up" in row["Setting"]]
    warm_up = max(int(row["This study"]) for row in warm)
    for run in sorted({path.parents[1] for path in folder.glob("runs/*/*/seed*/metrics.jsonl")}):
        runs, silenced, key = {}, [], (run.parent.name, plain(run.name))
        for path in sorted(run.glob("seed*/metrics.jsonl")):
            lines_read = path.read_text(encoding="utf-8").splitlines()
            runs[path.parent.name[4:]] = [json.loads(line) for line in lines_read]
            tokens = pq.read_table(path.with_name("tokens.parquet"), columns=["kind", "weight"])
            rows = [row for row in tokens.to_pylist() if row["kind"] == "silenced"]
            silenced.append(math.fsum(row["weight"] for row in rows))
        if run.name == "stapo":
            counted = sum(step["num_silenced"] for steps in runs.values() for step in steps)
            lines += compare(f"{run} silenced", str(counted), math.fsum(silenced))
        for name in ("stability.csv", "endpoints.csv", "quadrants.csv"):
            rows = [r for r in tables.get(name, []) if (r["Size"], plain(r["Method"])) == key]
            lines += [] if rows or name not in tables else [f"{name} has no row of {run}"]
            for row in (r for r in rows if "S2T" in r.get("Quadrant", "S2T")):
                chosen = [runs[row["Seed"]]] if row.get("Seed") in runs else list(runs.values())
                for column, printed in row.items():
                    value = cell(column, chosen, silenced, warm_up)
                    if value is not None:
                        lines += compare(f"{name} {run.name} {column}", printed, value, 8)
    return lines


def check(folder: Path) -> list[str]:
    """Return one line for each number of a results folder that its raw files contradict."""
    return check_scores(folder) + check_runs(folder)
