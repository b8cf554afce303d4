"""The record of a sample of the tokens of each optimiser step, and their published file.

The sample is stratified by what S2T does with the tokens. It follows from the selection, seed and step alone:
it is the same on every rank, for any number of ranks and for any micro-batches.

What the current policy computes at these tokens comes from the passes with gradient that the update does
anyway: log-probs and entropies from the head, and the last hidden states, from which the whole logits of
these few positions are computed once, after the last pass.

B sequences of the mini-batch, T response positions, R sequences of one pass, n sampled tokens, k of them on
this rank, V logits; entropies in nats.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from stapo.core.files import canonical, read_jsonl, replace_file
from stapo.core.forward import Sequences
from stapo.core.head import scaled, whole_logits
from stapo.core.loss import TokenTables
from stapo.core.methods import Args
from stapo.core.minibatch import MiniBatch
from stapo.core.objective import (
    at_resolution,
    clipped_surrogate,
    spurious_candidates,
    spurious_threshold,
)
from stapo.core.objective.diagnostics import gradient_norm_bounds, logit_gradient_norm_sq
from stapo.core.objective.selection import Scope
from stapo.core.ranks import AcceleratorRanks
from stapo.core.shared_prompts import first_predicting
from stapo.core.trainer import RecorderFactory
from stapo.suite.models.worlds import Marks, marks_of
from stapo.suite.records.tokens import (
    CHARACTERS,
    KINDS,
    MARKED,
    METADATA_KEY,
    SCHEMA,
    TOKENS_AFTER,
    TOKENS_BEFORE,
    TOP,
    VERSION,
    Kind,
    rows_per_step,
    sample_sizes,
)
from stapo.suite.training.token_text import text_of

SORTED = ("step", "prompt", "response", "position")
CHUNK = 64
"""Positions whose whole logits exist at once."""


def token_kinds(
    s2t: Args, logps: Tensor, entropies: Tensor, advantages: Tensor, mask: Tensor
) -> tuple[dict[Kind, Tensor], float | None]:
    """Return the tokens of each kind, (B, T) bool, and the threshold of S2T, None without a candidate.

    Log-probs and entropies are those that select tokens.
    """
    rounded = at_resolution(entropies)
    candidates = spurious_candidates(logps, advantages, mask, float(s2t["tau_p"]))
    scope: Scope = "all" if s2t["scope"] == "all" else "candidates"
    threshold = spurious_threshold(rounded, candidates, mask, float(s2t["quantile"]), scope)
    silenced = torch.zeros_like(mask) if threshold is None else candidates & (rounded < threshold)
    kinds: dict[Kind, Tensor] = {
        "silenced": silenced,
        "retained": candidates & ~silenced,
        "other": mask & ~candidates,
    }
    return kinds, None if threshold is None else threshold.item()


def sample_tokens(
    kinds: dict[Kind, Tensor], size: int, seed: int, step: int
) -> tuple[Tensor, Tensor, list[Kind], list[float]]:
    """Return a uniform sample of each kind, without replacement, of `size` tokens at most.

    Returns:
        Sequence and position of each of n tokens, on the CPU, their kinds, and their weights: the number of
        tokens that each stands for, those of its kind in the mini-batch / sampled ones.
    """
    counts = {kind: int(kinds[kind].sum()) for kind in KINDS}
    sizes = sample_sizes(counts, size)
    places = []
    for kind in KINDS:
        # Python's generator, which is the same for all versions of torch and devices.
        random = Random(f"tokens {seed} {step} {kind}")
        chosen = sorted(random.sample(range(counts[kind]), sizes[kind]))
        places.append(kinds[kind].nonzero().cpu()[torch.tensor(chosen, dtype=torch.long)])
    rows, positions = torch.cat(places).unbind(dim=1)
    sampled = [kind for kind in KINDS for _ in range(sizes[kind])]
    return rows, positions, sampled, [counts[kind] / sizes[kind] for kind in sampled]


@dataclass
class TokenRecorder:
    """Samples the tokens of one mini-batch, and collects what the passes with gradient compute at them.

    `forward` of this object takes the place of the forward pass of the update, `selected` is told the
    selection, and `line` returns the record after the last pass.
    """

    trainer: Any
    """A StapoTrainer, whose method, settings, model and step these are."""
    passed: Callable[[Tensor], tuple[Tensor, Tensor | None]]
    """The forward pass of the update."""
    batch: MiniBatch
    sequences: Sequences
    rewards: Tensor
    """(B,) reward of each response."""
    size: int
    """Number of tokens to sample, at most."""
    s2t: Args
    """Arguments of S2T, by which tokens are of a kind."""
    marks: Marks | None
    """Those of a tiny world, in which every token is known to be right or wrong."""
    places: tuple[Tensor, Tensor] = field(init=False)
    """(n,) sequence and position in the response of each sampled token, on the CPU."""
    known: dict[str, Any] = field(default_factory=dict)
    """Columns that follow from the selection and the texts."""
    local: list[int] = field(default_factory=list)
    """k indices into the sample."""
    current: list[Tensor] = field(default_factory=list)
    """Per pass (2, k) log-probs and entropies of the current policy."""
    hidden: list[Tensor] = field(default_factory=list)
    """Per pass (k, hidden size) last hidden states."""

    def __post_init__(self) -> None:
        self.model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        self.vocab_size: int = self.model.get_output_embeddings().weight.shape[0]

    def selected(self, logps: Tensor, entropies: Tensor, tables: TokenTables) -> None:
        """Sample tokens of the mini-batch."""
        batch, step, seed = self.batch, self.trainer.state.global_step + 1, self.trainer.args.seed
        kinds, threshold = token_kinds(self.s2t, logps, entropies, batch.advantages, batch.mask)
        rows, positions, sampled, weights = sample_tokens(kinds, self.size, seed, step)
        places = self.places = rows, positions
        self.known = {
            "step": step,
            "vocab_size": self.vocab_size,
            "s2t": self.s2t,
            "entropy_threshold": threshold,
            "kind": sampled,
            "weight": weights,
            "row": rows.tolist(),
            "position": positions.tolist(),
            "length": batch.mask[rows].sum(dim=1).tolist(),
            "probability": logps[places].double().exp().tolist(),
            "entropy": entropies[places].tolist(),
            "kept": tables.keep[places].tolist(),
            "advantage": batch.advantages[rows].tolist(),
            "reward": self.rewards[rows].tolist(),
            **self._texts(),
        }
        if self.marks is not None:
            self.known["touched"] = tables.touched()[places].tolist()

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the result of the forward pass; with gradient, keep what the record needs of it."""
        if not torch.is_grad_enabled():
            return self.passed(rows)
        states: list[Tensor] = []
        hook = self.model.base_model.register_forward_hook(
            lambda _, __, output: states.append(output.last_hidden_state.detach())
        )
        try:
            logps, entropies = self.passed(rows)
        finally:
            hook.remove()
        if len(rows) and entropies is not None:
            self._take(rows, torch.stack([logps.detach(), entropies.detach()]), states[0])
        return logps, entropies

    def _take(self, rows: Tensor, outputs: Tensor, states: Tensor) -> None:
        """Keep outputs (2, R, W) and states (rows, length, hidden size) of the sampled tokens of a pass."""
        local, index = (self.places[0].unsqueeze(1) == rows.cpu()).nonzero().unbind(dim=1)
        positions, index = self.places[1][local].to(rows.device), index.to(rows.device)
        first = first_predicting(self.sequences.take(rows), self.trainer.layout)
        self.local += local.tolist()
        self.current.append(outputs[:, index, positions])
        self.hidden.append(states.flatten(0, 1)[first[index] + positions])

    def line(self, ranks: AcceleratorRanks) -> dict[str, Any]:
        """Return the record of the step, the same on every rank; all ranks must call this."""
        return {**self.known, **self._policy_columns(self._gather_ranks(ranks))}

    def _texts(self) -> dict[str, list[Any]]:
        """Return the ids of the sampled tokens, of those before and behind them, and marks if there are."""
        rows, positions = (place.tolist() for place in self.places)
        ids, mask = self.sequences.ids, self.sequences.mask.bool()
        prompts, _ = self.batch.lengths()
        texts = {row: (ids[row][mask[row]].tolist(), int(prompts[row])) for row in {*rows}}
        at = [(texts[row][0], texts[row][1] + i) for row, i in zip(rows, positions, strict=True)]
        columns: dict[str, list[Any]] = {
            "token_id": [text[i] for text, i in at],
            "before": [text[max(i - TOKENS_BEFORE, 0) : i] for text, i in at],
            "after": [text[i + 1 : i + 1 + TOKENS_AFTER] for text, i in at],
        }
        if self.marks is not None:
            marks = {row: self.marks(text[:n], text[n:]) for row, (text, n) in texts.items()}
            columns["mark"] = [marks[row][i] for row, i in zip(rows, positions, strict=True)]
        return columns

    @torch.no_grad()
    def _gather_ranks(self, ranks: AcceleratorRanks) -> Tensor:
        """Return what the passes of all ranks computed.

        Returns:
            (n, 5 + 2 TOP): whether there was a pass, log-prob, entropy, collision, log-prob in double
            precision, probabilities and ids of the most likely tokens.
        """
        device = self.batch.mask.device
        tokens = torch.tensor(self.known["token_id"], device=device, dtype=torch.long)
        computed = torch.zeros(len(tokens), 5 + 2 * TOP, dtype=torch.double, device=device)
        if ranks.largest(len(self.local)):
            head = self.model.get_output_embeddings()
            # All ranks gather a sharded head together, also those without a sampled token.
            weight, bias = _whole(head.weight), _whole(head.bias)
            if self.local:
                self._fill(computed, tokens, weight, bias)
        # Each row is computed by one rank and is 0 on the others.
        return ranks.sum(computed) if len(computed) else computed

    def _fill(self, computed: Tensor, tokens: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        """Write the rows of this rank's tokens into `computed`; `tokens` are the ids of all, (n,)."""
        local = torch.tensor(self.local, device=computed.device)
        current, hidden = torch.cat(self.current, dim=1), torch.cat(self.hidden)
        computed[local, 0] = 1.0
        computed[local, 1], computed[local, 2] = current.double()
        for part in torch.split(torch.arange(len(local), device=computed.device), CHUNK):
            log_probs = self._logits(hidden[part], weight, bias).double().log_softmax(dim=1)
            top = log_probs.topk(min(TOP, log_probs.shape[1]), dim=1)
            width = top.values.shape[1]
            computed[local[part], 3] = (2 * log_probs).exp().sum(dim=1)
            computed[local[part], 4] = log_probs.gather(1, tokens[local[part], None]).squeeze(1)
            computed[local[part], 5 : 5 + width] = top.values.exp()
            computed[local[part], 5 + TOP : 5 + TOP + width] = top.indices.double()

    def _logits(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return (k, V) float32 logits as TRL's fused head computes and scales them."""
        config = self.model.config.get_text_config()
        with self.trainer.accelerator.autocast():
            logits = whole_logits(hidden, weight, bias)
        scale = getattr(config, "logit_scale", None) or 1.0
        softcap = getattr(config, "final_logit_softcapping", None)
        return scaled(logits, scale, softcap, self.trainer.args.temperature)

    def _policy_columns(self, computed: Tensor) -> dict[str, list[Any]]:
        """Return the columns of the current policy, and those of the gradient."""
        passed = computed[:, 0] > 0
        logps, entropies, collision, exactly = computed[:, 1:5].unbind(dim=1)
        old = self.batch.old_logps[self.places].double()
        weights = self._weights(logps, old).where(passed, 0.0)
        tables = [column.unsqueeze(1) for column in (weights, logps, entropies, exactly, collision)]
        # Of the same logits as the sum of squares: the difference of the two is tiny where p is nearly 1.
        exact = logit_gradient_norm_sq(tables[0], *tables[3:]).squeeze(1)
        bounds = gradient_norm_bounds(tables[0], tables[1], tables[2], self.vocab_size)

        def where(condition: Tensor, values: Tensor) -> list[Any]:
            pairs = zip(condition.tolist(), values.tolist(), strict=True)
            return [value if there else None for there, value in pairs]

        return {
            "ratio": where(passed, (logps - old).clamp(max=80).exp()),
            "current_probability": where(passed, logps.exp()),
            "current_entropy": where(passed, entropies),
            "collision": where(passed, collision),
            "top_tokens": where(passed, computed[:, 5 + TOP :].long()),
            "top_probabilities": where(passed, computed[:, 5 : 5 + TOP]),
            "gradient_norm_sq": exact.tolist(),
            "lower_bound": bounds[0].squeeze(1).tolist(),
            "upper_bound": bounds[1].squeeze(1).tolist(),
        }

    def _weights(self, logps: Tensor, old: Tensor) -> Tensor:
        """Return (n,) ratio * A, 0 where clipped: the derivative of the surrogate by the log-prob."""
        method, advantages = self.trainer.method, self.batch.advantages[self.places[0]].double()
        with torch.enable_grad():
            logps = logps.detach().requires_grad_()
            values = clipped_surrogate(
                logps.unsqueeze(1), old.unsqueeze(1), advantages,
                method.clip_low, method.clip_high, method.dual_clip,
            ).squeeze(1)  # fmt: skip
            (weights,) = torch.autograd.grad(values.sum(), logps)
        return weights


def recorder(megabytes: int, steps: int, tokenizer: Any, s2t: Args) -> RecorderFactory | None:
    """Return what records tokens of each step, None for a limit below one token in a step."""
    size = rows_per_step(megabytes, steps)
    return partial(TokenRecorder, size=size, s2t=s2t, marks=marks_of(tokenizer)) if size else None


def _whole(parameter: Any) -> Any:
    """Return a parameter, gathered from all ranks if it is sharded."""
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


def write_tokens(
    log: Path, path: Path, tokenizer: Any, prompts: Sequence[int], mini_batch: int, group_size: int
) -> None:
    """Write the token records in the log of a training as one sorted file.

    `prompts` are the lines, in the file of prompts, of those of the training in its order, `mini_batch` of
    them in a step.
    """
    decode = text_of(tokenizer)
    lines = read_jsonl(log)
    rows: list[dict[str, Any]] = []
    for line in lines:
        step_prompts = prompts[(line["step"] - 1) * mini_batch :]
        rows += _rows(line, decode, step_prompts, group_size)
    rows.sort(key=lambda row: tuple(row[name] for name in SORTED))
    metadata = {name: lines[-1].get(name) if lines else None for name in ("vocab_size", "s2t")}
    metadata["version"] = VERSION
    schema = MARKED if lines and "mark" in lines[-1] else SCHEMA
    schema = schema.with_metadata({METADATA_KEY: canonical(metadata).encode()})
    with replace_file(path, "wb") as stream:
        table = pa.Table.from_pylist(rows, schema=schema)
        pq.write_table(table, stream, compression="zstd", compression_level=9)


def _rows(
    line: Mapping[str, Any],
    decode: Callable[[Sequence[int]], str],
    prompts: Sequence[int],
    group_size: int,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the tokens of one step; `prompts` begins with those of the step."""

    def token(token_id: int) -> str:
        return decode([token_id])[: CHARACTERS["token"]]

    for index, row in enumerate(line["row"]):
        values = {k: v[index] if isinstance(v, list) else v for k, v in line.items()}
        values["prompt"], values["response"] = prompts[row // group_size], row % group_size
        values["token"] = token(values["token_id"])
        # The characters that are nearest to the token.
        values["before"] = decode(values["before"])[-CHARACTERS["before"] :]
        values["after"] = decode(values["after"])[: CHARACTERS["after"]]
        if values["top_tokens"] is not None:
            values["top_tokens"] = [token(token_id) for token_id in values["top_tokens"]]
        yield values
