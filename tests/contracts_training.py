"""Contracts about what training uses of TRL, Transformers, Accelerate and PyTorch."""

import inspect
import re
import sys
import tempfile
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from contracts import attribute, contract, expect, reads, source, takes

# TRL


@cache
def tiny() -> Any:
    """Return a real GRPOTrainer that has made one rollout, with what it called on the way in `.calls`."""
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
    path = tempfile.mkdtemp()
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1, "tie_word_embeddings": True}
    Qwen3ForCausalLM(Qwen3Config(vocab_size=len(VOCABULARY), **sizes, **heads)).save_pretrained(
        path
    )
    trainer = kind(
        model=path,  # A path: TRL loads the reference model from it.
        reward_funcs=[
            lambda completions, **_: [float(i) for i in range(len(completions))],
            lambda completion_ids, **_: [float(len(ids)) for ids in completion_ids],
        ],
        args=GRPOConfig(
            output_dir=path, per_device_train_batch_size=4, num_generations=2, steps_per_generation=2,
            gradient_accumulation_steps=1, max_completion_length=3, beta=0.1, use_cpu=True, bf16=False,
            report_to="none", shuffle_dataset=False, remove_unused_columns=False, disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["1+1=", "2+2=", "3+3=", "4+4="]}),
        processing_class=build_tokenizer(),
    )  # fmt: skip
    trainer.model.train()
    trainer.calls, trainer.batch = calls, next(iter(trainer.get_train_dataloader()))
    trainer.rollout = trainer._generate_and_score_completions(trainer.batch)
    return trainer


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
        expect(len(args) == 1 and not named and isinstance(result, tuple), "called otherwise")
    elif method == "_calculate_rewards":
        ((args, named, result),) = found
        expect(result.shape == (8, 2) and not named, "not (responses of all ranks, functions)")
    elif method == "_get_per_token_logps_and_entropies":
        models = [args[0] for args, _, _ in found]
        expect(models[0] is tiny().model and tiny().ref_model in models, "of other models")
        expect(all(len(args) == 4 and len(result) == 3 for args, _, result in found), "no 3-tuple")


@contract("trl", "GRPOTrainer.training_step", "GRPOTrainer._step")
def only_training_step_counts(name):
    import trl

    attribute("trl", "GRPOTrainer.training_step")
    expect(tiny()._step == 0, "it does not begin at 0")
    reads(trl.GRPOTrainer.training_step, "super().training_step(", "self._step += 1")
    expect(source(trl.GRPOTrainer).count("self._step +=") == 1, "it is counted elsewhere, too")


@contract("trl", "GRPOTrainer._buffered_inputs")
def buffer_is_empty_at_first(name):
    import trl

    expect(tiny()._buffered_inputs is None, "it is not None before the first rollout")
    reads(trl.GRPOTrainer._prepare_inputs, "self._buffered_inputs[self._step %")


@contract("trl", "GRPOTrainer._tokenizer", "GRPOTrainer.num_generations")
def is_an_attribute(name):
    value = getattr(tiny(), name.partition(".")[2])
    expect(value == 2 or value.pad_token_id is not None, "no tokenizer with a token for padding")


@contract("trl", "GRPOTrainer.reward_weights")
def one_weight_per_function(name):
    expect(tiny().reward_weights.tolist() == [1.0, 1.0], "it is not one weight per function")


@contract("trl", "GRPOTrainer.eos_token_ids")
def ends_are_the_generation_configs(name):
    import trl

    ends = tiny().model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    expect(set(ends) - {None} <= set(tiny().eos_token_ids), "not what the model declares")
    reads(trl.GRPOTrainer.__init__, "model.generation_config.eos_token_id", "self.eos_token_ids =")


@contract("trl", "GRPOTrainer.get_train_dataloader")
def a_batch_is_a_rollout_in_data_order(name):
    prompts = [row["prompt"] for row in tiny().batch]
    expect(prompts == [p for p in ("1+1=", "2+2=", "3+3=", "4+4=") for _ in range(2)], str(prompts))


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
    from stapo.conformance.trainers import RankAccelerator, Ranks, _inputs
    from stapo.conformance.trainers import __file__ as kit

    import trl

    loss, mask = trl.GRPOTrainer._compute_loss, trl.GRPOTrainer.get_high_entropy_mask
    takes(loss, "model", "inputs")
    if name != "GRPOTrainer._compute_loss":
        reads(loss, f"self.{name.partition('.')[2]}")
        expect(f"trainer.{name.partition('.')[2]}" in Path(kit).read_text(), "the kit sets it not")
        return
    keys = set(re.findall(r'inputs\["(\w+)"\]', source(loss)))
    given = set(re.findall(r'^        "(\w+)":', inspect.getsource(_inputs), re.MULTILINE))
    # Of tools, of vLLM's correction and of mixtures of experts.
    unused = {"tool_mask", "importance_sampling_ratio", "gather_for_metrics"}
    expect(keys - unused <= given, f"it reads {sorted(keys - unused - given)}")
    expect("num_items_in_batch" in keys, "its divisor is another one")
    used = set(re.findall(r"self\.accelerator\.(\w+)", source(loss) + source(mask)))
    stand_in = RankAccelerator(Ranks(1), 0)
    lacking = {one for one in used - unused if not hasattr(stand_in, one)}
    expect(not lacking, f"it asks the accelerator for {', '.join(sorted(lacking))}")


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
        # Single precision, summed in another order.
        expect(torch.allclose(found.log_probs[:, -2:], wanted, atol=1e-5), "other log-probs")
    if name != "FusedCausalLMOutput.log_probs":
        wanted = -(plain.exp() * plain).sum(-1)
        expect(torch.allclose(found.entropy[:, -2:], wanted, atol=1e-5), "other entropies")


@contract("trl", "trl.trainer.utils.split_tensor_dict")
def splits_in_order(name):
    import torch
    from trl.trainer.utils import split_tensor_dict

    parts = split_tensor_dict({"a": torch.arange(4), "b": None}, 2)
    expect([part["a"].tolist() for part in parts] == [[0, 1], [2, 3]], "another order")
    expect(all(part["b"] is None for part in parts), "None does not stay None")


@contract("trl", "trl.kernels.chunked_logprob.TOKEN_CHUNK_SIZE")
def chunk_is_what_the_estimate_says(name):
    from stapo.operations.memory import LOGIT_TOKENS

    import_module("trl.kernels.chunked_logprob")
    found = attribute("trl", name.removeprefix("trl."))
    expect(found == LOGIT_TOKENS, f"{found}, our copy is {LOGIT_TOKENS}")


@contract("trl", "GRPOConfig.generation_kwargs")
def own_sampling_settings_come_last(name):
    from trl.generation import vllm_client, vllm_generation

    reads(vllm_generation, "generation_kwargs = {", "generation_kwargs.update(self.generation_kwargs)")
    reads(vllm_client, ".update(generation_kwargs or {})")


@contract("trl", "/health")
def server_answers_there(name):
    from trl.generation.vllm_client import VLLMClient

    reads(VLLMClient, "{self.base_url}/health")


@contract("trl", "Requires-Dist: vllm")
def trl_names_the_versions_of_vllm(name):
    lines = [line for line in metadata.requires("trl") or [] if line.startswith("vllm")]
    expect(len(lines) == 1 and "<" in lines[0], f"found {lines}")


# Transformers and Accelerate


LOADED = {
    "_load_from_checkpoint": ("resume_from_checkpoint", "model"),
    "_load_optimizer_and_scheduler": ("checkpoint",),
    "_load_rng_state": ("checkpoint",),
}


@contract("transformers", *(f"Trainer.{name}" for name in LOADED))
def is_called_on_resuming(name):
    import transformers
    import trl

    method = name.partition(".")[2]
    takes(attribute("transformers", name), *LOADED[method])
    takes(getattr(trl.GRPOTrainer, method), *LOADED[method])
    reads(transformers.Trainer, f"self.{method}(")
    if method == "_load_rng_state":  # What is loaded last: our rollout is loaded with it.
        reads(transformers.Trainer, "self._load_optimizer_and_scheduler(", "self._load_rng_state(")
        reads(transformers.Trainer, "self._load_rng_state(", "self.training_step(")


@contract("transformers", "Trainer.training_step", "Trainer._get_grad_norm")
def comes_before_the_weights_change(name):
    import transformers

    takes(transformers.Trainer.training_step, "model", "inputs", "num_items_in_batch")
    takes(transformers.Trainer._get_grad_norm, "model", "grad_norm")
    reads(
        transformers.Trainer, "self.training_step(model, inputs, num_items_in_batch)",
        "self._get_grad_norm(model, grad_norm=grad_norm)", "self.optimizer.step()",
    )  # fmt: skip


@contract("transformers", "Trainer._save_checkpoint", "checkpoint-STEP", "trainer_state.json")
def checkpoints_go_to_the_output_directory(name):
    import transformers
    from transformers import trainer as module

    save = transformers.Trainer._save_checkpoint
    takes(save, "model", "trial")
    reads(save, "self._get_output_dir(", "os.path.join(run_dir, checkpoint_folder)", "save_total_limit")
    args = SimpleNamespace(output_dir="elsewhere")
    where = transformers.Trainer._get_output_dir(
        SimpleNamespace(hp_search_backend=None, args=args), trial=None
    )
    expect(where == "elsewhere", "the directory is not taken from the settings")
    reads(save, 'f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"')
    expect(module.PREFIX_CHECKPOINT_DIR == "checkpoint", "checkpoints have another name")
    expect(module.TRAINER_STATE_NAME == "trainer_state.json", "its record has another name")


@contract("transformers", "rng_state_RANK.pth")
def random_state_is_named_by_rank(name):
    import transformers

    from stapo.training.checkpoints import OF_A_RANK

    reads(transformers.Trainer._save_rng_state, 'f"rng_state_{self.args.process_index}.pth"')
    expect(OF_A_RANK.match("rng_state_3.pth"), "our pattern misses it")


@contract("transformers", "Trainer.train")
def trains_from_a_path(name):
    takes(attribute("transformers", name), "resume_from_checkpoint")


@contract("transformers", 'logs["grad_norm"]', 'logs["learning_rate"]')
def logs_of_a_step_have(name):
    import transformers

    reads(transformers.Trainer._maybe_log_save_evaluate, f'{name} = ', "self.log(logs, start_time)")


@contract("transformers", "Trainer.is_fsdp_enabled")
def says_whether_sharded(name):
    expect(tiny().is_fsdp_enabled is False, "not False on one process")


@contract("transformers", "PreTrainedModel._tied_weights_keys")
def tied_names_are_keys(name):
    tied = tiny().model._tied_weights_keys
    expect("lm_head.weight" in tied and "model.embed_tokens.weight" not in tied, str(tied))
    names = set(tiny().model.state_dict())
    expect("lm_head.weight" in names, "the names are not those of the state")


@contract("transformers", "trust_remote_code")
def error_names_the_option(name):
    from transformers.dynamic_module_utils import resolve_trust_remote_code

    with pytest.raises(ValueError, match="trust_remote_code"):
        resolve_trust_remote_code(False, "model", has_local_code=False, has_remote_code=True)


@contract("transformers", "split_special_tokens", "added_tokens_decoder")
def special_tokens_can_be_split(name):
    tokenizer = tiny().processing_class
    special = {str(t) for t in tokenizer.added_tokens_decoder.values() if t.special}
    expect("<eos>" in special, f"special tokens are {special}")
    whole, split = (
        tokenizer.encode("<eos>", add_special_tokens=False, split_special_tokens=split)
        for split in (False, True)
    )
    expect(whole == [tokenizer.eos_token_id], "an end token in a text is no end token")
    expect(tokenizer.split_special_tokens is False and split is not None, "it stays switched on")


@contract("accelerate", "ACCELERATE_TORCH_DEVICE")
def device_comes_from_the_environment(name):
    from accelerate import PartialState

    reads(PartialState.__init__, f'os.environ.get("{name}"', "torch.device(env_device)")


@contract("accelerate", "accelerate.commands.accelerate_cli")
def launcher_is_a_module(name):
    from stapo.operations.launch import RENDEZVOUS, accelerate_command

    there = {RENDEZVOUS: "host:1", "SLURM_NODEID": "0"}
    command = accelerate_command(["train"], 16, 2, there)
    expect(command[1:4] == ["-m", name, "launch"], "it is not what we start")
    reads(import_module(name), "def main()", 'if __name__ == "__main__"')
    from accelerate.commands.launch import launch_command_parser

    found = launch_command_parser().parse_args(command[4:])
    expect((found.num_processes, found.machine_rank, found.module) == (16, 0, True), str(found))


# PyTorch


@contract("torch", "torch.distributed.checkpoint.api.CheckpointException")
def is_no_exception_and_has_causes(name):
    module, _, kind = name.rpartition(".")
    error = getattr(import_module(module), kind)("text", {1: (OSError("cause"), None)})
    expect(not isinstance(error, Exception), "it is an Exception: `except Exception` would do")
    expect(isinstance(error.failures[1][0], OSError), "it does not say what failed")


@contract("torch", "__RANK_")
def shards_are_named_by_rank(name):
    from torch.distributed.checkpoint import FileSystemWriter, SavePlan

    from stapo.training.checkpoints import OF_A_RANK

    plans = FileSystemWriter(tempfile.mkdtemp()).prepare_global_plan([SavePlan([]), SavePlan([])])
    names = [OF_A_RANK.match(plan.storage_data.prefix) for plan in plans]
    expect([found and found[1] for found in names] == ["0", "1"], "our pattern misses them")


@contract("torch", "inline_container.cc")
def full_disk_is_said_so(name):
    import torch

    try:
        torch.save({"weights": torch.zeros(2**20)}, "/dev/full")
    except RuntimeError as error:
        expect(name in str(error) or "file write failed" in str(error), f"it says: {error}")
    else:
        raise LookupError("a full device raises nothing")
