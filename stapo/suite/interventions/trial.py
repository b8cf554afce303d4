"""One repetition: a rollout and held-out responses of the first weights, and what each update changes.

B sequences, T response positions.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor
from tqdm import tqdm

from stapo.core.objective import kl_k3
from stapo.core.objective.selection import drawn
from stapo.core.trainer import mini_batch, response_seed, sequences_of
from stapo.suite.interventions.arms import candidates_of, silenced_by_arm
from stapo.suite.interventions.gradients import token_gradients
from stapo.suite.interventions.job import InterventionJob, Rows
from stapo.suite.interventions.updates import Gradient, Rollout, Updates, cosine, inner
from stapo.suite.records.arms import NOTHING, SILENCED
from stapo.suite.records.interventions import SCHEMA, TOKENS, ArmRecord, Repetition

ROLLOUT, HELD_OUT, DRAWS, MOMENTS, TOKEN_SAMPLE = range(5)
"""Purposes of random numbers."""
MOST_CHUNKS = 10**6
"""Bound of the parts in which held-out responses are generated."""
MOST_WORDS, ROWS = 8192, 64
"""Largest vocabulary whose whole probabilities are made, and responses of one such pass."""


def random_number(repetition: int, purpose: int, chunk: int = 0) -> int:
    """Return a number that determines the random numbers of one purpose in one repetition."""
    return (repetition * 5 + purpose) * MOST_CHUNKS + chunk


class Trial:
    """The responses of a repetition, to prompts of its own, and updates with them."""

    def __init__(self, job: InterventionJob, updates: Updates, number: int, records: Rows) -> None:
        self.job, self.updates, self.number = job, updates, number
        self.tau_p = float(job.measured["tau_p"])
        chance = Random(f"intervention {job.settings.seed} {number}")
        chosen = chance.sample(records, job.rollout_prompts + job.settings.prompts)
        self.prompts = [
            chosen[start : start + job.rollout_prompts]
            for start in range(0, len(chosen), job.rollout_prompts)
        ]
        updates.restore()
        self.rollout = updates.trainer.respond(self.prompts[0], random_number(number, ROLLOUT))
        self.batch = mini_batch(self.rollout)
        self.held_out = self._held_out()

    def _held_out(self) -> list[Rollout]:
        """Return responses of the current weights to the prompts that no update uses."""
        return [
            self.updates.trainer.respond(prompts, random_number(self.number, HELD_OUT, chunk))
            for chunk, prompts in enumerate(self.prompts[1:])
        ]

    def record(self, shown: "tqdm[Any]") -> tuple[Repetition, pa.Table]:
        """Do all updates; return their record and a sample of the tokens of the rollout."""
        job, batch, rollout, held_out = self.job, self.batch, self.rollout, self.held_out
        chance, size = f"gradients {job.settings.seed} {self.number}", job.settings.gradient_tokens
        trainer = self.updates.trainer
        before: dict[str, Any] = {
            "rollout_reward": _reward([rollout]),
            "entropy_rollout": mean([batch.old_entropies], [rollout]),
            "reward": _reward(held_out),
            "entropy": _entropy(held_out),
            "tail_mass": self._tail_mass(),
            "gradients": token_gradients(trainer, rollout, job.measured, size or 0, chance),
        }
        arms, table = self._arms(shown)
        return Repetition(
            repetition=self.number,
            tokens=int(batch.mask.sum()),
            positive=int((batch.mask & (batch.advantages > 0).unsqueeze(1)).sum()),
            candidates=int(candidates_of(batch, self.tau_p).sum()),
            held_out_tokens=sum(int(responses["completion_mask"].sum()) for responses in held_out),
            arms=arms,
            methods=self._methods(shown),
            **before,
        ), table

    def _arms(self, shown: "tqdm[Any]") -> tuple[dict[str, ArmRecord], pa.Table]:
        """Return the update of each arm, and the tokens before and after that without silencing."""
        job, updates, records, table = self.job, self.updates, {}, None
        seed = response_seed(job.settings.seed, random_number(self.number, DRAWS), 0)
        silenced = silenced_by_arm(self.batch, job.method, self.tau_p, seed)
        whole = updates.gradient(self.rollout, self.batch.mask)
        for arm in job.settings.arms:
            updates.restore()
            gradient = updates.gradient_without(self.rollout, silenced[arm], whole)
            updates.step(job.training.learning_rate, gradient)
            records[arm], entropies = self._measured(int(silenced[arm].sum()), gradient, whole)
            if arm == NOTHING:
                table = self._tokens(silenced[SILENCED], entropies)
            shown.update()
        return records, table

    def _methods(self, shown: "tqdm[Any]") -> dict[str, ArmRecord]:
        """Return what the updates of each method changed, compared with those of the first."""
        job, records, first = self.job, {}, Gradient()
        chunk = len(self.prompts) - 2  # Of the latest responses, as a training draws by its step.
        seed = job.settings.seed * 1_000_003 + random_number(self.number, HELD_OUT, chunk)
        for name, method in job.methods.items():
            self.updates.restore()
            touched = self.updates.by_method(self.rollout, method, job.updates, job.training, seed)
            change = self.updates.change()
            first = first or change
            records[name], _ = self._measured(touched, change, first)
            shown.update()
        return records

    def _measured(
        self, silenced: int, change: Gradient, usual: Gradient
    ) -> tuple[ArmRecord, Tensor]:
        """Return what an update has just changed, and the (B, T) entropies at the tokens of the rollout."""
        held_out = self.held_out
        entropies = self._look(self.rollout)[1]
        changed = [self._look(responses) for responses in held_out]
        again = self._held_out()
        # In double precision, since they are tiny.
        kl = [
            kl_k3(before["old_per_token_logps"].double(), logps.double())
            for before, (logps, _) in zip(held_out, changed, strict=True)
        ]
        return ArmRecord(
            silenced=silenced,
            gradient_norm=inner(change, change) ** 0.5,
            cosine=cosine(change, usual),
            entropy=mean([values for _, values in changed], held_out),
            entropy_resampled=_entropy(again),
            entropy_rollout=mean([entropies], [self.rollout]),
            reward=_reward(again),
            kl=mean(kl, held_out),
            tail_mass=self._tail_mass(),
        ), entropies

    def _look(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return (B, T) log-probs and entropies of the current weights at the tokens of some responses."""
        return self.updates.trainer.scored(self.updates.model, sequences_of(rollout))

    def _tail_mass(self) -> float | None:
        """Return the probability mass below tau_p, the mean over the tokens of the held-out responses."""
        model, temperature = self.updates.model, self.updates.trainer.args.temperature
        if model.config.vocab_size > MOST_WORDS:  # Whole rows of probabilities would not fit.
            return None
        return mean(
            [tails(model, temperature, r, self.tau_p) for r in self.held_out], self.held_out
        )

    def _tokens(self, silenced: Tensor, after: Tensor) -> pa.Table:
        """Return a sample of tokens with A != 0; `after` are entropies after the update without silencing."""
        batch, number = self.batch, self.number
        advantages = batch.advantages.unsqueeze(1).expand_as(batch.mask)
        seed = response_seed(self.job.settings.seed, random_number(number, TOKEN_SAMPLE), 0)
        sample = drawn(batch.mask & (advantages != 0), TOKENS, torch.Generator().manual_seed(seed))
        response, position = sample.nonzero().unbind(dim=1)
        columns = {
            "repetition": torch.full_like(response, number),
            "response": response,
            "position": position,
            "token_id": self.rollout["completion_ids"][sample],
            "logp": batch.old_logps[sample],
            "advantage": advantages[sample],
            "candidate": candidates_of(batch, self.tau_p)[sample],
            "silenced": silenced[sample],
            "entropy": batch.old_entropies[sample],
            "entropy_after": after[sample],
        }
        arrays = [pa.array(columns[f.name].cpu().numpy(), f.type) for f in SCHEMA]
        return pa.table(arrays, schema=SCHEMA)


def tails(model: Any, temperature: float, rollout: Rollout, tau_p: float) -> Tensor:
    """Return (B, T) the probability of all words below `tau_p` at the tokens of some responses."""
    sequences, masses = sequences_of(rollout), []
    with torch.no_grad():
        parts = (torch.split(table, ROWS) for table in (sequences.ids, sequences.mask))
        for ids, mask in zip(*parts, strict=True):
            # `logits_to_keep` counts from the end, and the first token follows the prompt.
            logits = model(
                input_ids=ids, attention_mask=mask, logits_to_keep=sequences.width + 1
            ).logits[:, :-1]
            chances = torch.softmax(logits.float() / temperature, dim=-1)
            masses.append(chances.masked_fill(chances >= tau_p, 0.0).sum(dim=-1))
    return torch.cat(masses)


def mean(values: Sequence[Tensor], rollouts: Sequence[Rollout]) -> float:
    """Return the mean of (B, T) values over the response tokens of some rollouts."""
    masks = [rollout["completion_mask"].bool() for rollout in rollouts]
    total = sum(float(v[m].double().sum()) for v, m in zip(values, masks, strict=True))
    return total / max(sum(int(m.sum()) for m in masks), 1)


def _entropy(rollouts: Sequence[Rollout]) -> float:
    return mean([rollout["old_entropies"] for rollout in rollouts], rollouts)


def _reward(rollouts: Sequence[Rollout]) -> float:
    return float(torch.cat([rollout["rewards"] for rollout in rollouts]).double().mean())
