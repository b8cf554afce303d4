"""Loss and gradients of JustRL and GRPO against TRL's own `GRPOTrainer._compute_loss`, same rollouts.

The reference is TRL's code as installed, on a real Qwen3 of 2 layers. Our side starts from the plain
logits of the same model. Old log-probabilities come from a disturbed copy of the model, so that
ratios fall on both sides of the clips; prompts are padded left and responses right, as TRL does.
"""

import copy

import pytest
import torch
from torch import Tensor

from stapo.objective import clipped_surrogate, kl_k3, sequence_mean, token_mean

datasets = pytest.importorskip("datasets")
pytest.importorskip("trl", reason="TRL is the reference here")

from transformers import Qwen3ForCausalLM  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from stapo.models.tiny import build_model, build_tokenizer  # noqa: E402
from stapo.study.sources import TinyModel  # noqa: E402

NUM_SEQUENCES, PROMPT_LENGTH, LENGTH = 16, 5, 24
POLICY = build_model(TinyModel(builder="tiny-arithmetic", supervised_steps=1, hidden_size=32))
PAD, VOCAB_SIZE = POLICY.config.pad_token_id, POLICY.config.vocab_size


def disturbed(original: Qwen3ForCausalLM, seed: int) -> Qwen3ForCausalLM:
    other = copy.deepcopy(original)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    return other


def response_logps(policy: Qwen3ForCausalLM, rollouts: dict[str, Tensor]) -> Tensor:
    """Log-probabilities of the response tokens from plain logits."""
    ids = torch.cat([rollouts["prompt_ids"], rollouts["completion_ids"]], dim=1)
    attention = torch.cat([rollouts["prompt_mask"], rollouts["completion_mask"]], dim=1)
    logits = policy(input_ids=ids, attention_mask=attention, use_cache=False).logits[:, :-1]
    log_probs = torch.log_softmax(logits, dim=-1)
    return log_probs.gather(2, ids[:, 1:, None])[:, -LENGTH:, 0]


@pytest.fixture(scope="module")
def rollouts() -> dict[str, Tensor]:
    """What TRL's loss is given: padded ids and masks, advantages, old and reference log-probs."""
    generator = torch.Generator().manual_seed(1)
    sizes = {"generator": generator, "dtype": torch.long}
    prompt_lengths = torch.randint(1, PROMPT_LENGTH + 1, (NUM_SEQUENCES,), **sizes)
    lengths = torch.randint(1, LENGTH + 1, (NUM_SEQUENCES,), **sizes)
    lengths[0] = LENGTH
    prompt_mask = torch.arange(PROMPT_LENGTH).flip(0) < prompt_lengths[:, None]
    mask = torch.arange(LENGTH) < lengths[:, None]
    prompts = torch.randint(3, VOCAB_SIZE, (NUM_SEQUENCES, PROMPT_LENGTH), **sizes)
    responses = torch.randint(3, VOCAB_SIZE, (NUM_SEQUENCES, LENGTH), **sizes)
    inputs = {
        "prompt_ids": prompts.masked_fill(~prompt_mask, PAD),
        "prompt_mask": prompt_mask.long(),
        "completion_ids": responses.masked_fill(~mask, PAD),
        "completion_mask": mask.long(),
        "advantages": 1.5 * torch.randn(NUM_SEQUENCES, generator=generator),
        "num_items_in_batch": mask.sum(),
    }
    inputs["advantages"][-1] = 0.0
    with torch.no_grad():
        inputs["old_per_token_logps"] = response_logps(disturbed(POLICY, 2), inputs)
        inputs["ref_per_token_logps"] = response_logps(disturbed(POLICY, 3), inputs)
    return inputs


@pytest.fixture(scope="module")
def trainers(tmp_path_factory) -> dict[str, GRPOTrainer]:
    """Real trainers of TRL, each with its own copy of the policy."""

    def trainer(loss_type: str, epsilon_high: float) -> GRPOTrainer:
        args = GRPOConfig(
            output_dir=str(tmp_path_factory.mktemp(loss_type)),
            loss_type=loss_type,
            epsilon=0.2,
            epsilon_high=epsilon_high,
            beta=0.0,
            use_bias_correction_kl=False,  # TRL's default weighs the KL term by the ratio
            per_device_train_batch_size=NUM_SEQUENCES,
            num_generations=4,
            steps_per_generation=1,
            max_completion_length=LENGTH,
            temperature=1.0,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            disable_tqdm=True,
        )
        return GRPOTrainer(
            model=copy.deepcopy(POLICY),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=args,
            train_dataset=datasets.Dataset.from_dict({"prompt": ["1 2"] * NUM_SEQUENCES}),
            processing_class=build_tokenizer(),
        )

    return {"dapo": trainer("dapo", 0.28), "grpo": trainer("grpo", 0.2)}


def trl_loss(
    trainer: GRPOTrainer,
    rollouts: dict[str, Tensor],
    num_micro_batches: int,
    beta: float,
    delta: float | None,
) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of TRL, accumulated over micro-batches as its training loop does."""
    trainer.beta, trainer.args.delta = beta, delta
    trainer.args.steps_per_generation = num_micro_batches
    trainer.current_gradient_accumulation_steps = num_micro_batches
    trainer.model.train()
    trainer.model.zero_grad()
    size, total = NUM_SEQUENCES // num_micro_batches, 0.0
    for start in range(0, NUM_SEQUENCES, size):
        part = {k: v if v.dim() == 0 else v[start : start + size] for k, v in rollouts.items()}
        loss = trainer._compute_loss(trainer.model, part)
        loss.backward()
        total += loss.item()
    return total, gradients(trainer.model)


def gradients(policy: Qwen3ForCausalLM) -> dict[str, Tensor]:
    return {name: parameter.grad.clone() for name, parameter in policy.named_parameters()}


def our_loss(
    rollouts: dict[str, Tensor], loss_type: str, beta: float, delta: float | None
) -> tuple[float, dict[str, Tensor]]:
    """The same from plain logits and `stapo.objective`."""
    POLICY.zero_grad()
    logps, mask = response_logps(POLICY, rollouts), rollouts["completion_mask"].bool()
    high = {"dapo": 0.28, "grpo": 0.2}[loss_type]
    values = clipped_surrogate(
        logps, rollouts["old_per_token_logps"], rollouts["advantages"], 0.2, high, dual_clip=delta
    )
    if beta:
        values = values - beta * kl_k3(logps, rollouts["ref_per_token_logps"])
    aggregate = {"dapo": token_mean, "grpo": sequence_mean}[loss_type]
    loss = -aggregate(values, mask)
    loss.backward()
    return loss.item(), gradients(POLICY)


def test_rollouts_reach_every_branch_of_the_clip(rollouts) -> None:
    ratio = torch.exp(response_logps(POLICY, rollouts) - rollouts["old_per_token_logps"]).detach()
    mask = rollouts["completion_mask"].bool()
    signs = rollouts["advantages"][:, None].expand_as(ratio)
    for positive in (True, False):
        here = ratio[mask & ((signs > 0) == positive) & (signs != 0)]
        for low, high in [(0.0, 0.8), (0.8, 1.2), (1.2, 1.28), (1.28, 2.0), (2.0, 99.0)]:
            assert ((here > low) & (here < high)).any(), (positive, low, high)


# Single precision on both sides. TRL sums its logits in tiles and rebuilds the softmax in the
# backward pass, so every log-probability differs by some 1e-6, and a gradient entry sums some
# 200 tokens of both signs.
RELATIVE = 2e-5


@pytest.mark.parametrize("num_micro_batches", [1, 2], ids=["whole", "two micro-batches"])
@pytest.mark.parametrize(
    ("loss_type", "beta", "delta"),
    [("dapo", 0.0, None), ("grpo", 0.0, None), ("grpo", 0.04, None), ("dapo", 0.0, 2.0)],
    ids=["JustRL", "GRPO", "GRPO with KL", "JustRL with dual clip"],
)
def test_loss_and_gradients_equal_trl(
    rollouts, trainers, loss_type, beta, delta, num_micro_batches
) -> None:
    expected_loss, expected = trl_loss(
        trainers[loss_type], rollouts, num_micro_batches, beta, delta
    )
    loss, ours = our_loss(rollouts, loss_type, beta, delta)
    assert loss == pytest.approx(expected_loss, rel=RELATIVE)
    assert ours.keys() == expected.keys()
    for name, gradient in ours.items():
        size = expected[name].norm()
        assert size > 1e-4, name
        error = (gradient - expected[name]).norm() / size
        assert error < RELATIVE, (name, error.item())
