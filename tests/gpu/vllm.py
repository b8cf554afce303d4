"""Colocated vLLM on a GPU: three rollouts of a training, each from the weights of its step.

In bfloat16 a mismatch of log-probs of 1e-3 to 1e-2 nats per token is expected. Near 1, vLLM's weights are
lost in sleep or wake; several times as much in the later rollouts as in the first, their transfer is broken.
`VLLM_USE_V2_MODEL_RUNNER=0` tells whether vLLM's new runner is the cause.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch

if find_spec("vllm") and not torch.cuda.is_available():
    import vllm_on_cpu  # noqa: F401  Before TRL.
from training_jobs import job_in
from transformers import Qwen3Config, Qwen3ForCausalLM

from gpu.attention import QWEN, TINY
from gpu.page import Page, begin
from gpu.tiny_training import TRAINING, build_world
from stapo.models.shapes import Shape
from stapo.provenance import file_sums, write_sums
from stapo.study.schema import EngineSettings, TrainingSettings
from stapo.training.rewards import BUILT_IN
from stapo.training.run import train
from stapo.training.step_checkpoints import step_checkpoints
from stapo.training.trainer import StapoTrainer

CHANGED = {"rollouts": "vllm-colocate", "steps": 6}
"""Two mini-batches for each of three rollouts."""
LARGE = TrainingSettings(
    **CHANGED, prompts_per_batch=16, group_size=8, prompts_per_mini_batch=8, micro_batch_tokens=16384,
    learning_rate=1e-4, max_prompt_tokens=64, max_response_tokens=1024, checkpoint_every=6,
)  # fmt: skip
"""At a learning rate of 1e-6, weights of an earlier step would differ by less than bfloat16's rounding."""
MEMORY_SHARE = 0.5
ALONE_SHARE = 0.2
"""For generation alone: the training of before may still hold memory of its own."""


@contextmanager
def timing(
    seconds: dict[str, float], owner: Any, name: str, before: Callable[[], None]
) -> Iterator[None]:
    """Add up the seconds of a method of a class; `before` is called first."""
    original = getattr(owner, name)

    def timed(self: Any, *args: Any, **named: Any) -> Any:
        before()
        start = perf_counter()
        result = original(self, *args, **named)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds[name] = seconds.get(name, 0.0) + perf_counter() - start
        return result

    with patch.object(owner, name, timed):
        yield


def rollouts(page: Page, world: Path, training: TrainingSettings) -> None:
    """Train, and add a row for each rollout."""
    from trl.generation.vllm_generation import VLLMGeneration
    from vllm import LLM

    seconds: dict[str, float] = {}
    asleep: dict[str, float] = {}
    accumulate = StapoTrainer._accumulate_gradients

    def note_memory() -> None:
        """Note the GB of the device in use and those that torch holds, before vLLM wakes up."""
        if page.device == "cuda":
            free, total = torch.cuda.mem_get_info()
            asleep["GB in use, vLLM asleep"] = (total - free) / 1e9
            # Torch may still count what vLLM has given back: its pool is another allocator's.
            asleep["GB reserved by torch"] = torch.cuda.memory_reserved() / 1e9
            asleep["GB allocated by torch"] = torch.cuda.memory_allocated() / 1e9

    def look(self: Any, model: Any, inputs: Any, keep: Any = None) -> Any:
        if self._step % self.args.steps_per_generation == 0:
            mask = inputs["completion_mask"].bool()
            apart = inputs["sampling_per_token_logps"] - inputs["old_per_token_logps"]
            apart, tokens = apart.abs()[mask], int(mask.sum())
            row = {
                "step": self.state.global_step,
                "mismatch, mean nats": apart.mean().item(),
                "largest": apart.max().item(),
                **asleep,
                **{f"{name}, s": value for name, value in sorted(seconds.items())},
                "tokens per second": tokens / seconds["generate"],
            }
            page.add("Rollouts, each after a transfer of weights", **row)
            seconds.clear()
        return accumulate(self, model, inputs, keep)

    save = StapoTrainer._save_checkpoint

    def timed_save(self: Any, *args: Any) -> None:
        """Save a checkpoint, then read all of it again as resuming does before it loads anything."""
        start = perf_counter()
        save(self, *args)
        written = perf_counter() - start
        checkpoint = step_checkpoints(Path(self.args.output_dir))[-1]
        names = [str(f.relative_to(checkpoint)) for f in checkpoint.rglob("*") if f.is_file()]
        start = perf_counter()
        file_sums(checkpoint, names)
        row = {
            "GB": sum((checkpoint / name).stat().st_size for name in names) / 1e9,
            "save, with checksums, s": written,
            "checksums alone, s": perf_counter() - start,
        }
        page.add("A step checkpoint", **row)

    with ExitStack() as stack:
        stack.enter_context(patch.object(StapoTrainer, "_save_checkpoint", timed_save))
        for owner, name in (
            (LLM, "generate"), (LLM, "sleep"), (LLM, "wake_up"), (VLLMGeneration, "sync_weights"),
        ):  # fmt: skip
            before = note_memory if name == "sync_weights" else lambda: None
            stack.enter_context(timing(seconds, owner, name, before))
        stack.enter_context(patch.object(StapoTrainer, "_accumulate_gradients", look))
        stack.enter_context(patch.dict(BUILT_IN, boxed=alternating))
        engine = EngineSettings(vllm_gpu_memory=MEMORY_SHARE)
        train(job_in(world, world / "out", training, "stapo", engine=engine))


def alternating(completions: Any, **_: Any) -> list[float]:
    """Reward every other response, so that no group is flat."""
    return [float(row % 2) for row in range(len(completions))]


def detokenising(page: Page, world: Path, tokens: int) -> None:
    """Add seconds of the same generation with and without text, in turns."""
    from vllm import LLM, SamplingParams

    engine = partial(LLM, dtype="float32", enforce_eager=True) if page.device == "cpu" else LLM
    llm = engine(
        model=str(world / "base"), max_model_len=tokens + 64, gpu_memory_utilization=ALONE_SHARE
    )
    prompts = [{"prompt_token_ids": [3, 4, 5]}] * 64
    times: dict[bool, list[float]] = {True: [], False: []}
    found: list[list[Any]] = []
    for turn in range(4):
        text = turn % 2 == 0
        sampling = [
            SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=text, seed=row)
            for row in range(len(prompts))
        ]
        if turn == 3:
            sampling.reverse()
        start = perf_counter()
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        times[text].append(perf_counter() - start)
        found.append([list(one.outputs[0].token_ids) for one in outputs])
        page.add(f"64 responses of {tokens} tokens", detokenised=text, seconds=times[text][-1])
    page.add("Detokenising", **{"with / without": sum(times[True]) / sum(times[False])})
    # A response is determined by its seed only as far as its log-probs do not depend on the batch.
    runs = {"same order": found[2], "reversed order": found[3][::-1]}
    row = {
        order: sum(one == other for one, other in zip(found[1], run, strict=True))
        for order, run in runs.items()
    }
    page.add("Equal responses of 64 in another run with the same seeds", **row)


def build(world: Path, shape: Shape) -> None:
    """Write a random model of some shape, the tiny world's tokenizer and prompts."""
    build_world(world)
    config = Qwen3Config(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, head_dim=shape.head_dim,
        num_key_value_heads=shape.kv_heads, tie_word_embeddings=shape.tied,
        pad_token_id=0, bos_token_id=None, eos_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(world / "base")
    write_sums(world / "base")


def main() -> None:
    """Write the page."""
    page, tiny = begin("vllm", "Colocated vLLM")
    if find_spec("vllm") is None:
        page.add("vLLM", installed="no", next="make setup-gpu, then make gpu")
        return
    if page.device == "cpu":
        left_out = "sleep, wake, GB while asleep, bfloat16, CUDA graphs, vLLM's V2 runner"
        page.add("Left out on a CPU", what=left_out)
    training = TRAINING.model_copy(update=CHANGED) if tiny else LARGE
    with TemporaryDirectory() as folder:
        world = Path(folder)
        build(world, replace(TINY, head_dim=32) if tiny else QWEN["1.7B"])
        rollouts(page, world, training)
        # In a process of its own: the engine of the training still holds memory.
        generate = get_context("spawn").Process(
            target=detokenising, args=(page, world, training.max_response_tokens)
        )
        gc.collect()
        torch.cuda.empty_cache()
        generate.start()
        generate.join()
        if generate.exitcode:
            page.add("Detokenising", error=f"exit code {generate.exitcode}")


if __name__ == "__main__":
    main()
