"""Notes under a table on its numbers."""

from collections.abc import Mapping

from stapo.analysis.cells import Cell
from stapo.study import Study

FEW_SEEDS = 5


def notes(study: Study, compares: bool) -> list[str]:
    """Return the notes of a table, and on its differences if it has any."""
    seeds = len(study.run.seeds)
    over = "problems" if seeds == 1 else "problems and training seeds"
    lines = [
        f"Mean over samples, then problems; 95 % intervals by bootstrap over {over}.",
        "Avg is the plain mean of the benchmarks.",
    ]
    if compares:
        how = "by sign flips" if seeds == 1 else "from the resamples of the intervals"
        lines[-1] += (
            f" Differences are paired by problem; p-values {how}, adjusted by Holm over all "
            "differences of this table. Questions are summed over the benchmarks. "
            "Detectable: the smallest difference found with a chance of 80 %."
        )
    if study.full_steps():
        lines.append("Checkpoint of each training: the last.")
    lines += _verifier_notes(study)
    if 1 < seeds < FEW_SEEDS:
        lines.append(
            f"{seeds} training seeds: their spread is uncertain, which makes the intervals wide."
        )
    if seeds == 1 and study.run.methods:
        lines.append("1 training seed: no claim about the methods, only about these checkpoints.")
    return lines


def _verifier_notes(study: Study) -> list[str]:
    """Return a note on the verifier, its prompt template, and whether its verdicts count."""
    verifier = study.evaluation.verifier
    if verifier is None:
        return []
    counted = "count" if study.evaluation.verdict == "verifier" else "are not counted here, also"
    own = verifier.template
    words = "own words" if own == "own" else f"{own.name} of {own.github} at {own.revision[:8]}"
    return [
        f"Answers that the rules reject {counted} where {verifier.hub} accepts them; prompt: {words}; of one "
        f"longer than {verifier.max_prompt_tokens} tokens it read the end of the response."
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
