"""The estimate of memory of `stapo plan` beside torch's trackers, at full depth: `make bench`.

No GPU is needed: the trackers follow shapes. Prints GB of one GPU; what trackers do not see (CUDA, a
sleeping or working vLLM, the responses of a rollout) is left out of both.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from tracked_memory import UNSEEN, tracked

from stapo.models.shapes import SHAPES
from stapo.study.schema import EngineSettings, TrainingSettings
from stapo.training.memory import host_memory, memory_per_gpu

TRAINING = TrainingSettings(
    steps=1, prompts_per_batch=256, group_size=8, prompts_per_mini_batch=64,
    micro_batch_tokens=16384, learning_rate=1e-6, max_prompt_tokens=1024,
    max_response_tokens=15360, rollouts="vllm-colocate",
)  # fmt: skip


def main() -> None:
    """Print one line for each size, number of GPUs and phase."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["1.7B", "8B", "14B"])
    parser.add_argument("--gpus", nargs="+", type=int, default=[1, 8, 16])
    parser.add_argument("--layers", type=int, help="fewer layers than the model has")
    arguments = parser.parse_args()
    table = Table(title="GB of one GPU with a reference model, one micro-batch of 16,384 tokens")
    for name in ("model", "GPUs", "phase", "tracked", "estimate", "ratio", "with the rest", "host"):
        table.add_column(name, justify="left" if name in ("model", "phase") else "right")
    for size in arguments.sizes:
        shape = SHAPES[f"Qwen/Qwen3-{size}-Base"]
        shape = replace(shape, layers=arguments.layers or shape.layers)
        for gpus in arguments.gpus:
            measured = tracked(shape, gpus, TRAINING.micro_batch_tokens)
            phases = memory_per_gpu(shape, TRAINING, EngineSettings(), gpus, 80e9, kl=True)
            host = host_memory(shape, gpus, kl=True)[1]
            for phase, found in measured.items():
                parts = phases[phase]
                estimate = sum(value for name, value in parts.items() if name not in UNSEEN)
                table.add_row(
                    size, str(gpus), phase, f"{found / 1e9:.1f}", f"{estimate / 1e9:.1f}",
                    f"{estimate / found:.2f}", f"{sum(parts.values()) / 1e9:.1f}", f"{host / 1e9:.0f}",
                )  # fmt: skip
    console = Console(width=110)
    console.print(table)
    console.print(
        "with the rest: all of one GPU of 80 GB with vLLM at 0.3, some of it our assumption; host: of one "
        "machine, in loading"
    )


if __name__ == "__main__":
    main()
