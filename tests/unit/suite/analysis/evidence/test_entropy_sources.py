"""Why the entropy moves: sums over all tokens, where all were recorded."""

import numpy as np
import pytest

from stapo.suite.analysis.evidence.recorded import recorded
from stapo.suite.analysis.figures import entropy_sources as figure
from stapo.suite.analysis.tables.entropy_sources import make, sources


def test_changes_are_sums_of_the_lemma_over_the_tokens_of_each_source(complete):
    artefacts, by_method = complete
    for one in recorded(artefacts):
        frame = by_method[one.method]
        p, advantage = frame["probability"].astype(float), frame["advantage"].astype(float)
        change = -p * (np.log(p) + frame["entropy"]) * frame["ratio"].fillna(0) * advantage
        ratio = frame["ratio"].fillna(1)
        clipped = ((advantage > 0) & (ratio > 1.28)) | ((advantage < 0) & (ratio < 0.8))
        assert clipped.any()
        has_gradient = frame["kept"] & ~clipped
        rows = {row.name: row for row in sources(one, artefacts.study)}
        positive = has_gradient & (advantage > 0)
        found = rows["A > 0, rare"].change.value + rows["A > 0, other"].change.value
        assert found == pytest.approx(change[positive].sum() / len(frame), rel=1e-5)
        removed = rows["not kept"]
        assert removed.change.value == pytest.approx(
            change[~frame["kept"]].sum() / len(frame), rel=1e-5, abs=1e-12
        )
        assert (removed.share.value > 0) == (one.method == "stapo")
    table = make(artefacts)
    assert len(table.rows) == 2 * 8
    assert len(figure.make(artefacts).to_dict()["concat"]) == 1
