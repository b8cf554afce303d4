"""The paper's classes of tokens with measured columns: 4 of v4 and v5 (A > 0), 8 of v1 to v3.

Classes are by probability and entropy (thresholds of `recorded`), in v1 to v3 also by the sign of the
advantage; tokens with A = 0 have no gradient and belong to no class. Shares are in all tokens of the
classes of the table. The mean gradient norm is that of the surrogate at the logits of a token.

The predicted entropy change is the lemma of v4 and v5 (Xi et al.) per token,

    -p (log p - E log p) (A - E A) = -p (log p + H) (A - E A),

up to a positive factor that the lemma leaves open, such as the learning rate. The expectation of log p over
the policy at a position is -H, exactly. E A is taken as 0 (our choice): it is the expectation of the
advantage over the continuations of a position, which was not measured; over the responses to a prompt, it
is 0 by the normalisation within the group. p and H are those of the token selection.

The learning potential of v1 to v3 is not computed: its formula is not known here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stapo.analysis.artefacts import Artefacts
from stapo.analysis.evidence.estimates import Estimate, Mask, mean, share
from stapo.analysis.evidence.recorded import Recorded, notes_of, recorded
from stapo.analysis.interventions import predicted_change
from stapo.analysis.table import METHOD, SIZE, Column, Table, estimated

LEVELS = {True: "low", False: "high"}


@dataclass(frozen=True)
class TokenClass:
    """A class of tokens of one method and size."""

    size: str
    title: str
    probability: str
    advantage: str
    entropy: str
    role: str
    """What S2T does with its tokens."""
    share: Estimate
    norm: Estimate
    entropy_change: Estimate


def taxonomy(one: Recorded, signs: Sequence[str]) -> list[TokenClass]:
    """Return the classes of one method and size.

    Args:
        one: its recorded tokens.
        signs: signs of the advantage: only "> 0" (v4 and v5), or also "< 0" (v1 to v3).
    """
    advantages = one.numbers("advantage")
    of_sign: dict[str, Mask] = {"> 0": advantages > 0, "< 0": advantages < 0}
    whole: Mask = np.logical_or.reduce([of_sign[sign] for sign in signs])
    logps = np.log(np.maximum(one.numbers("probability"), np.finfo(float).tiny))
    change = predicted_change(logps, one.numbers("entropy"), advantages)
    norm, other = np.where(one.measured, one.norm, 0.0), one.is_kind("other")
    classes = []
    for sign in signs:
        for rare in (True, False):
            for sure in (True, False):
                part = of_sign[sign] & (one.rare == rare) & (one.sure == sure)
                role, kind = "no candidate", other
                if sign == "> 0" and rare:
                    role = "silenced: spurious" if sure else "retained"
                    kind = one.silenced if sure else one.retained
                classes.append(
                    TokenClass(
                        size=one.size,
                        title=one.title,
                        probability=LEVELS[rare],
                        advantage=sign,
                        entropy=LEVELS[sure],
                        role=role,
                        share=share(one.sample, part, whole, kind),
                        norm=mean(one.sample, norm, part & one.measured),
                        entropy_change=mean(one.sample, change, part),
                    )
                )
    return classes


UNKNOWN = (
    "The paper's own labels of the classes, in words, are not known here; of them only that tokens of low "
    "probability and low entropy in correct answers are the spurious ones."
)
CAPTION = (
    "Shares, gradient norms and predicted entropy changes are estimated from the recorded tokens, with 95 "
    "% intervals. The entropy change is that of the lemma of v4 and v5, -p (log p + H) A, up to a positive "
    "factor (the expectation of A is taken as 0)."
)
ADVANTAGE: Column[TokenClass] = Column("Advantage", lambda row: row.advantage, text=True)
COLUMNS: list[Column[TokenClass]] = [
    SIZE,
    METHOD,
    Column("Probability", lambda row: row.probability, text=True),
    ADVANTAGE,
    Column("Entropy", lambda row: row.entropy, text=True),
    Column("By S2T", lambda row: row.role, text=True),
    Column("Recorded", lambda row: row.share.records, ",d"),
    estimated("Share [%]", lambda row: row.share, unit=100),
    estimated("Mean gradient norm", lambda row: row.norm),
    estimated("Predicted entropy change", lambda row: row.entropy_change, "+.2g"),
]


def class_table(artefacts: Artefacts, signs: Sequence[str], what: str, *notes: str) -> Table:
    """Return the table of the classes, with a column for the sign of the advantage if there are several."""
    found = recorded(artefacts)
    return Table(
        columns=[one for one in COLUMNS if one is not ADVANTAGE or len(signs) > 1],
        rows=[row for one in found for row in taxonomy(one, signs)],
        caption=f"{what} {CAPTION}",
        notes=[UNKNOWN, *notes, *notes_of(found)],
    )
