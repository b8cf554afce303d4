"""Plain loops, written from the documentation alone and not from the code, compute the numbers of a study."""

import csv
import math
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
from world import World

Scores = dict[tuple[str, ...], dict[int, float]]


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def read_scores(folder: Path) -> Scores:
    """Return right shares by (size, method, seed, step, decoding, benchmark) and problem."""
    scores: Scores = {}
    by_seed: dict[tuple[str, ...], list[dict[int, float]]] = defaultdict(list)
    for path in sorted((folder / "scores").rglob("*.parquet")):
        size, method, *middle, decoding, _ = path.relative_to(folder / "scores").parts
        seed = next((part[4:] for part in middle if part.startswith("seed")), "")
        step = next((part[4:] for part in middle if part.startswith("step")), "")
        samples: dict[int, list[float]] = defaultdict(list)
        for row in pq.read_table(path, columns=["problem", "correct"]).to_pylist():
            samples[row["problem"]].append(float(row["correct"]))
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
        if found == key or (key[-1] == "Avg" and found[:-1] == key[:-1]):
            minus = scores[found[0], other, *found[2:]] if other else dict.fromkeys(shares, 0.0)
            averages.append(100 * mean([share - minus[row] for row, share in shares.items()]))
    return mean(averages)


def check(folder: Path) -> list[str]:
    """Return a line for each accuracy and difference of values.csv that is not computed here."""
    scores, lines, seen = read_scores(folder), [], set()
    for row in csv.DictReader((folder / "tables/values.csv").open(encoding="utf-8", newline="")):
        key = tuple(row[k] for k in ("model", "method", "seed", "step", "decoding", "benchmark"))
        if key[-1] != "Avg" and key not in scores:  # Last weights: no step folder.
            key = (*key[:3], "", *key[4:])
        if row["metric"].startswith("avg@") or row["metric"] == "difference of avg@N":
            seen.add(key)
            computed = points(scores, key, row["reference"])
            if not abs(float(row["value"]) - computed) <= 0.501e-6:  # Also if it is NaN.
                lines.append(f"{key}: printed {row['value']}, computed {computed:.12g}")
    wanted = {key for key in scores if not key[3]}  # Of the last weights.
    wanted |= {(*key[:-1], "Avg") for key in wanted if not key[2]}
    return lines + [f"values.csv lacks {key}" for key in sorted(wanted - seen)]


def test_plain_loops_compute_the_printed_numbers(finished: World) -> None:
    assert check(finished.path / "results" / finished.study["name"]) == []
