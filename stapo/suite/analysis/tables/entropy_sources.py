"""Why the entropy moves: the change that the lemma predicts, by what a token is and what removes it."""

from dataclasses import dataclass

import numpy as np

from stapo.suite.analysis.artefacts import Artefacts
from stapo.suite.analysis.evidence.estimates import Mask, ratio
from stapo.suite.analysis.evidence.recorded import Recorded, Tokens, notes_of, with_pooled
from stapo.suite.analysis.formats import METHOD, MODEL, NAME, Column, Table, estimated
from stapo.suite.evaluation.statistics import Interval
from stapo.suite.exhibits import Exhibit
from stapo.suite.study import Study

EXHIBIT = Exhibit(order=45, title="Why the entropy moves")


@dataclass(frozen=True)
class Source(Tokens):
    """Some tokens of one method and model."""

    acts: bool
    """Whether they have a gradient; otherwise the change is the one that they would have brought."""

    @property
    def change(self) -> Interval:
        """Predicted change of the entropy by these tokens, per token of the mini-batch."""
        advantages = self.recording.numbers("advantage")
        ratios = np.nan_to_num(self.recording.numbers("ratio"))
        by_token = self.recording.predicted_change(ratios * advantages)
        per_token = np.ones(len(by_token))
        return ratio(self.sample, np.where(self.mask, by_token, 0.0), per_token, self.mask)


def sources(recording: Recorded, study: Study) -> list[Source]:
    """Return the sources of one method: what acts, what something removes, and truncated responses."""
    advantage, ratio = recording.numbers("advantage"), recording.numbers("ratio")
    method = study.method(recording.method)
    kept: Mask = recording.frame["kept"].to_numpy(dtype=bool)
    # Not where the recorded gradient is 0: that of a token of probability nearly 1 is, too.
    above, below = ratio > 1 + method.clip_high, ratio < 1 - method.clip_low
    below |= ratio > (method.dual_clip or np.inf)
    clipped = kept & np.select([advantage > 0, advantage < 0], [above, below], default=False)
    # Other surrogates keep the gradient of tokens beyond the clip.
    clipped &= method.surrogate == "clipped"
    acts = kept & ~clipped
    longest = study.training_of(recording.method).max_response_tokens
    truncated: Mask = recording.numbers("length") >= longest
    up, down = advantage > 0, advantage < 0
    masks: dict[str, tuple[Mask, bool]] = {
        "A > 0, rare": (acts & up & recording.rare, True),
        "A > 0, other": (acts & up & ~recording.rare, True),
        "A < 0, rare": (acts & down & recording.rare, True),
        "A < 0, other": (acts & down & ~recording.rare, True),
        "clipped, A > 0": (clipped & up, False),
        "clipped, A < 0": (clipped & down, False),
        "not kept": (~kept, False),
        "in responses of full length": (acts & truncated, True),
    }
    whole = np.ones_like(kept)
    return [Source(recording, name, mask, whole, act) for name, (mask, act) in masks.items()]


def make(artefacts: Artefacts) -> Table:
    """Return the table, a row per method and source."""
    recordings = with_pooled(artefacts)
    return Table(
        columns=[
            MODEL,
            METHOD,
            NAME,
            Column("Has gradient", lambda row: "yes" if row.acts else "no", text=True),
            estimated("Of all tokens [%]", lambda row: row.share, unit=100),
            estimated("Predicted change", lambda row: row.change, "+.2g"),
        ],
        rows=[row for recording in recordings for row in sources(recording, artefacts.study)],
        caption="Change of the entropy that the lemma predicts for an update, by the tokens that bring it, "
        "per token of the mini-batch and up to a positive factor (the learning rate), with 95 % intervals.",
        notes=[
            "By token it is -p (log p + H) ratio A, E A taken as 0: likely tokens with A > 0 lower the "
            "entropy, unlikely ones raise it, and the reverse with A < 0. Rare: probability below tau_p.",
            "Tokens without gradient show what they would have brought: clip and selection remove it. "
            "Tokens in responses of full length, most of them truncated, are part of the first four rows. "
            "Every surrogate counts with ratio A; weights, penalties and a divisor of all tokens, which some "
            "methods have, are not in it.",
            *notes_of(recordings),
        ],
    )
