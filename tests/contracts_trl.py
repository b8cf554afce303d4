"""Contracts for the names that training and the conformance kit use of TRL."""

import inspect
import re
import sys
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from contracts import accepts, attribute, contract, expect, reads, source, takes

# TRL


@cache
def tiny() -> Any:
    """Return a real GRPOTrainer after one rollout, with its calls of overridden methods in `.calls`."""
    from datasets import Dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    from stapo.models.arithmetic import VOCABULARY
    from stapo.models.tiny import build_tokenizer

    calls: dict[str, list[tuple[tuple[Any, ...], dict[str, Any], Any]]] = {}

    def recorded(name: str) -> Any:
        def method(self: Any, *args: Any, **named: Any) -> Any:
            result = getattr(GRPOTrainer, name)(self, *args, **named)
            calls.setdefault(name, []).append((args, named, result))
            return result

        return method

    names = ("_generate", "_calculate_rewards", "_get_per_token_logps_and_entropies")
    kind = type("Recorder", (GRPOTrainer,), {name: recorded(name) for name in names})
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(VOCABULARY), hidden_size=8, intermediate_size=8, num_hidden_layers=1, head_dim=8,
            num_attention_heads=1, num_key_value_heads=1, tie_word_embeddings=True,
        )
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as path:
        model.save_pretrained(path)
        trainer = kind(
            model=path,  # A path: TRL loads the reference model from it.
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)] * 2,
            args=GRPOConfig(
                output_dir=path, per_device_train_batch_size=4, num_generations=2, steps_per_generation=2,
                gradient_accumulation_steps=1, max_completion_length=3, beta=0.1, use_cpu=True, bf16=False,
                report_to="none", shuffle_dataset=False, remove_unused_columns=False,
            ),
            train_dataset=Dataset.from_dict({"prompt": list(PROMPTS)}),
            processing_class=build_tokenizer(),
        )  # fmt: skip
    trainer.model.train()
    trainer.calls, trainer.batch = calls, next(iter(trainer.get_train_dataloader()))
    trainer.rollout = trainer._generate_and_score_completions(trainer.batch)
    return trainer


PROMPTS = ("1+1=", "2+2=", "3+3=", "4+4=")
OVERRIDDEN = {
    "_prepare_inputs": ("generation_batch",),
    "_generate_and_score_completions": ("inputs",),
    "_generate": ("prompts",),
    "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
    "_get_per_token_logps_and_entropies": ("model", "input_ids", "attention_mask", "logits_to_keep"),
}  # fmt: skip


@contract("trl", *(f"GRPOTrainer.{name}" for name in OVERRIDDEN))
def is_called_by_trl(name):
    import trl

    method = name.partition(".")[2]
    takes(attribute("trl", name), *OVERRIDDEN[method])
    reads(sys.modules[trl.GRPOTrainer.__module__], f"self.{method}(")
    found = tiny().calls.get(method, [])
    if method == "_generate":
        ((args, named, result),) = found
        expect(len(args) == 1 and not named and isinstance(result, tuple), "called differently")
    elif method == "_calculate_rewards":
        ((args, named, result),) = found
        expect(
            result.shape == (8, 2) and not named,
            "its shape is not (responses of all ranks, functions)",
        )
    elif method == "_get_per_token_logps_and_entropies":
        models = [args[0] for args, _, _ in found]
        expect(models[0] is tiny().model and tiny().ref_model in models, "for other models")
        expect(
            all(len(args) == 4 and len(result) == 3 for args, _, result in found), "not 3 values"
        )


@contract("trl", "GRPOTrainer.training_step", "GRPOTrainer._step")
def only_training_step_counts(name):
    import trl

    attribute("trl", "GRPOTrainer.training_step")
    expect(tiny()._step == 0, "it does not start at 0")
    reads(trl.GRPOTrainer.training_step, "super().training_step(", "self._step += 1")
    expect(source(trl.GRPOTrainer).count("self._step +=") == 1, "it is also counted elsewhere")


@contract("trl", "GRPOTrainer._buffered_inputs")
def buffer_is_empty_at_first(name):
    import trl

    expect(tiny()._buffered_inputs is None, "it is not None before the first rollout")
    reads(trl.GRPOTrainer._prepare_inputs, "self._buffered_inputs[self._step %")


@contract("trl", "GRPOTrainer._tokenizer", "GRPOTrainer.num_generations")
def is_an_attribute(name):
    value = getattr(tiny(), name.partition(".")[2])
    expect(value == 2 or value.pad_token_id is not None, "not a tokenizer with a padding token")


@contract("trl", "GRPOTrainer._last_loaded_step")
def weights_are_synchronised_after_another_step(name):
    import trl

    lines = "self.state.global_step != self._last_loaded_step", ".sync_weights()"
    reads(trl.GRPOTrainer._generate_single_turn, *lines)


@contract("trl", "GRPOTrainer.reward_weights")
def one_weight_per_function(name):
    expect(tiny().reward_weights.tolist() == [1.0, 1.0], "it is not one weight per function")


@contract("trl", "GRPOTrainer.eos_token_ids")
def ends_are_the_generation_configs(name):
    import trl

    ends = tiny().model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    expect(set(ends) - {None} <= set(tiny().eos_token_ids), "not those of the model")
    reads(trl.GRPOTrainer.__init__, "model.generation_config.eos_token_id", "self.eos_token_ids =")


@contract("trl", "GRPOTrainer.get_train_dataloader")
def a_batch_is_a_rollout_in_data_order(name):
    prompts = [row["prompt"] for row in tiny().batch]
    expect(prompts == [prompt for prompt in PROMPTS for _ in range(2)], str(prompts))


@contract("trl", "GRPOTrainer.ref_model")
def reference_is_used_if_beta_is_not_zero(name):
    import trl

    reads(
        trl.GRPOTrainer.__init__,
        "self.beta = args.beta",
        "if self.beta == 0.0",
        f"{name[12:]} = None",
    )
    reads(
        trl.GRPOTrainer._generate_and_score_completions,
        "if self.beta != 0.0", "if self.ref_model is not None", "self.ref_model,", '"ref_per_token_logps"',
    )  # fmt: skip


@contract("trl", "trl.trainer.utils.add_fused_lm_head")
def head_has_our_arguments(name):
    import trl
    from trl.trainer.utils import add_fused_lm_head

    accepts(add_fused_lm_head, "model", "temperature", "cast_lm_head_to_fp32")
    reads(
        trl.GRPOTrainer.__init__, "add_fused_lm_head(\n                self.ref_model, temperature"
    )


@contract("trl", "GRPOTrainer.log")
def log_completes_and_hands_on(name):
    takes(attribute("trl", name), "logs", "start_time")


KEYS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "old_per_token_logps")


@contract("trl", *(f'rollout["{key}"]' for key in (*KEYS, "ref_per_token_logps")))
def rollout_has(name):
    value = tiny().rollout[name.split('"')[1]]
    expect(value.dim() == 2 and len(value) == 8, f"its shape is {tuple(value.shape)}")
    if "logps" in name:
        expect(value.shape == tiny().rollout["completion_ids"].shape, "not one per response token")


@contract("trl", 'rollout["sampling_per_token_logps"]')
def vllm_adds(name):
    import trl

    key = name.split('"')[1]
    reads(trl.GRPOTrainer._generate_and_score_completions, f'output["{key}"] = {key}')


LOSS = {"beta", "epsilon_low", "epsilon_high", "current_gradient_accumulation_steps"}


@contract("trl", "GRPOTrainer._compute_loss", *(f"GRPOTrainer.{name}" for name in sorted(LOSS)))
def loss_reads_what_the_kit_sets(name):
    import trl

    from stapo.conformance.trainers import RankAccelerator, Ranks, _inputs
    from stapo.conformance.trainers import __file__ as kit

    loss, mask = trl.GRPOTrainer._compute_loss, trl.GRPOTrainer.get_high_entropy_mask
    takes(loss, "model", "inputs")
    if name != "GRPOTrainer._compute_loss":
        reads(loss, f"self.{name.partition('.')[2]}")
        expect(
            f"trainer.{name.partition('.')[2]}" in Path(kit).read_text(), "the kit does not set it"
        )
        return
    keys = set(re.findall(r'inputs\["(\w+)"\]', source(loss)))
    given = set(re.findall(r'^        "(\w+)":', inspect.getsource(_inputs), re.MULTILINE))
    # Only used with tools, with vLLM's correction, and with mixtures of experts.
    unused = {"tool_mask", "importance_sampling_ratio", "gather_for_metrics"}
    expect(keys - unused <= given, f"it reads {sorted(keys - unused - given)}")
    expect("num_items_in_batch" in keys, "it has another divisor")
    used = set(re.findall(r"self\.accelerator\.(\w+)", source(loss) + source(mask)))
    stand_in = RankAccelerator(Ranks(1), 0)
    lacking = {one for one in used - unused if not hasattr(stand_in, one)}
    expect(not lacking, f"it uses the accelerator's {', '.join(sorted(lacking))}")


@contract("trl", "fused_lm_head", "FusedCausalLMOutput.log_probs", "FusedCausalLMOutput.entropy")
def fused_head_gives_log_probs(name):
    import torch

    ids = torch.tensor([[3, 4, 5, 6], [4, 5, 6, 7]])
    labels = ids.clone()
    labels[:, :2] = -100
    with torch.no_grad():
        model, reference = tiny().model, tiny().ref_model
        plain = model(input_ids=ids).logits[:, 1:-1].float().log_softmax(-1)
        found = model(input_ids=ids, labels=labels, fused_lm_head=True)
        expect(
            reference(input_ids=ids, labels=labels, fused_lm_head=True).entropy is None, "entropy"
        )
    if name != "FusedCausalLMOutput.entropy":
        wanted = plain.gather(-1, ids[:, 2:, None]).squeeze(-1)
        # Single precision, in another order of summation.
        expect(torch.allclose(found.log_probs[:, -2:], wanted, atol=1e-5), "other log-probs")
    if name != "FusedCausalLMOutput.log_probs":
        wanted = -(plain.exp() * plain).sum(-1)
        expect(torch.allclose(found.entropy[:, -2:], wanted, atol=1e-5), "other entropies")


@contract("trl", "base_model.last_hidden_state")
def fused_head_projects_the_last_hidden_states(name):
    import torch

    ids, states = torch.tensor([[3, 4, 5, 6]]), []
    with torch.no_grad():
        model = tiny().model
        hook = model.base_model.register_forward_hook(
            lambda _, __, output: states.append(output.last_hidden_state)
        )
        found = model(input_ids=ids, labels=ids, fused_lm_head=True).log_probs
        hook.remove()
        expect(len(states) == 1, f"{len(states)} passes through base_model")
        logits = torch.nn.functional.linear(states[0], model.get_output_embeddings().weight)
        wanted = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    expect(torch.allclose(found, wanted, atol=1e-5), "other hidden states")


@contract("trl", "shift_labels")
def fused_head_takes_shifted_labels(name):
    import torch

    ids = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        model = tiny().model
        usual = model(input_ids=ids, labels=ids, fused_lm_head=True).log_probs
        shifted = torch.tensor([[4, 5, 6, -100]])
        found = model(input_ids=ids, shift_labels=shifted, fused_lm_head=True).log_probs
    # Single precision, one row more in the product of matrices.
    near = torch.allclose(found[:, :3], usual, atol=1e-5)
    expect(near and found[0, 3] == 0, "other log-probs")


@contract("trl", "trl.trainer.utils.split_tensor_dict")
def splits_in_order(name):
    import torch
    from trl.trainer.utils import split_tensor_dict

    parts = split_tensor_dict({"a": torch.arange(4), "b": None}, 2)
    expect([part["a"].tolist() for part in parts] == [[0, 1], [2, 3]], "another order")
    expect(all(part["b"] is None for part in parts), "None does not stay None")


HEAD = (
    "_forward_kernel", "_backward_kernel", "_forward_tile", "_backward_tile", "_addmm_fp32", "_use_triton",
    "_BLOCK_SIZE", "OPTIONAL_OUTPUTS",
)  # fmt: skip


@contract("trl", *(f"trl.kernels.chunked_logprob.{name}" for name in HEAD))
def head_calls_its_kernels_as_ours_does(name):
    """The substitutes run in `test_head.py`; the kernels, which need a GPU, must be called alike."""
    from trl.kernels import chunked_logprob

    attribute("trl", name.removeprefix("trl."))
    by_blocks = "(n, triton.cdiv(end - start, _BLOCK_SIZE))"
    for direction, grid in {"forward": "(n,)", "backward": by_blocks}.items():
        function = getattr(chunked_logprob.ChunkedLogProbFunction, direction)
        reads(
            function,
            f"_{direction}_kernel[{grid}]",
            "tile,",
            "tile.stride(0),",
            "targets[",
            "start,",
        )
        kernel, tile = (
            getattr(chunked_logprob, f"_{direction}_{one}") for one in ("kernel", "tile")
        )
        # Triton keeps the function that it compiles.
        taken = [[*inspect.signature(getattr(f, "fn", f)).parameters] for f in (kernel, tile)]
        names = [[one.removesuffix("_ptr") for one in each] for each in taken]
        expect(len(names[0]) == len(names[1]), f"{names[0]}")
        expect(names[0][2:3] == names[1][2:3] and names[0][-8:] == names[1][-8:], f"{names[0]}")


@contract("trl", "trl.trainer.utils._ChunkedLogProbFunction")
def fused_head_looks_its_function_up(name):
    from trl.trainer.utils import add_fused_lm_head

    reads(add_fused_lm_head, "def _fused_forward(", "_ChunkedLogProbFunction.apply(", "outputs,")


@contract("trl", "GRPOConfig.generation_kwargs")
def own_sampling_settings_come_last(name):
    from trl.generation import vllm_client, vllm_generation

    reads(
        vllm_generation, "generation_kwargs = {", "generation_kwargs.update(self.generation_kwargs)"
    )
    reads(vllm_client, ".update(generation_kwargs or {})")


VLLM = ("vllm_generation", "vllm_mode", "vllm_tensor_parallel_size")


@contract("trl", *(f"GRPOTrainer.{name}" for name in VLLM))
def colocated_engine_gets_every_prompt(name):
    import trl
    from trl.generation import vllm_generation

    attributes = [f"self.{one} = " for one in ("vllm_mode", "vllm_tensor_parallel_size")]
    reads(trl.GRPOTrainer.__init__, *attributes, "self.vllm_generation = VLLMGeneration(")
    reads(vllm_generation, "self.llm = LLM(", "seed=accelerator.process_index //")
    # One prompt per response, of all ranks of the engine; `seeded` replaces the parameters.
    reads(
        vllm_generation.VLLMGeneration.generate, '"n": 1,', "all_prompts = [p for sublist in gathered",
        "self.llm.generate(vllm_prompts, sampling_params=sampling_params, use_tqdm=False)",
    )  # fmt: skip


@contract("trl", "/health")
def server_answers_there(name):
    from trl.generation.vllm_client import VLLMClient

    reads(VLLMClient, "{self.base_url}/health")


@contract("trl", "Requires-Dist: vllm")
def trl_names_the_versions_of_vllm(name):
    lines = [line for line in metadata.requires("trl") or [] if line.startswith("vllm")]
    expect(len(lines) == 1 and "<" in lines[0], f"found {lines}")
