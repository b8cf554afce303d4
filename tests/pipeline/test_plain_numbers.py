"""Plain loops, written from the documentation alone and not from the code, compute the numbers of a study."""

import csv
import json
import math
import re
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
from world import World

Scores = dict[tuple[str, ...], dict[int, float]]


def mean(values: list[float]) -> float:
    """Return the arithmetic mean."""
    return math.fsum(values) / len(values) if values else math.nan


def table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file, none if there is no such file."""
    return list(csv.DictReader(path.open(encoding="utf-8", newline=""))) if path.exists() else []


def compare(where: str, printed: str, value: float) -> list[str]:
    """Return a line if a cell is not the value at six decimals."""
    if printed and abs(float(printed) - value) <= 0.501e-6:  # False if the value is NaN.
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


def check(folder: Path) -> list[str]:
    """Compare accuracies and differences with values.csv."""
    scores, lines, seen = read_scores(folder), [], set()
    for row in table(folder / "tables/values.csv"):
        other, metric = row["reference"], row["metric"]
        key = tuple(row[k] for k in ("size", "method", "seed", "step", "decoding", "benchmark"))
        if not key[-1].startswith("Avg") and key not in scores:  # Last weights: no step folder.
            key = (*key[:3], "", *key[4:])
        if re.fullmatch(r"avg@(\d+|N)", metric) or (other and metric == "difference of avg@N"):
            seen.add(key)
            where = " ".join((metric, other, *key))
            lines += compare(where, row["value"], points(scores, key, other))
    wanted = {key for key in scores if not key[3]}  # Of the last weights.
    wanted |= {(*key[:-1], "Avg") for key in wanted if not key[2]}
    return lines + [f"values.csv lacks {key}" for key in sorted(wanted - seen)]


def plain(name: str) -> str:
    """Return letters and digits of a name: those of "STAPO (v2)" and "stapo-v2" are equal."""
    return re.sub("[^a-z0-9]", "", name.lower()).replace("justrlfullmask", "fullmask")


def test_plain_loops_compute_the_printed_numbers(finished: World, workspace: World) -> None:
    assert check(finished.path / "results" / finished.study["name"]) == []
    # The check can fail: another verdict of the last digit of an average.
    values = next(workspace.path.glob("results/*/tables/values.csv"))
    rows = list(csv.reader(values.open()))
    place = next(i for i, row in enumerate(rows) if "Avg" in row and any("avg@" in x for x in row))
    column = rows[0].index("value")
    rows[place][column] = f"{float(rows[place][column]) + 0.001:.6f}"
    with values.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    assert check(values.parents[1])
