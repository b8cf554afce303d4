"""A training of a tiny model in seconds, for the programs of `make gpu`."""

from pathlib import Path

from training_jobs import job_in

from stapo.models.tiny import build_tiny
from stapo.study.schema import TrainingSettings
from stapo.study.sources import TinyData, TinyModel
from stapo.training.prompts import write_prompts
from stapo.training.run import train

STEPS = 6
TRAINING = TrainingSettings(
    steps=STEPS, prompts_per_batch=4, group_size=4, prompts_per_mini_batch=2,
    micro_batch_tokens=2048, learning_rate=1e-3, max_prompt_tokens=24, max_response_tokens=24,
    checkpoint_every=1,
)  # fmt: skip


def build_world(world: Path) -> None:
    """Write a base model and prompts."""
    settings = TinyModel(builder="tiny-arithmetic", supervised_steps=2, supervised_batch=8)
    build_tiny(settings, world / "base")
    write_prompts(TinyData(builder="tiny-arithmetic", prompts=64), world / "prompts.jsonl")


def train_tiny(world: Path, out: Path, method: str) -> None:
    """Train on them, resuming from the newest step checkpoint."""
    train(job_in(world, out, TRAINING, method, config={"gpu": method}))
