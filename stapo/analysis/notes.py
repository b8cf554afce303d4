"""Sentences under a table: headlines, differences, and notes on the numbers."""

from collections.abc import Mapping

from stapo.analysis.cells import Cell
from stapo.analysis.rows import Comparison, Headline, MainTable
from stapo.study import Study

FEW_SEEDS = 5


def accuracy_notes(study: Study) -> list[str]:
    """Return the notes on the numbers of every table."""
    seeds = len(study.run.seeds)
    return [
        "Mean over samples, then problems; 95 % intervals by bootstrap over problems"
        + (" and training seeds." if seeds > 1 else "."),
        "Avg is the plain mean of the benchmarks.",
    ]


def compared_note(seeds: int) -> str:
    """Return the note on the differences of a table, for its number of training seeds."""
    how = "by sign flips" if seeds == 1 else "from the resamples of the intervals"
    return (
        f"Differences are paired by problem; p-values {how}, adjusted by Holm over all "
        "differences of this table. Questions are summed over the benchmarks. "
        "Detectable: the smallest difference found with a chance of 80 %."
    )


def notes(study: Study) -> list[str]:
    """Return the notes of a table."""
    seeds, (targets, baselines) = len(study.run.seeds), study.compared()
    lines = accuracy_notes(study)
    if targets and baselines:
        lines[-1] += f" {compared_note(seeds)}"
    if study.full_steps():
        lines.append("Checkpoint of each training: the last.")
    lines += _verifier_notes(study)
    if 1 < seeds < FEW_SEEDS:
        lines.append(
            f"{seeds} training seeds: their spread is uncertain, which makes the intervals wide."
        )
    if seeds == 1:
        lines.append("1 training seed: no claim about the methods, only about these checkpoints.")
    return lines


def _verifier_notes(study: Study) -> list[str]:
    """Return a note on the verifier, its prompt template, and whether its verdicts count."""
    verifier = study.evaluation.verifier
    if verifier is None:
        return []
    counts = study.evaluation.verdict == "verifier"
    counted = "count where" if counts else "are not counted here, also where"
    asked = "it was asked in this suite's own words, not in those that its authors publish"
    if (own := verifier.template) != "own":
        asked = f"it was asked with {own.name} of {own.github} at {own.revision[:8]}"
    return [
        f"Answers that the rules reject {counted} {verifier.hub} accepts them; {asked}. "
        f"Of a prompt longer than {verifier.max_prompt_tokens} tokens it read the end of the response."
    ]


def failure_notes(cells: Mapping[tuple[str, str, str], Cell]) -> list[str]:
    """Return a note on the cells with answers on which the grader failed; empty without failures."""
    found = []
    for place, cell in cells.items():
        timeouts, crashes = ((cell.rows["verdict"] == name).sum() for name in ("timeout", "crash"))
        if timeouts or crashes:
            what = f"{timeouts} timeouts, {crashes} crashes of {cell.correct.size}"
            found.append(f"{' '.join(filter(None, place))} {what}")
    text = f"Warning: answers that the grader could not judge count as wrong: {'; '.join(found)}."
    return [text] if found else []


def overlap_notes(overlap: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a note on benchmark problems that overlap with training prompts; empty without trainings."""

    def counted(kind: str) -> str:
        found = [f"{name} {count}" for name, count in overlap[kind].items() if count]
        return ", ".join(found) or "none"

    if not overlap:
        return []
    return [
        f"Problems that are training prompts: {counted('shared')}; "
        f"with 13 words in a row in common with one: {counted('sharing_13_words')}."
    ]


def headline_texts(table: MainTable) -> list[str]:
    """Return the headline of each target as one sentence; none of a table of checkpoints."""
    if table.checkpoints:
        return []
    if not table.headlines:
        return ["No headline: no method of this study is compared with others."]
    return [_headline_text(table, target, found) for target, found in table.headlines.items()]


def _headline_text(table: MainTable, target: str, found: Headline | None) -> str:
    title = table.titles[target]
    if found is None or found.interval is None:
        return f"No headline of {title}: it has no baseline, or a strongest baseline is at 0."
    bounds = found.interval
    sizes = ", ".join(
        f"{size} {gain:+.2f} % over {table.titles[found.baselines[size]]}"
        for size, gain in found.gains.items()
    )
    return (
        f"Relative gain of {title}'s Avg over the strongest baseline's, mean over sizes: "
        f"{bounds.value:+.2f} % [{bounds.low:+.2f}, {bounds.high:+.2f}] ({sizes})."
    )


def comparison_text(table: MainTable, comparison: Comparison) -> str:
    """Return a paired difference as one sentence."""
    d = comparison.difference
    size = f"{comparison.size}: " if comparison.size else ""
    target, baseline = (table.titles[n] for n in (comparison.target, comparison.baseline))
    return (
        f"{size}{target} minus {baseline} {100 * d.value:+.2f} points "
        f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}], p = {comparison.adjusted_p:.4f} (Holm), "
        f"{d.questions:+.1f} questions; detectable {100 * d.detectable:.2f}"
    )
