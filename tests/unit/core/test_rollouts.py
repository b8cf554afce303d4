"""Training reads of a response what evaluation reads, and a study alone says how both sample it."""

import json
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from datasets import Dataset
from training_jobs import TRAINING, job_in, metrics
from transformers import Qwen3ForCausalLM

from stapo.core.files import read_json, write_jsonl
from stapo.core.trainer import StapoTrainer, mini_batch, response_seed, seeded
from stapo.suite.answers import last_boxed
from stapo.suite.evaluation import engines
from stapo.suite.evaluation.engines import Prompter, Request, Sampling, hf_engine
from stapo.suite.models.loading import set_aside
from stapo.suite.study import StudyError
from stapo.suite.study.schema import Decoding, EngineSettings, Evaluation
from stapo.suite.training import rewards, run as run_module
from stapo.suite.training.settings import trainer_config

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


FIELDS: dict[str, Any] = {
    "min_p": 0.9, "top_h": 0.1, "typical_p": 0.1, "eta_cutoff": 0.5, "epsilon_cutoff": 0.5,
    "top_k": 1, "top_p": 0.01, "temperature": 0.01, "min_new_tokens": 32, "min_length": 64,
    "max_new_tokens": 2, "no_repeat_ngram_size": 1, "repetition_penalty": 5.0,
    "encoder_repetition_penalty": 5.0, "suppress_tokens": [7, 8, 9], "bad_words_ids": [[7], [8]],
    "begin_suppress_tokens": [*range(2, 40)], "sequence_bias": [[[7], 10.0]], "num_beams": 2,
    "exponential_decay_length_penalty": [1, 5.0], "forced_eos_token_id": 1, "guidance_scale": 3.0,
    "stop_strings": ["1"], "num_return_sequences": 2, "watermarking_config": {"bias": 5.0},
}  # fmt: skip
"""Most of them changed a rollout or ended it with an error when it was TRL's alone; each with its value."""


def sampled(path: Path, out: Path) -> tuple[Any, ...]:
    """Return a rollout of a model in training and in evaluation, and how many fields it is saved with."""
    model, tokenizer, ends = run_module.policy(path, [])
    trainer = trainer_of(model, out, tokenizer, ends)
    torch.manual_seed(0)
    rollout = trainer._generate_and_score_completions([{"prompt": "chain:1+2?"}] * 16)
    model.save_pretrained(out / "saved")
    answer = hf_engine(str(path), Sampling(1.0, 1.0, 0, 32, ends))
    requests = [Request(0, seed, seed, (6, 8, 20)) for seed in range(16)]
    evaluated = [(request.seed, response) for request, response in answer(requests)]
    return rollout["completion_ids"].tolist(), evaluated, set_aside(out / "saved")


def trainer_of(model: Any, out: Path, tokenizer: Any = None, ends: Any = ()) -> StapoTrainer:
    return StapoTrainer(
        model=model,
        args=trainer_config(TRAINING, EngineSettings(tracker="none"), 0, out, "0" * 16, ends),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_dict({"prompt": ["1"] * 16}),
        processing_class=tokenizer,
    )


@pytest.fixture(scope="module")
def plain(world, tmp_path_factory) -> tuple[Path, tuple[Any, ...]]:
    """A model without generation_config.json, and what it samples."""
    out = tmp_path_factory.mktemp("plain")
    shutil.copytree(world / "base", out / "model")
    (out / "model" / "generation_config.json").unlink()
    return out / "model", sampled(out / "model", out)


@pytest.mark.parametrize("field", FIELDS)
def test_nothing_of_the_models_generation_config_changes_a_response(plain, tmp_path, field):
    model, expected = plain
    shutil.copytree(model, tmp_path / "model")
    file = tmp_path / "model" / "generation_config.json"
    file.write_text(json.dumps({"do_sample": True, field: FIELDS[field], "eos_token_id": 9}))
    assert set_aside(tmp_path / "model") == {field: FIELDS[field]}
    assert sampled(tmp_path / "model", tmp_path) == expected
    assert expected[-1] == {}


def test_users_of_the_trainer_keep_only_the_end_tokens_of_the_model(plain, tmp_path):
    shutil.copytree(plain[0], tmp_path / "model")
    file = tmp_path / "model" / "generation_config.json"
    file.write_text(json.dumps({"min_p": 0.9, "suppress_tokens": [7], "eos_token_id": [1, 9]}))
    kept = trainer_of(str(tmp_path / "model"), tmp_path).model.generation_config
    assert kept.to_diff_dict().keys() - {"transformers_version"} == {"eos_token_id", "pad_token_id"}
    assert kept.eos_token_id == [1, 9]
    file.write_text("no JSON")
    assert set_aside(tmp_path / "model") == {}


def test_masked_responses_keep_their_length(plain, tmp_path):
    lengths = []
    for masked in (False, True):
        model, tokenizer, ends = run_module.policy(plain[0], [])
        trainer = trainer_of(model, tmp_path / str(masked), tokenizer, ends)
        trainer.mask_truncated_completions = masked
        trainer.max_completion_length = 4
        trainer.generation_config.max_new_tokens = 4
        torch.manual_seed(0)
        rollout = trainer._generate_and_score_completions([{"prompt": "chain:1+2?"}] * 16)
        batch = mini_batch(rollout)
        lengths.append(batch.response_lengths.tolist())
        counted = batch.mask.sum(dim=1).tolist()
    assert lengths[0] == lengths[1]
    assert max(lengths[1]) == 4
    assert counted != lengths[1]


def test_rollouts_in_bfloat16_are_those_of_the_current_weights_and_their_mismatch_is_measured(
    world, tmp_path
):
    """Log-probs of the tiny model differ by about 0.005; of weights two updates older, by 0.1 and more."""
    changes = {"steps": 6, "learning_rate": 1e-2, "max_response_tokens": 16}
    questions = ["chain:1+1", "chain:1+2", "chain:2+2", "chain:4+3"]
    exact = train(world / "base", tmp_path / "exact", questions, **changes)
    rounded = train(
        world / "base", tmp_path / "rounded", questions, **changes, rollouts="transformers-bfloat16"
    )
    assert "rollout_mismatch" not in exact[0] or exact[0]["rollout_mismatch"] is None
    # In single precision it would be 1e-6.
    assert all(1e-4 < record["rollout_mismatch"] < 0.03 for record in rounded)


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

    told = r"training\.max_prompt_tokens: all 4 prompts are longer .*; increase the limit"
    with pytest.raises(StudyError, match=told):
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
            rollout_number=None,
        )
        seeds = partial(StapoTrainer._response_seeds, trainer)
        seeded(generate, seeds)(["?"] * (8 * shared // ranks), sampling_params=given)
    assert sampled == [response_seed(3, 5, row) for row in range(8)]
    assert given.seed is None
    assert len({response_seed(*one) for one in ((3, 5, 0), (3, 6, 0), (4, 5, 0))}) == 3
    assert max(sampled) < 2**63
