"""What a verifier said is taken as stated; that it is counted as it should be is checked."""

from dataclasses import replace

import pytest

from stapo.publication.rescore import counted
from stapo.records.scores import ScoreRow

WRONG = ScoreRow(0, 0, "7", "8", "wrong", False, 3, False, False, "not_asked", False, False)
RIGHT = replace(WRONG, answer="7", verdict="correct", correct=True, correct_with_verifier=True)


@pytest.mark.parametrize(
    ("row", "stated", "judged", "right"),
    [
        (WRONG, {}, False, True),
        (RIGHT, {}, False, True),
        # A verifier that judges is asked about everything that the rules reject, and nothing else.
        (WRONG, {}, True, False),
        (WRONG, {"verifier": "rejected"}, True, True),
        (WRONG, {"verifier": "invalid", "verifier_cut": True}, True, True),
        (WRONG, {"verifier": "accepted", "correct_with_verifier": True}, True, True),
        (WRONG, {"verifier": "accepted", "correct_with_verifier": True}, False, False),
        (RIGHT, {"verifier": "accepted"}, False, False),
        (RIGHT, {"verifier_cut": True}, False, False),
        (RIGHT, {"correct_with_verifier": False}, False, False),
        # Its word decides.
        (WRONG, {"verifier": "accepted"}, True, False),
        (WRONG, {"verifier": "rejected", "correct_with_verifier": True}, True, False),
        (WRONG, {"verifier": "sure", "correct_with_verifier": True}, True, False),
        (WRONG, {"verifier": "sure"}, True, False),
    ],
)
def test_a_verdict_of_the_verifier_counts_as_it_should(row, stated, judged, right):
    found = replace(row, **stated)
    assert (counted(found, row, judged) == found) == right
