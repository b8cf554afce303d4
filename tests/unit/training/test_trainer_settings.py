"""StapoTrainer uses a setting or refuses it, and methods take the settings that a study may give them."""

import pickle
from dataclasses import fields, replace

import pytest
from datasets import Dataset
from transformers import HfArgumentParser
from trl import GRPOConfig

from stapo.methods import METHODS, STAPO
from stapo.models.loading import load_tokenizer
from stapo.models.tiny import build_tiny
from stapo.repository import STUDIES
from stapo.study import StudyError
from stapo.study.method_settings import MethodSettings
from stapo.study.reading import read_study
from stapo.study.sources import TinyModel
from stapo.training.config import StapoConfig, check, method_of
from stapo.training.trainer import StapoTrainer
from stapo.training.unused import UNUSED

CPU = {"use_cpu": True, "bf16": False}

TEXT = """
    model_init_kwargs trust_remote_code disable_dropout cast_lm_head_to_fp32 use_liger_kernel
    liger_kernel_config use_cache neftune_noise_alpha torch_compile torch_compile_backend torch_compile_mode
    gradient_checkpointing gradient_checkpointing_kwargs bf16 tf32 use_cpu full_determinism seed

    num_generations max_completion_length shuffle_dataset remove_unused_columns generation_batch_size
    steps_per_generation temperature top_p top_k min_p generation_kwargs chat_template_kwargs
    repetition_penalty cache_implementation reward_weights mask_truncated_completions
    use_transformers_continuous_batching transformers_continuous_batching_config use_transformers_paged
    use_vllm vllm_mode vllm_model_impl vllm_enable_sleep_mode vllm_structured_outputs_regex
    vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout vllm_group_port
    vllm_gpu_memory_utilization vllm_max_model_length vllm_tensor_parallel_size

    per_device_train_batch_size num_train_epochs max_steps learning_rate lr_scheduler_type
    lr_scheduler_kwargs warmup_steps optim optim_args optim_target_modules weight_decay adam_beta1
    adam_beta2 adam_epsilon max_grad_norm

    output_dir logging_strategy logging_steps logging_first_step log_on_each_node logging_nan_inf_filter
    log_level log_level_replica disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id
    trackio_static_space_id log_completions log_multimodal num_completions_to_print log_unique_prompts
    log_completions_hub_repo skip_memory_metrics debug

    eval_strategy eval_steps eval_delay eval_on_start per_device_eval_batch_size num_generations_eval
    metric_for_best_model greater_is_better fp16_full_eval bf16_full_eval

    save_strategy save_steps save_total_limit restore_callback_states_from_checkpoint ignore_data_skip
    hub_token hub_private_repo hub_model_id hub_revision

    accelerator_config dataloader_drop_last dataloader_num_workers dataloader_pin_memory
    dataloader_persistent_workers dataloader_prefetch_factor dataloader_multiprocessing_context
    dataloader_in_order ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers
    ddp_static_graph ddp_backend ddp_timeout fsdp fsdp_config
"""
USED = set(TEXT.split())
"""What has the effect that it has in GRPOTrainer; in evaluation on rewards, while the loss there is TRL's."""

HARMLESS = {
    "auto_find_batch_size": "refused by TRL",
    "do_train": "read by scripts only",
    "do_eval": "follows eval_strategy",
    "do_predict": "read by scripts only",
    "resume_from_checkpoint": "read by scripts only; an argument of train()",
    "local_rank": "set by the launcher",
    "include_num_input_tokens_seen": "TRL counts them itself",
    "length_column_name": "for train_sampling_strategy, which is refused",
    "label_names": "no trainer of TRL's GRPO reads labels",
    "prediction_loss_only": "GRPOTrainer returns nothing but a loss",
    "eval_do_concat_batches": "GRPOTrainer returns nothing but a loss",
    "eval_use_gather_object": "GRPOTrainer returns nothing but a loss",
    "eval_accumulation_steps": "GRPOTrainer returns nothing but a loss",
    "include_for_metrics": "GRPOTrainer takes no compute_metrics",
    "batch_eval_metrics": "GRPOTrainer takes no compute_metrics",
    "hub_strategy": "for push_to_hub, which is refused",
    "hub_always_push": "for push_to_hub, which is refused",
}
"""What has no effect in GRPOTrainer either -> why."""


@pytest.fixture
def config(tmp_path):
    return StapoConfig(str(tmp_path), **CPU)


def test_every_setting_of_trl_is_used_refused_or_harmless():
    """A new version's new setting belongs into one of the three, after a look at what it does."""
    names = {one.name for one in fields(GRPOConfig)}
    assert names == USED | set(HARMLESS) | set(UNUSED)
    assert len(names) == len(USED) + len(HARMLESS) + len(UNUSED)


@pytest.mark.parametrize("name", UNUSED)
def test_a_setting_that_would_be_ignored_is_refused_with_what_to_set(config, name):
    setattr(config, name, 7)  # The default of none of them.
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        check(config)
    assert str(refused.value) == f"{name}: not used by StapoTrainer; {UNUSED[name]}"


def test_all_of_them_at_once_when_the_settings_are_made(tmp_path):
    with pytest.raises(ValueError, match=r"epsilon_high: .*set clip_high") as refused:
        StapoConfig(
            str(tmp_path), **CPU, beta=0.04, epsilon_high=0.28, scale_rewards="batch", tau_p=1.5,
            statistics="old", micro_batch_tokens=0,
        )  # fmt: skip
    assert [line.partition(":")[0] for line in str(refused.value).splitlines()] == [
        "beta", "epsilon_high", "scale_rewards", "tau_p", "micro_batch_tokens", "statistics",
    ]  # fmt: skip


def test_what_the_names_of_replacements_promise_exists():
    """Where a message says `set NAME`, there is such a setting."""
    names = {one.name for one in fields(StapoConfig)} - set(UNUSED)
    for text in UNUSED.values():
        said = [part.split()[0].split("=")[0].rstrip(",;") for part in text.split("set ")[1:]]
        assert not [name for name in said if name.islower() and name not in names], text


def test_values_that_say_what_is_done_anyway_are_accepted(tmp_path):
    same = {
        "scale_rewards": True, "use_bias_correction_kl": False, "vllm_importance_sampling_correction": False,
        "pad_to_multiple_of": None, "router_aux_loss_coef": 0.0,
    }  # fmt: skip
    StapoConfig(str(tmp_path), **CPU, **same)


@pytest.mark.parametrize("optimiser", ["lomo", "adalomo", "schedule_free_adamw"])
def test_optimisers_with_a_training_step_of_their_own_are_refused(tmp_path, optimiser):
    with pytest.raises(ValueError, match=f"optim: {optimiser} needs a training step"):
        StapoConfig(str(tmp_path), **CPU, optim=optimiser)


def test_deepspeed_by_the_launcher_is_refused(config):
    config.deepspeed_plugin = object()
    with pytest.raises(ValueError, match=r"deepspeed: asked for by the launcher; .*use FSDP2"):
        check(config)


# Settings of the method


def test_whatever_a_study_may_set_in_a_method_is_a_setting():
    elsewhere = {"base", "title", "training", "selection", "selection_args", "selection_sha256"}
    settings = set(MethodSettings.model_fields) - elsewhere
    assert settings <= {one.name for one in fields(StapoConfig)}
    assert {"tau_p", "quantile", "scope", "fraction", "clip_low", "dual_clip"} <= settings


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("stapo", {"tau_p": 0.01, "quantile": 0.5}),
        ("stapo-v2", {"scope": "candidates", "clip_high": 0.3}),
        ("20-entropy", {"fraction": 0.1, "dual_clip": 10.0}),
        ("grpo", {"kl_coefficient": 0.001, "clip_low": 0.1, "aggregation": "token_mean"}),
        ("justrl", {}),
    ],
)
def test_a_method_is_that_of_a_study_with_the_same_settings(tmp_path, name, given):
    study = read_study(STUDIES / "smoke.yaml", changes={"methods": {name: given}})
    found = method_of(StapoConfig(str(tmp_path), **CPU, method=name, **given))
    assert found == replace(study.method(name), dual_clip=given.get("dual_clip"))
    assert method_of(StapoConfig(str(tmp_path), **CPU, method=name)) == METHODS[name]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("stapo", {"tau_p": 2}),
        ("stapo", {"quantile": float("nan")}),
        ("stapo", {"scope": "everything", "clip_high": -1}),
        ("stapo", {"aggregation": "mean"}),
        ("stapo", {"fraction": 0.1}),
        ("justrl", {"tau_p": 0.1}),
        ("grpo", {"dual_clip": 1}),
    ],
)
def test_wrong_values_are_refused_in_the_words_of_a_study(tmp_path, name, wrong):
    with pytest.raises(StudyError) as of_study:
        read_study(STUDIES / "smoke.yaml", changes={"methods": {name: wrong}})
    with pytest.raises(ValueError) as of_config:  # noqa: PT011
        StapoConfig(str(tmp_path), **CPU, method=name, **wrong)
    words = [line.removeprefix(f"methods.{name}.") for line in of_study.value.errors]
    assert str(of_config.value).splitlines() == [line.removesuffix(" (--config)") for line in words]


def test_unknown_names_are_refused_with_a_suggestion(tmp_path):
    with pytest.raises(TypeError) as unknown:
        StapoConfig(str(tmp_path), **CPU, taup=0.1, quantil=0.5, zzz=1)
    assert str(unknown.value).splitlines() == [
        "taup: unknown setting; did you mean tau_p?",
        "quantil: unknown setting; did you mean quantile?",
        "zzz: unknown setting",
    ]
    with pytest.raises(
        ValueError, match=r"^method: unknown method 'stapoo'; did you mean stapo\?$"
    ):
        StapoConfig(str(tmp_path), **CPU, method="stapoo")
    with pytest.raises(ValueError, match="method: unknown method '3'; choose from grpo, "):
        StapoConfig(str(tmp_path), **CPU, method=3)


def test_it_prints_what_was_set_and_no_secret(tmp_path):
    config = StapoConfig("out", **CPU, method="stapo", tau_p=0.01, beta=0.0, hub_token="hf_secret")
    said = "output_dir='out', bf16=False, hub_token='***', use_cpu=True, tau_p=0.01"
    assert repr(config) == str(config) == f"StapoConfig({said})"
    assert pickle.loads(pickle.dumps(config)) == config
    assert repr(pickle.loads(pickle.dumps(config))) == repr(config)


def test_the_command_line_of_transformers_reads_it(tmp_path):
    words = ["--output_dir", str(tmp_path), "--use_cpu", "--bf16", "no", "--scope", "all"]
    (config,) = HfArgumentParser(StapoConfig).parse_args_into_dataclasses(
        [*words, "--tau_p", "0.1", "--aggregation", "sequence_mean"]
    )
    found = method_of(config)
    assert found.selection_args == {"tau_p": 0.1, "quantile": 0.75, "scope": "all"}
    assert found.aggregation == "sequence_mean"


# In the trainer


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    settings = TinyModel(builder="tiny-arithmetic", supervised_steps=5, hidden_size=32)
    path = tmp_path_factory.mktemp("base")
    build_tiny(settings, path)
    return path


def trainer(base, config, reward=None, **named):
    def by_length(completions, **_):
        return [float(len(one) % 3) for one in completions]

    return StapoTrainer(
        str(base), reward or by_length, config, Dataset.from_list([{"prompt": "1+2?"}] * 8),
        processing_class=load_tokenizer(base), **named,
    )  # fmt: skip


SMALL = {
    "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 6, "max_steps": 1,
    "learning_rate": 1e-3, "logging_steps": 1, "save_strategy": "no", "gradient_checkpointing": False,
    "report_to": "none",
}  # fmt: skip


def test_the_trainer_trains_the_method_of_its_settings(base, tmp_path):
    records = []
    config = StapoConfig(str(tmp_path), **CPU, **SMALL, tau_p=0.9, quantile=0.9)
    one = trainer(base, config, on_metrics=records.append)
    assert one.method.selection_args == {"tau_p": 0.9, "quantile": 0.9, "scope": "candidates"}
    one.train()
    assert records[0].num_candidates > records[0].num_silenced > 0
    grpo = StapoConfig(str(tmp_path), **CPU, **SMALL, method="grpo", kl_coefficient=0.5)
    for _ in range(2):  # A second trainer takes the same settings.
        assert trainer(base, grpo).beta == 0.5


def test_it_refuses_what_was_changed_afterwards_and_what_is_no_config(base, tmp_path):
    config = StapoConfig(str(tmp_path), **CPU, **SMALL, tau_p=0.1)
    with pytest.raises(ValueError, match=r"^tau_p: set them in the method itself"):
        trainer(base, config, method=STAPO)
    config.epsilon = 0.1
    with pytest.raises(ValueError, match="epsilon: not used by StapoTrainer; set clip_low"):
        trainer(base, config)
    with pytest.raises(TypeError, match="args: expected a StapoConfig, found GRPOConfig"):
        trainer(base, GRPOConfig(str(tmp_path), **CPU))


def test_weight_decay_is_that_of_transformers_or_of_all_parameters_as_in_verl(base, tmp_path):
    decaying = {}
    for decayed in ("matrices", "all"):
        config = StapoConfig(str(tmp_path), **CPU, **SMALL, weight_decay=0.1, decayed=decayed)
        groups = trainer(base, config).create_optimizer().param_groups
        decaying[decayed] = [
            p.ndim for group in groups if group["weight_decay"] for p in group["params"]
        ]
    assert {*decaying["matrices"]} == {2}
    norms = decaying["all"].count(1)
    assert norms > 0
    assert len(decaying["all"]) == len(decaying["matrices"]) + norms


def test_truncated_completions_are_masked_if_asked(base, tmp_path):
    numbers = []
    for masked in (False, True):
        config = StapoConfig(str(tmp_path), **CPU, **SMALL, mask_truncated_completions=masked)
        trainer(base, config, on_metrics=numbers.append).train()
    whole, without = numbers
    assert whole.truncated_fraction > 0
    truncated = round(whole.truncated_fraction * 8)
    assert whole.num_tokens - without.num_tokens == 6 * truncated


def test_rewards_are_evaluated(base, tmp_path):
    config = StapoConfig(
        str(tmp_path),
        **CPU,
        **SMALL,
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=4,
    )
    one = trainer(base, config, eval_dataset=Dataset.from_list([{"prompt": "3+4?"}] * 2))
    one.train()
    assert [entry["eval_reward"] for entry in one.state.log_history if "eval_reward" in entry]


def test_a_rollout_with_more_than_text_is_refused(base, tmp_path, monkeypatch):
    from trl import GRPOTrainer

    made = GRPOTrainer._generate_and_score_completions

    def with_tools(self, inputs):
        return {**made(self, inputs), "tool_mask": None}

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", with_tools)
    with pytest.raises(ValueError, match=r"no update with tools, .*; the rollout has tool_mask"):
        trainer(base, StapoConfig(str(tmp_path), **CPU, **SMALL)).train()
