"""S2T in prime-rl: a custom loss, with a threshold of its own for every response.

Written for PrimeIntellect-ai/prime-rl at 559b44772e47 (0.8.0, August 2026). The loss is tested in this
repository; it has not been run with prime-rl.

    [trainer.loss]
    type = "custom"
    import_path = "prime_rl_loss.s2t_loss"
    kwargs = { scope = "all", quantile = 0.8 }

prime-rl calls a custom loss once per response, without entropies. They are computed beside it, and reach it
by four lines: in `src/prime_rl/trainer/rl/loss.py` the field `entropies: Tensor | None = None` of LossInputs,
the argument `entropies` of compute_loss, and `entropies=` in make_inputs, which gets each response's part; in
`train.py` the argument `entropies=out["entropy"].squeeze().split(sequence_lengths)` of compute_loss.

This is not the paper's update. The threshold is that of a response, not of the mini-batch: with scope
"candidates" a response with a single candidate silences nothing, and at the paper's rates (below 0.01 % of
the tokens are silenced) most have none or one, so take scope "all" (its v1 to v3). The divisor counts all
tokens, also the silenced ones. The ratio is that to the inference engine's probabilities. prime-rl's own
advantages are not divided by the standard deviation.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from stapo.objective import at_resolution, clipped_surrogate, silence_spurious

try:
    from prime_rl.trainer.rl.loss import LossOutputs
except ImportError:  # To test it elsewhere.
    LossOutputs = SimpleNamespace


def s2t_loss(inputs: Any, clip_low: float = 0.2, clip_high: float = 0.28, **selection: Any) -> Any:
    """Return the sum of the clipped surrogate over the kept tokens of one response, and metrics.

    Args:
        inputs: prime-rl's LossInputs with `entropies`, (S,) tensors of one sequence.
        clip_low: epsilon_low.
        clip_high: epsilon_high.
        **selection: `tau_p`, `quantile`, `scope`.
    """
    if inputs.entropies is None:
        raise ValueError("entropies: missing; see the four lines at the top of this file")

    def response(values: Tensor) -> Tensor:
        """Return the (1, T) values at the tokens of the response."""
        return values[inputs.loss_mask].unsqueeze(0)

    logps, old_logps = response(inputs.trainer_logprobs), response(inputs.inference_logprobs)
    mask = torch.ones_like(logps, dtype=torch.bool)
    advantages = response(inputs.advantages)[:, :1].sum(dim=1)  # 0 for a response without tokens.
    entropies = at_resolution(response(inputs.entropies))
    keep = silence_spurious(logps.detach(), entropies, advantages, mask, **selection)
    values = clipped_surrogate(logps, old_logps, advantages, clip_low, clip_high)
    if inputs.loss_weights is not None:
        values = values * response(inputs.loss_weights)
    silenced = (mask & ~keep).float().mean().nan_to_num()
    return LossOutputs(loss=-values[keep].sum(), metrics={"silenced_fraction": silenced})
