r"""STAPO in veRL: a registered policy loss, and a trainer that selects before the update.

Written for verl-project/verl at 1dda039b9c63 (0.10.0.dev, August 2026), the trainer `trainer.use_v1=True`.
The functions of tensors are tested in this repository; the trainer at the end has not been run with veRL.

veRL hands a policy loss no entropies, and only a micro-batch. So the selection is made where the whole
rollout is at hand, after its advantages, and written into the masks that veRL sums over and counts: threshold
and divisor are those of the mini-batch, over all ranks. The loss is registered because veRL's "vanilla" has a
dual clip of 3 for A < 0, which the paper does not mention. Start with this file in PYTHONPATH:

    VERL_USE_EXTERNAL_MODULES=verl_policy_loss python -m verl.trainer.main_ppo \
        trainer.v1.trainer_mode=stapo_sync algorithm.adv_estimator=grpo \
        actor_rollout_ref.actor.policy_loss.loss_mode=stapo \
        actor_rollout_ref.actor.loss_agg_mode=token-mean actor_rollout_ref.actor.shuffle=False \
        actor_rollout_ref.actor.clip_ratio_low=0.2 actor_rollout_ref.actor.clip_ratio_high=0.28 ...
"""

from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.ppo.core_algos import register_policy_loss
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.workers.utils.padding import response_to_nested

from stapo.core.objective import at_resolution, clipped_surrogate, silence_spurious


def kept_tokens(
    old_log_probs: Tensor,
    entropies: Tensor,
    advantages: Tensor,
    mask: Tensor,
    num_ranks: int,
    rows_per_rank: int,
    **selection: Any,
) -> Tensor:
    """Return (n, T) bool, the tokens that S2T keeps in each mini-batch of a rollout.

    Args:
        old_log_probs: (n, T) of the policy that produced the responses.
        entropies: (n, T) of that policy.
        advantages: (n, T), the response's advantage at each of its tokens.
        mask: (n, T) bool, true on response tokens.
        num_ranks: data-parallel ranks; each has consecutive rows.
        rows_per_rank: consecutive rows of a rank that are its part of a mini-batch.
        **selection: `tau_p`, `quantile`, `scope`; the paper's by default.
    """
    keep = mask.clone()
    parts = torch.arange(len(mask)).view(num_ranks, -1, rows_per_rank)
    for rows in parts.transpose(0, 1).flatten(1):
        keep[rows] = silence_spurious(
            old_log_probs[rows], at_resolution(entropies[rows]), advantages[rows, 0], mask[rows],
            **selection,
        )  # fmt: skip
    return keep


@register_policy_loss("stapo")
def policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Any]]:
    """Return a micro-batch's part of the clipped surrogate, divided by the tokens of all masks, and metrics.

    Args:
        old_log_prob: (R, T) of the policy that produced the responses.
        log_prob: (R, T) of the current policy, with gradient.
        advantages: (R, T), the response's advantage at each of its tokens.
        response_mask: (R, T), true on the tokens that are kept.
        loss_agg_mode: token-mean.
        config: veRL's ActorConfig; its `global_batch_info` has the number of kept tokens of the mini-batch.
        rollout_is_weights: (R, T) factors of veRL's rollout correction, if it is on.
    """
    if loss_agg_mode != "token-mean":
        raise ValueError(f"loss_agg_mode: expected token-mean, found {loss_agg_mode}")
    values = clipped_surrogate(
        log_prob, old_log_prob, advantages[:, 0], config.clip_ratio_low, config.clip_ratio_high
    )
    if rollout_is_weights is not None:
        values = values * rollout_is_weights
    info = config.global_batch_info
    total = values.masked_fill(~response_mask.bool(), 0.0).sum()
    return -total / max(info["batch_num_tokens"], 1) * info["dp_size"], {}


@register_trainer("stapo_sync")
class StapoSync(PPOTrainerSync):
    """veRL's synchronous trainer, with masks without the silenced tokens during the update."""

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        place = {"keys": batch.keys, "partition_id": batch.partition_id}
        names = ["old_log_probs", "entropy", "advantages", "response_mask"]
        data = tq.kv_batch_get(**place, select_fields=names)
        padded = data.to_padded_tensor()
        tables = [padded[name] for name in names]
        num_ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1
        settings = self.config.actor_rollout_ref
        rows = settings.actor.ppo_mini_batch_size * settings.rollout.n // num_ranks
        keep = kept_tokens(*tables[:3], tables[3].bool(), num_ranks, rows)
        metrics["actor/silenced_fraction"] = 1 - float(keep.sum() / tables[3].sum())
        mask = response_to_nested(keep.to(tables[3].dtype), data["response_mask"])
        fields = TensorDict({"response_mask": mask, "loss_mask": mask}, batch_size=len(batch))
        return super()._update_actor(tq.kv_batch_put(**place, fields=fields), metrics)
