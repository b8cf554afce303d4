"""A forward pass over some sequences of a batch: padded to the longest, or packed behind one another.

Both give the same log-probs and entropies. Padding computes more positions than there are tokens; packing
needs the attention of `stapo.training.attention`.

B sequences of the batch, R sequences of the pass, P prompt and T response positions.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stapo.training.head import log_probs_of

IGNORED = -100
"""Label of positions that are not scored."""


@dataclass(frozen=True)
class Sequences:
    """Prompts, padded on the left, and responses, padded on the right."""

    ids: Tensor
    """(B, P + T) token ids."""
    mask: Tensor
    """(B, P + T) 1 on prompt and response tokens."""
    width: int
    """T."""

    def take(self, rows: Tensor) -> "Sequences":
        """Return some sequences, trimmed to the longest prompt and response of them.

        Args:
            rows: (R,) indices; with R = 0 the shortest sequence is taken, to take part in a pass of the other
                ranks.
        """
        if len(rows) == 0:
            rows = self.mask.sum(dim=1).argmin().unsqueeze(0)
        mask = self.mask[rows]
        longest_prompt = int(mask[:, : -self.width].sum(dim=1).max())
        # At least one position, since a row whose response is completely masked has no token.
        longest_response = max(int(mask[:, -self.width :].sum(dim=1).max()), 1)
        first = self.ids.shape[1] - self.width - longest_prompt
        last = self.ids.shape[1] - self.width + longest_response
        return Sequences(self.ids[rows, first:last], mask[:, first:last], longest_response)


def padded_forward(model: Any, sequences: Sequences) -> tuple[Tensor, Tensor | None]:
    """Return (R, T) log-probs and entropies of responses, arbitrary behind them, computed row by row.

    The model has TRL's fused head; a reference model has no entropies.
    """
    width = sequences.width
    labels = sequences.ids.masked_fill(sequences.mask == 0, IGNORED)
    labels[:, :-width] = IGNORED
    output = log_probs_of(
        model, input_ids=sequences.ids, attention_mask=sequences.mask, labels=labels
    )
    entropy = output.entropy
    return (
        output.log_probs[:, -width:].float(),
        None if entropy is None else entropy[:, -width:].float(),
    )


def packed_forward(model: Any, sequences: Sequences) -> tuple[Tensor, Tensor | None]:
    """Return what `padded_forward` does, 0 behind a response, without a pass over padding.

    The model also has the attention `PACKED`.
    """
    mask = sequences.mask.bool()
    lengths = mask.sum(dim=1)
    borders = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    labels = sequences.ids.masked_fill(~mask, IGNORED)
    labels[:, : -sequences.width] = IGNORED
    # Each position predicts the next one of its row.
    scored = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)[mask]
    positions = (mask.cumsum(dim=1) - 1)[mask]
    longest = int(lengths.max())
    output = log_probs_of(
        model,
        input_ids=sequences.ids[mask].unsqueeze(0),
        position_ids=positions.unsqueeze(0),
        # A mask with four dimensions is handed on as it is; without one, N x N would be made.
        attention_mask=labels.new_ones((1, 1, 1, 1)),
        shift_labels=scored.unsqueeze(0),
        cu_seq_lens_q=borders,
        cu_seq_lens_k=borders,
        max_length_q=longest,
        max_length_k=longest,
    )
    responses = mask[:, -sequences.width :]

    def unpacked(values: Tensor) -> Tensor:
        values = values.squeeze(0)[scored != IGNORED].float()
        # Stays connected to the model where no response has a token.
        return values.new_zeros(responses.shape).masked_scatter(responses, values)

    entropy = output.entropy
    return unpacked(output.log_probs), None if entropy is None else unpacked(entropy)


def first_predicting(
    prompt_lengths: Tensor, response_lengths: Tensor, width: int, length: int, packed: bool
) -> Tensor:
    """Return which hidden state of a pass predicts the first token of each response.

    The next ones predict the next tokens.

    Args:
        prompt_lengths: (R,) tokens of each prompt.
        response_lengths: (R,) tokens of each response.
        width: response positions of the pass.
        length: positions of a row of the hidden states; of all sequences, if packed.
        packed: which of the two forward passes it is.

    Returns:
        (R,) indices into the hidden states of all rows, one behind another.
    """
    if packed:
        return (prompt_lengths + response_lengths).cumsum(0) - response_lengths - 1
    rows = torch.arange(len(prompt_lengths), device=prompt_lengths.device)
    return rows * length + length - width - 1
