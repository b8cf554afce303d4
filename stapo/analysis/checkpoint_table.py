"""The table of checkpoints from anywhere: every row is one of them, compared with all others."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np

from stapo.analysis.cells import Scores
from stapo.analysis.comparison import (
    BOOTSTRAP_SEED,
    averages_of,
    best_columns,
    differences,
    main_table,
    resampled,
)
from stapo.analysis.notes import accuracy_notes, compared_note, failure_notes
from stapo.analysis.rows import Comparison, MainTable
from stapo.study import Study


def checkpoint_table(
    study: Study, decoding: str, scores: Scores, shown: Mapping[str, tuple[str, str]]
) -> MainTable:
    """Return the table of one decoding, with the difference of every two rows, adjusted by Holm together.

    Args:
        study: a study whose sizes are the checkpoints, without methods.
        decoding: decoding of the table.
        scores: its scores.
        shown: checkpoint -> its size (empty if unknown) and its title in the table.
    """
    table = main_table(study, decoding, scores)
    named = [
        replace(row, size=shown[row.size][0], method=row.size, title=shown[row.size][1])
        for row in table.rows
    ]
    rows = [
        replace(row, best=best_columns(row.cells, [o.cells for o in named if o.size == row.size]))
        for row in named
    ]
    intervals, draws = resampled(study, scores, averages_of(study.run.benchmarks))
    # Later rows minus earlier ones: a base model comes first.
    pairs = [(later, earlier) for earlier, later in combinations(study.run.sizes, 2)]
    found = differences(
        [((later, "base"), (earlier, "base")) for later, earlier in pairs],
        study.run.benchmarks,
        scores,
        intervals,
        draws,
        np.random.default_rng(BOOTSTRAP_SEED),
    )
    cells = {(r.size, r.title, name): cell for r in rows for name, cell in r.responses.items()}
    return replace(
        table,
        # By size as they come, since tables group neighbours.
        rows=sorted(rows, key=lambda row: [r.size for r in rows].index(row.size)),
        comparisons=[
            Comparison("", later, earlier, *one)
            for (later, earlier), one in zip(pairs, found, strict=True)
        ],
        notes=[*accuracy_notes(study), *[compared_note(1)] * bool(pairs), *failure_notes(cells)],
        checkpoints=True,
    )
