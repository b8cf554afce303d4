"""S2T in TRL's own GRPOTrainer (read and run with TRL 1.16.0).

    S2TTrainer(model, reward, GRPOConfig("out", epsilon_high=0.28, loss_type="dapo"), prompts).train()

TRL's loss is computed micro-batch by micro-batch, so a threshold in the loss would be that of a micro-batch.
This trainer therefore selects when the rollout is complete, over the responses of all ranks, and hands the
result to the loss as TRL's mask of tokens that are read but not trained on. Where a rollout is one optimiser
step (steps_per_generation = gradient_accumulation_steps, the default) the update is the paper's. Where it is
several, TRL shuffles the responses among them: threshold and divisor are then those of the rollout, not of
the mini-batch. `stapo.core.trainer.StapoTrainer` is exact in both cases.

Differs from StapoTrainer besides: one more forward pass per rollout, 1e-4 instead of 1e-6 beside the standard
deviation of the rewards, and with vLLM TRL's correction, unless vllm_importance_sampling_correction=False.
"""

from typing import Any

import torch
from trl import GRPOTrainer

from stapo.core.objective import at_resolution, silence_spurious


class S2TTrainer(GRPOTrainer):
    """GRPOTrainer that silences spurious tokens; tools are not supported."""

    selection: dict[str, Any] = {}  # noqa: RUF012
    """`tau_p`, `quantile`, `scope`; the paper's by default."""

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        rollout = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return rollout
        ids = torch.cat([rollout["prompt_ids"], rollout["completion_ids"]], dim=1)
        attention = torch.cat([rollout["prompt_mask"], rollout["completion_mask"]], dim=1)
        own, width = rollout["completion_mask"].shape
        with torch.no_grad():
            logps, entropies, _ = self._get_per_token_logps_and_entropies(
                self.model, ids, attention, width, batch_size=own, compute_entropy=True
            )
        gather, pad = self.accelerator.gather, self.accelerator.pad_across_processes
        tables = [gather(pad(t, dim=1)) for t in (logps, entropies, rollout["completion_mask"])]
        keep = silence_spurious(
            tables[0], at_resolution(tables[1]), gather(rollout["advantages"]), tables[2].bool(),
            **self.selection,
        )  # fmt: skip
        first = own * self.accelerator.process_index
        rollout["tool_mask"] = keep[first : first + own, :width].long()
        share = 1 - keep.sum() / tables[2].sum()
        self._metrics["train"]["silenced_fraction"].append(share.item())
        rollout["num_items_in_batch"] = keep.sum()  # Divisor of the loss "dapo".
        return rollout
