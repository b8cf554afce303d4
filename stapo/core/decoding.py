"""Sampling of a whole batch of responses with Transformers, in less time on a CPU.

A loop for the argument `custom_generate` of Transformers' `generate`, with the same distribution. Finished
responses leave the batch, responses to a prompt share the pass over it, the cache is written in place instead
of copied for every token, keys and values are not repeated for grouped queries, and tokens are drawn without
sorting the vocabulary.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from random import Random
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, LogitsProcessorList
from transformers.cache_utils import Cache, DynamicLayer
from transformers.generation import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from stapo.core.sampling import Sampler

ONE_QUERY = "stapo_one_query"
"""Value of `attn_implementation` while responses are sampled."""
ROOM = 64
"""Tokens by which a cache grows."""
FINISHED_SHARE = 0.1
"""Share of finished responses at which they leave the batch; a copy of the cache costs about one token."""
SDPA: Callable[..., tuple[Tensor, None]] = AttentionInterface()["sdpa"]
WARPERS = {
    TopPLogitsWarper: "top_p", TopKLogitsWarper: "top_k", TemperatureLogitsWarper: "temperature",
}  # fmt: skip
"""Processors that a sampler replaces, the last one first -> their attribute, and the sampler's."""


def has_full_attention(model: Any) -> bool:
    """Return whether a model's attention can be chosen, and sees all earlier tokens in every layer."""
    config = model.config
    full = set(getattr(config, "layer_types", None) or ()) <= {"full_attention"}
    window = getattr(config, "sliding_window", None)
    return bool(model._supports_attention_backend) and full and window is None


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values (R, G, L, D) of one layer, with room for more tokens."""

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new tokens, and return those of all tokens."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
            self.room = [table[:, :, :0] for table in (keys, values)]
            self.used = 0
        start, self.used = self.used, self.used + keys.shape[2]
        if self.used > self.room[0].shape[2]:
            self.room = [_longer(table, self.used + ROOM, start) for table in self.room]
        for table, new in zip(self.room, (keys, values), strict=True):
            table[:, :, start : self.used] = new
        self.keys, self.values = (table[:, :, : self.used] for table in self.room)
        return self.keys, self.values

    def take(self, rows: Tensor) -> None:
        """Keep the rows of an index (N,), which may repeat."""
        self.room = [table[rows] for table in self.room]


def _longer(table: Tensor, length: int, used: int) -> Tensor:
    longer = table.new_empty((*table.shape[:2], length, table.shape[3]))
    longer[:, :, :used] = table[:, :, :used]
    return longer


def one_query_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Return the attention of one token per row; for more tokens, that of `sdpa`.

    The queries (R, H, 1, D) of a group attend to the same keys and values (R, G, L, D), where G divides H, as
    if they were tokens of one head; the mask is (R, 1, 1, L), or None.
    """
    rows, heads, length, size = query.shape
    if length > 1:
        return SDPA(module, query, key, value, attention_mask, scaling=scaling, **others)
    grouped = query.reshape(rows, key.shape[1], -1, size)
    attend = torch.nn.functional.scaled_dot_product_attention
    output = attend(grouped, key, value, attn_mask=attention_mask, scale=scaling)
    return output.reshape(rows, 1, heads, size), None


AttentionInterface.register(ONE_QUERY, one_query_attention)
AttentionMaskInterface.register(ONE_QUERY, AttentionMaskInterface()["sdpa"])


@torch.no_grad()
def decode(
    model: Any,
    input_ids: Tensor,
    *,
    logits_processor: LogitsProcessorList,
    generation_config: Any,
    seeds: Sequence[int] | None = None,
    logps: Tensor | None = None,
    **inputs: Any,
) -> Tensor:
    """Return (B, P + T) prompts and responses, padded after their ends, for (B, P) padded before them.

    The model must have full attention. `seeds` are those of the responses; without them, they come from
    PyTorch's generator. Into `logps` (B, longest T) the log-probs of the responses are written, at the
    temperature, among all words. Of `inputs` only the `attention_mask` (B, P) is used.
    """
    if seeds is None:
        seeds = torch.randint(2**62, (len(input_ids),)).tolist()
    generators = [Random(seed) for seed in seeds]
    processors, sampler = _taken_apart(logits_processor)
    if not generation_config.do_sample:
        sampler = Sampler(temperature=0)
    before = model.config._attn_implementation
    model.set_attn_implementation(ONE_QUERY)
    try:
        given = input_ids, inputs["attention_mask"], generation_config
        return _decode(model, *given, processors, sampler, generators, logps)
    finally:
        model.set_attn_implementation(before)


def _taken_apart(processors: LogitsProcessorList) -> tuple[LogitsProcessorList, Sampler]:
    """Return processors of logits without the last ones, and a sampler that does what these do."""
    left, settings = LogitsProcessorList(processors), {}
    for kind, name in WARPERS.items():
        if left and type(left[-1]) is kind:
            settings[name] = getattr(left.pop(), name)
    return left, Sampler(**settings)


def _decode(
    model: Any,
    prompts: Tensor,
    attended: Tensor,
    config: Any,
    processors: LogitsProcessorList,
    sampler: Sampler,
    generators: list[Random],
    logps: Tensor | None,
) -> Tensor:
    count, width = prompts.shape
    ends = torch.as_tensor(config.eos_token_id, device=prompts.device).reshape(-1)
    ids = prompts.new_full((count, config.max_length), config.pad_token_id)
    ids[:, :width] = prompts
    layers = [GrowingLayer() for _ in range(model.config.num_hidden_layers)]
    rows, cache = torch.arange(count, device=prompts.device), Cache(layers=layers)
    pairs = torch.stack([prompts, attended], dim=1)
    pairs, prompt_index = torch.unique(pairs, dim=0, return_inverse=True)
    tokens, attended = pairs.unbind(dim=1)  # Of distinct prompts, in the first pass.
    positions = (attended.cumsum(dim=1) - 1).clamp(min=0)
    running, place = rows, width
    for place in range(width, config.max_length):
        output = model(
            input_ids=tokens, attention_mask=attended, position_ids=positions,
            past_key_values=cache, use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        logits = output.logits[:, -1]
        if place == width:  # The responses to a prompt share the pass over it.
            for layer in layers:
                layer.take(prompt_index)
            logits, positions, attended = (
                table[prompt_index] for table in (logits, positions, attended)
            )
        if processors:
            logits = processors(ids[rows, :place], logits.float())
        drawn = sampler.draw(logits, running, generators)
        ids[rows[running], place] = drawn
        if logps is not None:
            log_probs = (logits[running].float() / (sampler.temperature or 1)).log_softmax(dim=1)
            logps[rows[running], place - width] = log_probs.gather(1, drawn.unsqueeze(1)).squeeze(1)
        go_on = ~torch.isin(drawn, ends)
        running, generators = running[go_on], list(compress(generators, go_on.tolist()))
        if not generators:
            break
        tokens, positions = ids[rows, place].unsqueeze(1), positions[:, -1:] + 1
        attended = torch.cat([attended, attended.new_ones((len(rows), 1))], dim=1)
        if len(running) <= (1 - FINISHED_SHARE) * len(rows):
            for layer in layers:
                layer.take(running)
            rows, tokens, positions, attended = (
                table[running] for table in (rows, tokens, positions, attended)
            )
            running = torch.arange(len(rows), device=rows.device)
    return ids[:, : place + 1]
