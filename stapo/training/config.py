"""Settings of StapoTrainer: TRL's, and ours."""

import os
from dataclasses import dataclass, field

from trl import GRPOConfig


@dataclass
class StapoConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's settings and ours; `per_device_train_batch_size` is the part of the mini-batch of one rank."""

    method: str = field(default="stapo", metadata={"help": "Name in stapo.methods.METHODS"})
    statistics: str = field(
        default="behaviour",
        metadata={"help": "Policy whose statistics select tokens: behaviour or current"},
    )
    micro_batch_tokens: int = field(
        default=32768, metadata={"help": "Token budget of one forward and backward pass"}
    )
    packed: bool | None = field(
        default=None,
        metadata={
            "help": "Whether passes have no padding; by default on CUDA, where the model can"
        },
    )
    advantage_epsilon: float = field(default=1e-6, metadata={"help": "Added to the group's std"})
    rollout_mismatch_limit: float | None = field(
        default=None, metadata={"help": "Mean mismatch with vLLM, in nats, above which it stops"}
    )
    rollout_correction: float | None = field(
        default=None, metadata={"help": "Cap of the importance weights of vLLM's tokens; None: off"}
    )
    token_records_mb: int = field(
        default=0, metadata={"help": "Size limit of the token records, in MB; 0 records no tokens"}
    )
    run_fingerprint: str = field(
        default="", metadata={"help": "Written into checkpoints, to skip those of other runs"}
    )

    def __post_init__(self) -> None:
        if self.use_cpu:
            # Otherwise the device of each of several processes is `cpu:0`, which torch.load cannot map to.
            os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "cpu")
        super().__post_init__()


def check(args: StapoConfig) -> None:
    """Raise ValueError for settings that the update does not support."""
    if args.gradient_accumulation_steps != 1 or args.num_iterations != 1:
        raise ValueError(
            "gradient_accumulation_steps and num_iterations: expected 1; a mini-batch is divided into "
            "micro-batches according to micro_batch_tokens"
        )
    if args.statistics not in ("behaviour", "current"):
        raise ValueError(f"statistics: expected behaviour or current, found {args.statistics}")
