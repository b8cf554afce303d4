"""Records of tokens of a training: a sample of the tokens of every mini-batch, in `tokens.parquet`.

Per step, three kinds of response tokens are sampled separately, without replacement: candidates (A > 0 and
probability below tau_p) that S2T silences, candidates that it retains, and all other tokens. With `weight`,
sums over all tokens of a step, or of a training, can be estimated from the sample.

Kinds are those of S2T with the method's own arguments where its selection has them, otherwise with those of
`stapo`: records of JustRL contain what STAPO would have silenced. `kept` says what the method itself did.

The update computes no pass over a response with advantage 0 (without a KL term) or without kept tokens. The
gradient of its tokens is exactly 0, and their columns of the current policy are null. Every other token has
the gradient that it has if it is kept, so that silenced and retained tokens can be compared.

`probability` and `entropy` are those of the policy that the selection reads, of the behaviour policy for
responses that it does not read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pyarrow as pa

from stapo.suite.records.reading import read_table

VERSION = 1
"""Version of the columns below. A new version also increases the `recipe` of stage `train`."""

Kind = Literal["silenced", "retained", "other"]
KINDS: tuple[Kind, ...] = ("silenced", "retained", "other")

TOKENS_BEFORE, TOKENS_AFTER = 128, 32
"""Number of tokens of the context, at most; the context before may begin in the prompt."""
TOP = 5
"""Number of most likely tokens."""

ROW_BYTES = 512
"""Size of a row in the file, our assumption: 84 to 94 in the smoke study, unmeasured for other models."""
MAX_ROWS = 1024
"""Largest number of tokens that are sampled in a step, so that recording takes no noticeable time."""
CHARACTERS = {"token": 64, "before": 512, "after": 256}
"""Largest number of characters of a text."""

METADATA_KEY = b"stapo"
"""Key of the metadata, as JSON, in the parquet schema: `version`; `vocab_size`, the number of logits; `s2t`,
the arguments with which S2T silences tokens, or would silence them under another method."""

SCHEMA = pa.schema(
    [
        # Which token
        pa.field("step", pa.int32(), nullable=False),  # optimiser step, from 1
        pa.field("prompt", pa.int32(), nullable=False),  # line of data/prompts.jsonl, from 0
        pa.field("response", pa.int32(), nullable=False),  # index in its group, from 0
        pa.field("position", pa.int32(), nullable=False),  # position in the response, from 0
        pa.field("length", pa.int32(), nullable=False),  # tokens of the response
        pa.field("token_id", pa.int32(), nullable=False),  # in the vocabulary of the tokenizer
        pa.field("token", pa.string(), nullable=False),  # text of the token
        pa.field("before", pa.string(), nullable=False),  # text before it
        pa.field("after", pa.string(), nullable=False),  # text after it
        # How it was sampled
        pa.field("kind", pa.string(), nullable=False),  # silenced, retained or other
        pa.field("weight", pa.float64(), nullable=False),  # of the kind / sampled, in this step
        pa.field("kept", pa.bool_(), nullable=False),  # whether it contributes to the method's loss
        # As the selection saw it
        pa.field("probability", pa.float32(), nullable=False),  # of the token; see above
        pa.field("entropy", pa.float32(), nullable=False),  # at the token, nats
        pa.field("entropy_threshold", pa.float32()),  # tau_h of S2T; null without a candidate
        pa.field("advantage", pa.float32(), nullable=False),  # of the response
        pa.field("reward", pa.float32(), nullable=False),  # of the response
        # Of the current policy, in the pass with the gradient
        pa.field("ratio", pa.float32()),  # importance ratio, current / old probability
        pa.field("current_probability", pa.float32()),  # of the token
        pa.field("current_entropy", pa.float32()),  # at the token, nats
        pa.field("collision", pa.float32()),  # sum over the vocabulary of the squared probabilities
        pa.field("top_tokens", pa.list_(pa.string())),  # the five most likely, in order
        pa.field("top_probabilities", pa.list_(pa.float32())),  # of these
        # Gradient of the clipped surrogate (whatever the method has) at the logits, without the divisor
        pa.field("gradient_norm_sq", pa.float32()),  # 0 if clipped or A = 0; null without collision
        pa.field("lower_bound", pa.float32(), nullable=False),  # the paper's, of gradient_norm_sq
        pa.field("upper_bound", pa.float32(), nullable=False),  # the paper's, of gradient_norm_sq
    ]
)

MARKED = SCHEMA.append(pa.field("mark", pa.string(), nullable=False)).append(
    pa.field("touched", pa.bool_(), nullable=False)
)
"""With two columns more, in tiny worlds that know of every token whether it is right: what it is, one of
`stapo.suite.models.marked.MARKS`, and whether selection, weighting or penalty treat it unlike most."""


def rows_per_step(megabytes: int, steps: int) -> int:
    """Return how many tokens are sampled in a step, at most, for a size limit of the file."""
    return min(megabytes * 10**6 // (steps * ROW_BYTES), MAX_ROWS)


def sample_sizes(counts: Mapping[Kind, int], rows: int) -> dict[Kind, int]:
    """Return how many of the tokens of each kind are sampled in a step, `rows_per_step` in all.

    Silenced and retained candidates get up to a quarter each, other tokens the rest; our choice.
    """
    quarter = rows // 4
    silenced, retained = min(counts["silenced"], quarter), min(counts["retained"], quarter)
    other = min(counts["other"], rows - silenced - retained)
    return {"silenced": silenced, "retained": retained, "other": other}


def read_token_file(path: Path) -> pa.Table:
    """Return the token records of a training; it raises as `read_table` does."""
    return read_table(path, SCHEMA, or_else=MARKED)
