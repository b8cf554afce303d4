"""The shipped trainers: the update of this package, and TRL's losses.

Both run their real code; only the forward pass of the model is replaced by the tables of the mini-batch.
Ranks are threads, which exchange tensors when the code under test calls Accelerate.
"""

import copy
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Self

import torch
from accelerate.utils import DistributedType
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

from stapo.core.conformance.batches import MiniBatch, Partition, Trainer, Update
from stapo.core.methods import Method
from stapo.core.ranks import AcceleratorRanks
from stapo.core.update import accumulate_gradient

PATIENCE = 20.0
"""Maximum time that a rank waits for the others, in seconds."""


class RankAccelerator:
    """The methods of an Accelerator that the losses use, for one rank in a thread.

    The ranks share the slots, a value of each, and the barrier.
    """

    device = torch.device("cpu")
    distributed_type = DistributedType.NO
    sync_gradients = True

    def __init__(self, rank: int, slots: list[Any], barrier: threading.Barrier) -> None:
        self.process_index, self.num_processes = rank, len(slots)
        self.is_main_process = rank == 0
        self.slots, self.barrier = slots, barrier

    @classmethod
    def alone(cls) -> Self:
        """Return the only rank."""
        return cls(0, [None], threading.Barrier(1))

    def exchange(self, value: Any) -> list[Any]:
        """Return the values of all ranks; every rank must call this."""
        self.slots[self.process_index] = value
        self.barrier.wait()
        values = list(self.slots)
        self.barrier.wait()
        return values

    def gather(self, value: Tensor) -> Tensor:
        """Return the rows of all ranks, in the order of the ranks."""
        return torch.cat(self.exchange(value.reshape(-1) if value.dim() == 0 else value))

    def reduce(self, value: Tensor, reduction: str = "sum") -> Tensor:
        """Return the sum over ranks."""
        assert reduction == "sum"
        return torch.stack(self.exchange(value)).sum(dim=0)

    def pad_across_processes(self, value: Tensor, dim: int = 0, pad_index: float = 0) -> Tensor:
        """Return the value padded to the longest length of all ranks."""
        assert dim == 0
        missing = max(self.exchange(len(value))) - len(value)
        return torch.cat([value, value.new_full((missing, *value.shape[1:]), pad_index)])

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of a loss."""
        torch.autograd.backward(loss)


def on_ranks(partition: Partition, run: Callable[[RankAccelerator], Update]) -> Update:
    """Return loss and gradient averaged over ranks, as by Accelerate's engines."""
    slots: list[Any] = [None] * len(partition)
    barrier = threading.Barrier(len(partition), timeout=PATIENCE)

    def run_rank(rank: int) -> Update:
        try:
            return run(RankAccelerator(rank, slots, barrier))
        except BaseException:
            barrier.abort()  # The others need not wait for it.
            raise

    with ThreadPoolExecutor(len(partition)) as pool:
        updates = list(pool.map(run_rank, range(len(partition))))
    gradient = torch.stack([update.gradient for update in updates]).mean(dim=0)
    return Update(sum(update.loss for update in updates) / len(updates), gradient)


def _inputs(batch: MiniBatch) -> dict[str, Tensor]:
    """Return a mini-batch with TRL's names."""
    prompts = torch.ones(len(batch.mask), 1, dtype=torch.long)
    return {
        "prompt_ids": prompts,
        "prompt_mask": prompts,
        "completion_ids": torch.zeros_like(batch.mask, dtype=torch.long),
        "completion_mask": batch.mask.long(),
        "old_per_token_logps": batch.old_logps,
        "ref_per_token_logps": batch.ref_logps,
        "advantages": batch.advantages,
        "num_items_in_batch": batch.mask.sum(),
    }


@cache
def _shell() -> Any:
    """Return TRL's trainer, and a model whose forward pass is never called."""
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=64, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=1, num_key_value_heads=1, head_dim=8,
        )
    )  # fmt: skip
    config = GRPOConfig(
        tempfile.mkdtemp(), per_device_train_batch_size=4, num_generations=4, steps_per_generation=1,
        use_cpu=True, bf16=False, report_to="none", loss_type="dapo",
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["1"] * 4}),
        processing_class=_tokenizer(),
    )
    trainer.model.train()
    return trainer


def _tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of three tokens, since the trainer needs some."""
    words = WordLevel({"<pad>": 0, "<eos>": 1, "1": 2}, unk_token="1")
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(words), pad_token="<pad>", eos_token="<eos>"
    )


def _result(loss: float, leaf: Tensor) -> Update:
    return Update(loss, torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)


def _ours(batch: MiniBatch, partition: Partition, method: Method) -> Update:
    """Run the update of this package, with the partition's number of ranks and largest micro-batch."""
    tokens = max(len(rows) for rank in partition for rows in rank) * batch.mask.shape[1]

    def run(accelerator: RankAccelerator) -> Update:
        leaf = batch.logps.clone().requires_grad_()

        def forward(rows: Tensor) -> tuple[Tensor, Tensor]:
            rows = rows if len(rows) else torch.tensor([0])
            longest = max(int(batch.mask[rows].sum(dim=1).max()), 1)
            return leaf[rows, :longest], batch.entropies[rows, :longest]

        ranks = AcceleratorRanks(accelerator)
        loss, _ = accumulate_gradient(
            forward, batch, method, ranks, group_size=1, micro_batch_tokens=tokens
        )
        return _result(loss.item(), leaf)

    return on_ranks(partition, run)


def _trl(batch: MiniBatch, partition: Partition, method: Method) -> Update:
    """Run TRL's `_compute_loss` for each micro-batch, with clip and KL coefficient of the method.

    TRL 1.16 divides the sum of a micro-batch by (response tokens of all ranks / number of ranks).
    """
    inputs = _inputs(batch)

    def run(accelerator: RankAccelerator) -> Update:
        micro_batches = partition[accelerator.process_index]
        trainer, leaf = copy.copy(_shell()), batch.logps.clone().requires_grad_()
        trainer.accelerator, trainer.beta = accelerator, method.kl_coefficient
        trainer.epsilon_low, trainer.epsilon_high = method.clip_low, method.clip_high
        trainer.args = copy.copy(trainer.args)
        trainer.current_gradient_accumulation_steps = len(micro_batches)
        trainer.args.steps_per_generation = len(micro_batches)
        total = 0.0
        for rows in micro_batches:
            tables = leaf[rows], batch.entropies[rows], None
            trainer._get_per_token_logps_and_entropies = lambda *_, t=tables, **__: t
            part = {k: v if v.dim() == 0 else v[rows] for k, v in inputs.items()}
            loss = trainer._compute_loss(trainer.model, part)
            loss.backward()
            total += loss.item()
        return _result(total, leaf)

    return on_ranks(partition, run)


TRAINERS: dict[str, tuple[Trainer, str]] = {"ours": (_ours, "stapo"), "trl-dapo": (_trl, "justrl")}
"""Name -> trainer and the method that it is meant to implement."""
