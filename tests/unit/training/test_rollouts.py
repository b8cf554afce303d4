"""What training reads of a response is what evaluation reads; prompts that are too long are left out."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from training_jobs import TRAINING, job_in, metrics
from transformers import Qwen3ForCausalLM

from stapo.evaluation import engines
from stapo.evaluation.engines import Prompter
from stapo.evaluation.grading import last_boxed
from stapo.files import read_json, write_jsonl
from stapo.study import StudyError
from stapo.study.schema import Decoding, EngineSettings, Evaluation
from stapo.training import rewards, run as run_module
from stapo.training.config import trainer_config
from stapo.training.trainer import StapoTrainer, response_seed, seeded

BOX, END, EOS = r"\boxed{", "?", "<eos>"
"""The tiny tokenizer has a question mark, which no response of the tiny world has, and shows it in text."""


def train(base: Path, out: Path, questions: list[str], **changes: Any) -> list[dict[str, Any]]:
    out.mkdir(exist_ok=True)
    write_jsonl(out / "prompts.jsonl", [{"question": one, "answer": "5"} for one in questions])
    training, ends = TRAINING.model_copy(update={"steps": 2, **changes}), ["<|im_end|>", END]
    given = {"base": base, "end_tokens": ends}
    run_module.train(job_in(out, out, training, "justrl", **given))
    return metrics(out)


def saying(tokens: list[str], base: Path) -> Any:
    """A model that always answers with the same tokens, then pads, as long as nothing ends it."""
    vocabulary = Prompter(base, []).tokenizer.get_vocab()
    ids = torch.tensor([vocabulary[token] for token in tokens])

    def generate(self: Any, input_ids: torch.Tensor, generation_config: Any, **_: Any) -> Any:
        assert set(generation_config.eos_token_id) == {vocabulary[EOS], vocabulary[END]}
        return torch.cat([input_ids, ids.expand(len(input_ids), -1)], dim=1)

    return patch.object(Qwen3ForCausalLM, "generate", generate)


@pytest.mark.parametrize(
    ("tokens", "reward", "text", "length", "truncated"),
    [
        ([BOX, "5", "}", END, BOX, "7", "}", EOS], 1.0, r"\boxed{5}", 4, 0.0),
        ([BOX, "5", "}", EOS, BOX, "7", "}", END], 1.0, r"\boxed{5}", 4, 0.0),
        ([BOX, "7", "}", END, BOX, "5", "}", EOS], -1.0, r"\boxed{7}", 4, 0.0),
        ([BOX, "5", "}", "+"], 1.0, r"\boxed{5}+", 4, 1.0),
    ],
)
def test_training_and_evaluation_read_the_same_text(
    world, tmp_path, tokens, reward, text, length, truncated
):  # fmt: skip
    read: list[str] = []

    def boxed(completions: Any, **columns: Any) -> list[float]:
        read.extend(rewards.texts(completions))
        return rewards.boxed_reward(completions, **columns)

    with saying(tokens, world / "base"), patch.dict(rewards.BUILT_IN, boxed=boxed):
        records = train(world / "base", tmp_path, ["chain:2+3"] * 4)
    assert {record["reward"] for record in records} == {reward}
    assert {record["truncated_fraction"] for record in records} == {truncated}
    assert {record["response_length"] for record in records} == {length}

    prompter = Prompter(world / "base", ["<|im_end|>", END])
    evaluation = Evaluation(batch_size=1, max_response_tokens=32)
    sampling = prompter.sampling(Decoding(temperature=1.0, top_p=1.0), evaluation)
    ids = [prompter.tokenizer.get_vocab()[token] for token in tokens]
    response = engines._cut(prompter.tokenizer, ids, sampling)
    assert {response.text} == set(read) == {text}
    assert (response.num_tokens, response.truncated) == (length, bool(truncated))
    assert (last_boxed(response.text) == "5") == (reward > 0)


def test_vllm_ends_responses_by_the_same_tokens_and_no_others(tmp_path):
    training = TRAINING.model_copy(update={"rollouts": "vllm-colocate"})
    config = trainer_config(training, EngineSettings(), 0, tmp_path, "0" * 16, (3, 7))
    ends = {"stop_token_ids": [3, 7], "ignore_eos": True, "detokenize": False}
    assert config.generation_kwargs == ends


def test_prompts_over_the_limit_are_left_out_and_counted(world, tmp_path, capsys):
    """With the instruction, as the model sees them: chain:1+1 has 4 tokens, the instruction 1."""
    seen: list[str] = []

    def look(prompts: Any, completions: Any, **_: Any) -> list[float]:
        seen.extend(prompt[-1]["content"] for prompt in prompts)
        return [1.0] * len(completions)

    questions = ["chain:1+1", "chain:1+1+1", "chain:2+2", "chain:9*9*9"]
    changes = {"max_prompt_tokens": 5, "instruction": "="}
    with patch.dict(rewards.BUILT_IN, boxed=look):
        train(world / "base", tmp_path, questions, **changes)
    assert set(seen) == {"chain:1+1=", "chain:2+2="}
    assert "2 prompts; 2 left out, longer than 5 tokens" in capsys.readouterr().out
    assert read_json(tmp_path / "provenance.json")["prompts_too_long"] == 2

    with pytest.raises(
        StudyError,
        match=r"training\.max_prompt_tokens: all 4 prompts are longer .*; increase the limit",
    ):
        train(world / "base", tmp_path / "none", questions, max_prompt_tokens=4, instruction="=")


@pytest.mark.parametrize(("ranks", "shared"), [(1, 1), (4, 1), (4, 2)])
def test_a_response_has_the_same_seed_on_any_ranks_and_engines(ranks, shared):
    given, sampled = SimpleNamespace(seed=None), []

    def generate(prompts: Any, sampling_params: Any) -> None:
        sampled.extend(parameters.seed for parameters in sampling_params)

    for rank in range(0, ranks, shared):
        trainer = SimpleNamespace(
            accelerator=SimpleNamespace(process_index=rank + shared - 1),
            vllm_tensor_parallel_size=shared,
            args=SimpleNamespace(seed=3),
            state=SimpleNamespace(global_step=5),
        )
        seeds = partial(StapoTrainer._response_seeds, trainer)
        seeded(generate, seeds)(["?"] * (8 * shared // ranks), sampling_params=given)
    assert sampled == [response_seed(3, 5, row) for row in range(8)]
    assert given.seed is None
    assert len({response_seed(*one) for one in ((3, 5, 0), (3, 6, 0), (4, 5, 0))}) == 3
    assert max(sampled) < 2**63
