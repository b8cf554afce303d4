"""Contracts for the names that training uses of Transformers, Accelerate and PyTorch."""

import inspect
from importlib import import_module
from types import SimpleNamespace

import pytest
from contracts import attribute, contract, expect, reads, takes
from contracts_trl import tiny

# Transformers


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
    if method == "_load_rng_state":  # It must be called last: our override also loads the rollout.
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
    reads(transformers.Trainer, "self._save_checkpoint(model, trial)")
    reads(
        save,
        "self._get_output_dir(",
        "os.path.join(run_dir, checkpoint_folder)",
        "save_total_limit",
    )
    args = SimpleNamespace(output_dir="elsewhere")
    where = transformers.Trainer._get_output_dir(
        SimpleNamespace(hp_search_backend=None, args=args), trial=None
    )
    expect(where == "elsewhere", "the directory is not taken from the settings")
    reads(save, 'f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"')
    expect(module.PREFIX_CHECKPOINT_DIR == "checkpoint", "checkpoints have another name")
    expect(
        module.TRAINER_STATE_NAME == "trainer_state.json", "the trainer's state has another name"
    )


@contract("transformers", "rng_state_RANK.pth")
def random_state_is_named_by_rank(name):
    import transformers

    from stapo.training.step_checkpoints import OF_A_RANK

    reads(transformers.Trainer._save_rng_state, 'f"rng_state_{self.args.process_index}.pth"')
    expect(OF_A_RANK.match("rng_state_3.pth"), "our pattern does not match it")


@contract("transformers", "Trainer.train")
def trains_from_a_path(name):
    takes(attribute("transformers", name), "resume_from_checkpoint")


@contract("transformers", 'logs["grad_norm"]', 'logs["learning_rate"]')
def logs_of_a_step_have(name):
    import transformers

    reads(transformers.Trainer._maybe_log_save_evaluate, f"{name} = ", "self.log(logs, start_time)")


@contract("transformers", "Trainer.is_fsdp_enabled")
def says_whether_sharded(name):
    expect(tiny().is_fsdp_enabled is False, "not False on one process")


@contract("transformers", "PreTrainedModel._supports_attention_backend")
def says_whether_arguments_reach_the_attention(name):
    from transformers import PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM

    known = (PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM)
    found = [one._supports_attention_backend for one in known]
    expect(found == [False, True, True], f"{found}")


@contract("transformers", "cu_seq_lens_q", "attention_mask")
def borders_and_mask_reach_the_attention(name):
    import torch
    from transformers import (
        AttentionInterface,
        AttentionMaskInterface,
        Qwen3Config,
        Qwen3ForCausalLM,
    )

    sizes = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
    widths = {"vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "head_dim": 8}
    given = {"cu_seq_lens_q": torch.tensor([0, 2, 3], dtype=torch.int32), "max_length_q": 2}
    mask, seen = torch.ones(1, 1, 1, 1), {}

    def attention(module, query, key, value, attention_mask, **arguments):
        seen.update(arguments, attention_mask=attention_mask)
        return value.transpose(1, 2), None

    AttentionInterface.register("contract", attention)
    AttentionMaskInterface.register("contract", AttentionMaskInterface()["sdpa"])
    model = Qwen3ForCausalLM(Qwen3Config(**sizes, **widths))
    model.set_attn_implementation("contract")
    model(input_ids=torch.tensor([[1, 2, 3]]), attention_mask=mask, **given)
    expect(seen["attention_mask"] is mask, "another mask")
    expect(all(seen[key] is value for key, value in given.items()), "other borders")


@contract("transformers", "Trainer.create_accelerator_and_postprocess")
def accelerator_comes_before_the_models(name):
    import transformers

    reads(transformers.Trainer.__init__, "self.create_accelerator_and_postprocess()")
    reads(
        transformers.Trainer.create_accelerator_and_postprocess, "self.accelerator = Accelerator("
    )


@contract("transformers", "PreTrainedConfig._attn_implementation")
def attention_has_a_name(name):
    model = tiny().model
    was = model.config._attn_implementation
    model.set_attn_implementation("eager")
    expect(model.config._attn_implementation == "eager", "it is not what the setter sets")
    model.set_attn_implementation(was)


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
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"?": 0, "<": 1, "e": 2, ">": 3, "<e>": 4}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", eos_token="<e>")
    special = {str(one) for one in tokenizer.added_tokens_decoder.values() if one.special}
    expect("<e>" in special, f"special tokens are {special}")

    def ids(split: bool) -> list[int]:
        return tokenizer.encode("<e>", add_special_tokens=False, split_special_tokens=split)

    expect((ids(False), ids(True)) == ([4], [1, 2, 3]), f"{ids(False)} and {ids(True)}")


# Accelerate


@contract("accelerate", "ACCELERATE_TORCH_DEVICE")
def device_comes_from_the_environment(name):
    from accelerate import PartialState

    reads(PartialState.__init__, f'os.environ.get("{name}"', "torch.device(env_device)")


@contract(
    "accelerate", "fsdp_plugin.mixed_precision_policy", "accelerate.utils.fsdp2_prepare_model"
)
def models_are_sharded_as_the_plugin_says(name):
    from accelerate import Accelerator
    from accelerate.utils import fsdp2_prepare_model

    takes(fsdp2_prepare_model, "accelerator", "model")
    reads(
        fsdp2_prepare_model, '"mp_policy": fsdp2_plugin.mixed_precision_policy',
        "if param.requires_grad and param.dtype != torch.float32", "fully_shard(module, **fsdp2_kwargs)",
    )  # fmt: skip
    reads(Accelerator, "model = fsdp2_prepare_model(self, model)")


@contract("accelerate", "accelerate.commands.accelerate_cli")
def launcher_is_a_module(name):
    from stapo.training.launch import RENDEZVOUS, accelerate_command

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
    expect(not isinstance(error, Exception), "it is an Exception now; `except Exception` is enough")
    expect(isinstance(error.failures[1][0], OSError), "it does not contain the cause")


@contract("torch", "__RANK_")
def shards_are_named_by_rank(name):
    from torch.distributed.checkpoint import FileSystemWriter, SavePlan

    from stapo.training.step_checkpoints import OF_A_RANK

    plans = FileSystemWriter("never written").prepare_global_plan([SavePlan([]), SavePlan([])])
    names = [OF_A_RANK.match(plan.storage_data.prefix) for plan in plans]
    expect([found and found[1] for found in names] == ["0", "1"], "our pattern does not match them")


@contract("torch", "torch.distributed.fsdp.FSDPModule")
def sharded_modules_reshard(name):
    from torch.distributed.fsdp import FSDPModule

    takes(FSDPModule.reshard)


@contract("torch", "torch.nn.attention.varlen.varlen_attn")
def kernel_takes_borders_and_grouped_queries(name):
    varlen = import_module("torch.nn.attention.varlen")
    taken = [*inspect.signature(varlen.varlen_attn).parameters]
    first = ["query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k"]
    expect(taken[:7] == first, f"{taken}")
    expect({"scale", "window_size", "enable_gqa"} <= set(taken), f"{taken}")


@contract("torch", "inline_container.cc")
def full_disk_is_said_so(name):
    import torch

    try:
        torch.save({"weights": torch.zeros(2**20)}, "/dev/full")
    except RuntimeError as error:
        expect(name in str(error) or "file write failed" in str(error), f"it says: {error}")
    else:
        raise LookupError("writing to a full device raises no error")
