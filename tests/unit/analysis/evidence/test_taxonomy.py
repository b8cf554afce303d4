"""Classes of tokens with measured columns."""

import numpy as np
import pytest

from stapo.analysis.evidence.recorded import recorded
from stapo.analysis.evidence.taxonomy import taxonomy


def test_the_eight_classes_are_those_of_their_definition(complete):
    artefacts, truth = complete
    for one in recorded(artefacts):
        frame = truth[one.method]
        norm = np.sqrt(frame["gradient_norm_sq"])
        p, h, a = (frame[name] for name in ("probability", "entropy", "advantage"))
        change = -p * (np.log(p) + h) * a
        found = taxonomy(one, ["> 0", "< 0"])
        assert len(found) == 8
        for row in found:
            mask = (a > 0) if row.advantage == "> 0" else (a < 0)
            mask &= (p < 0.002) == (row.probability == "low")
            mask &= (h < frame["entropy_threshold"]) == (row.entropy == "low")
            assert row.share.records == mask.sum()
            assert row.share.value == pytest.approx(mask.sum() / (a != 0).sum())
            if mask.any():
                assert row.norm.value == pytest.approx(norm[mask].mean(), rel=1e-6)
                assert row.entropy_change.value == pytest.approx(change[mask].mean(), rel=1e-4)


def test_what_s2t_does_is_said_of_candidates_only(artefacts):
    rows = taxonomy(recorded(artefacts)[0], ["> 0", "< 0"])
    assert [row.role for row in rows] == ["silenced: spurious", "retained", *["no candidate"] * 6]
