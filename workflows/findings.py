"""Write the tables of README.md, docs/findings.md and docs/miniature.md that state results of the miniature.

    python workflows/findings.py    # no options; changes these files

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->` and is made from the files that the
pipeline wrote to `results/miniature*/tables`, and from the log of the regimes.
"""

import argparse
import csv
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean

from stapo.files import replace_file
from stapo.provenance import SUMS, file_sha256
from stapo.publication.folder import read_published_study
from stapo.repository import ROOT
from stapo.study import Study

RESULTS = ROOT / "results"
PAGES = (ROOT / "README.md", ROOT / "docs" / "findings.md", ROOT / "docs" / "miniature.md")
STUDY, LARGER, ABLATION = "miniature", "miniature-1m", "miniature-ablation"
SHORT = {
    "holds": "holds here",
    "does not hold": "does not hold here",
    "cannot be decided": "not decidable here",
}
SOURCES = {"read in a primary text": "H", "from secondary copies that agree": "M", "inferred": "L"}
ANSWER = "Does silencing cause stability here?"
BLOCK = re.compile(r"(<!-- begin ([a-z-]+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)

Row = dict[str, str]


def rows(study: str, name: str) -> list[Row]:
    """Return the rows of a table of a study."""
    return _read(RESULTS / study / "tables" / f"{name}.csv")


def _read(path: Path) -> list[Row]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def markdown(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _interval(row: Row, digits: int) -> str:
    value, low, high = (float(row[key]) for key in ("value", "low", "high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def accuracy() -> str:
    """Return Avg of each method under each decoding, and the entropy of its trainings, for each size."""
    head, body = ["Method"], {}
    for name in _there(STUDY, LARGER):
        (size,) = _study(name).run.sizes
        (_, *columns), lines = _accuracy(name)
        head += [f"{size}: {column}" for column in columns]
        for method, *cells in lines:
            body.setdefault(method, [method]).extend(cells)
    return markdown(head, body.values())


def differences() -> str:
    """Return the differences of Avg between the methods that are compared, for each size and decoding."""
    lines, temperatures = [], []
    for name in _there(STUDY, LARGER):
        study = _study(name)
        temperatures = [study.decodings[one].temperature for one in study.run.decodings]
        found: dict[tuple[str, str, str], dict[str, str]] = {}
        for row in rows(name, "values"):
            key = (row["size"], row["method"], row["reference"])
            if row["benchmark"] == "Avg" and row["metric"] == "difference of avg@N":
                found.setdefault(key, {})[row["decoding"]] = _interval(row, 1)
            elif row["benchmark"] == "Avg" and row["metric"] == "detectable difference":
                found[key][row["decoding"]] += f"; {float(row['value']):.0f}"
        for (size, ours, theirs), of in found.items():
            title = f"{study.method(ours).title} minus {study.method(theirs).title}"
            lines.append([size, title, *(of[one] for one in study.run.decodings)])
    return markdown(["Size", "Avg [points]", *(f"T = {one}" for one in temperatures)], lines)


def ablation() -> str:
    """Return Avg of each training of the ablation, their entropy, and the difference from STAPO."""
    if not _there(ABLATION):
        return "Not run yet.\n"
    study = _study(ABLATION)
    (target, *_), _ = study.compared()
    head, body = _accuracy(ABLATION)
    trainings = _trainings(study)
    below = {
        row["reference"]: _interval(row, 1)
        for row in rows(ABLATION, "values")
        if row["benchmark"] == "Avg"
        and row["metric"] == "difference of avg@N"
        and (row["method"], row["decoding"]) == (target, study.run.decodings[0])
    }
    lines = []
    methods = ("base", *study.run.methods)
    for method, (title, *intervals, entropy) in zip(methods, body, strict=True):
        averages = (
            trainings.get((method, decoding), whole)
            for decoding, whole in zip(study.run.decodings, intervals, strict=True)
        )
        lines.append([title, *averages, entropy, below.get(method, "")])
    temperature = study.decodings[study.run.decodings[0]].temperature
    gap = f"{study.method(target).title} minus it, T = {temperature} [points]"
    return markdown([*head, gap], lines)


def _trainings(study: Study) -> dict[tuple[str, str], str]:
    """Return Avg of each training, by method and decoding, in the order of the seeds."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows(study.name, "values"):
        if row["step"] == str(study.training.steps) and row["seed"]:
            seeds = found.setdefault((row["method"], row["decoding"]), {})
            seeds.setdefault(row["seed"], []).append(float(row["value"]))
    return {
        key: ", ".join(f"{fmean(seeds[seed]):.1f}" for seed in sorted(seeds, key=int))
        for key, seeds in found.items()
    }


def _there(*names: str) -> list[str]:
    """Return the studies whose results are there."""
    return [name for name in names if (RESULTS / name).exists()]


def _study(name: str) -> Study:
    """Return a study in the form whose results are there."""
    return read_published_study(RESULTS / name)


def _accuracy(name: str) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the accuracies of a study of one size."""
    study = _study(name)
    found = {
        (row["size"], row["method"], row["decoding"]): _interval(row, 1)
        for row in rows(name, "values")
        if row["benchmark"] == "Avg"
        and not row["reference"]
        and not row["seed"]
        and not row["step"]
    }
    stability = {(row["Size"], row["Method"]): row for row in rows(name, "stability")}
    (size,) = study.run.sizes
    body = []
    for method in ("base", *study.run.methods):
        title = "Base" if method == "base" else study.method(method).title
        averages = (found[size, method, decoding] for decoding in study.run.decodings)
        body.append([title, *averages, _entropy(stability.get((size, title), {}))])
    temperatures = (study.decodings[name].temperature for name in study.run.decodings)
    return ["Method", *(f"T = {one} [%]" for one in temperatures), "entropy [ratio]"], body


def _entropy(row: Row) -> str:
    names = ("Lowest entropy [ratio]", "Highest entropy [ratio]")
    return ", ".join(f"{float(row[name]):.2f}" for name in names) if row else ""


def claims() -> str:
    """Return the verdicts on all claims that were measured, and which were not.

    The ablation speaks where the main study measured nothing.
    """
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for study in _there(STUDY, LARGER, ABLATION):
        for row in rows(study, "verdicts"):
            source = SOURCES[row["Source of the claim"]]
            of = found.setdefault((row["Claim"], f"{row['Revision']} ({source})"), {})
            if row["Measured"] or not of:
                of.pop("", None)
                of.setdefault(row["Size"], row)
    everything = [row for of in found.values() for row in of.values()]
    sizes = list(dict.fromkeys(row["Size"] for row in everything if row["Measured"]))
    usual = {
        size: max(int(row["Training seeds"]) for row in everything if row["Size"] == size)
        for size in sizes
    }
    body = [
        [*key, *_verdicts(of, usual)]
        for key, of in found.items()
        if not of.keys().isdisjoint(sizes)
    ]
    head = ["Claim", "Revision", "Measured"]
    head += [f"{size}, {seeds} seeds: value, 95 % interval" for size, seeds in usual.items()]
    missing = dict.fromkeys(row["Claim"] for row in everything if not row["Measured"])
    return f"{markdown(head, body)}\nNot measured: {' '.join(missing)}\n"


def _verdicts(of: dict[str, Row], usual: dict[str, int]) -> list[str]:
    """Return what was measured, then for each size its values, the verdict, and another number of seeds."""
    parts = {
        size: [part.rpartition(": ") for part in row["Measured"].split("; ")]
        for size, row in of.items()
        if size in usual
    }
    names = {"<br>".join(name for name, _, _ in found) for found in parts.values()}
    cells = []
    for size, seeds in usual.items():
        values = [
            value if len(names) == 1 else f"{name}: {value}"
            for name, _, value in parts.get(size, [])
        ]
        if values:
            other = of[size]["Training seeds"]
            note = "" if int(other) == seeds else f" ({other} seeds)"
            values.append(f"**{SHORT[of[size]['Verdict']]}**{note}")
        cells.append("<br>".join(values))
    return [*(names if len(names) == 1 else [""]), *cells]


def interventions() -> str:
    """Return what one update with S2T changes where it silences something, and the answers of the rule."""
    head = ["Checkpoint", "Silenced tokens", "Entropy [nats]", "Reward", "Gradient norm"]
    names = _there(STUDY, LARGER)
    every = [row for name in names for row in rows(name, "interventions")]
    silencing = [row for row in every if row["Arm"] == "STAPO" and float(row["Silenced tokens"])]
    body = [[row[name] for name in head] for row in silencing]
    head[1:] = [
        f"{head[1]}, mean",
        *(f"Change of the {name[0].lower()}{name[1:]}" for name in head[2:]),
    ]
    without = {row["Checkpoint"]: None for row in every}
    for row in silencing:
        without.pop(row["Checkpoint"], None)
    none = f"S2T silenced no token at: {'; '.join(without)}.\n\n" if without else ""
    return f"{markdown(head, body)}\n{none}" + "".join(f"- {_answer(name)}\n" for name in names)


def _answer(name: str) -> str:
    """Return the sizes of a study with the answer of its rule to the question about the cause."""
    page = (RESULTS / name / "tables" / "interventions.md").read_text()
    answer = next(line for line in page.splitlines() if ANSWER in line)
    sizes = ", ".join(_study(name).run.sizes)
    return f"{sizes}: {answer.removeprefix('- ').split(' At a checkpoint')[0]}"


def regimes() -> str:
    """Return the regimes that were tried, a row for each training."""
    log = _read(RESULTS / STUDY / "regimes.csv")
    body = [
        [
            row["regime"],
            _settings(row["settings"]),
            row["method"],
            row["seed"],
            f"{row['reward_first']} / {row['reward_best']} / {row['reward_last']}",
            f"{row['entropy_first']} / {row['entropy_last']}",
            f"{row['lowest_entropy']} / {row['highest_entropy']}",
        ]
        for row in log
    ]
    head = [
        "Regime", "Settings that differ", "Method", "Seed", "Reward: first / best / last",
        "Entropy: first / last [nats]", "lowest / highest [ratio]",
    ]  # fmt: skip
    return markdown(head, body)


def _settings(text: str) -> str:
    changed = json.loads(text)
    flat = {
        **{key: value for one in changed.get("models", {}).values() for key, value in one.items()},
        **changed.get("training", {}),
    }
    return ", ".join(f"{key} {value}" for key, value in flat.items())


def checksums() -> str:
    """Return the checksum of SHA256SUMS of each study, which `stapo verify` prints too."""
    names = _there(STUDY, LARGER, ABLATION)
    return "".join(
        f"- `results/{name}`: `{file_sha256(RESULTS / name / SUMS)}`\n" for name in names
    )


TABLES: dict[str, Callable[[], str]] = {
    "accuracy": accuracy,
    "differences": differences,
    "ablation": ablation,
    "claims": claims,
    "interventions": interventions,
    "regimes": regimes,
    "checksums": checksums,
}


def written(page: str) -> str:
    """Return a page with its tables made again."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", page)


def main() -> None:
    """Write the tables of the pages again."""
    lines = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=lines).parse_args()
    for page in PAGES:
        if (new := written(old := page.read_text())) != old:
            with replace_file(page) as stream:
                stream.write(new)


if __name__ == "__main__":
    main()
