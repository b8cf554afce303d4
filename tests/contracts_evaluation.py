"""Contracts for the names that grading, evaluation, the workflow and the command line use."""

import tempfile
from copy import copy
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from contracts import PYTHON, accepts, attribute, contract, expect, reads, takes

# Grading


@contract("sympy", "sympy.core.cache.clear_cache", "sympy.core.random.seed")
def starts_from_the_same_state(name):
    module, _, function = name.rpartition(".")
    forget = getattr(import_module(module), function)
    if function == "seed":
        random = import_module(module)
        forget(0)
        first = random.random()
        forget(0)
        expect(random.random() == first, "the same seed gives another number")
    else:
        import sympy

        sympy.sin(sympy.Symbol("forgotten"))
        forget()
        info = sympy.sin.__new__.cache_info()
        expect(info.currsize == 0, "the cache is not empty")


# Evaluation, data, workflow


@contract("lm-eval", "lm_eval.tasks.TaskManager.load", "Task.set_config", "Task.test_docs")
def loads_a_task_of_ours(name):
    from lm_eval.tasks import TaskManager

    from stapo.repository import BENCHMARKS

    task_name = "stapo_chain-2"
    manager = TaskManager(include_path=str(BENCHMARKS), include_defaults=False)
    task = manager.load([task_name])["tasks"][task_name]
    task.set_config(key="repeats", value=7)
    expect(task.config.repeats == 7, "the number of samples cannot be set")
    rows = list(task.test_docs())
    expect(len(rows) == 100 and task.doc_to_text(rows[0]) == rows[0]["question"], "other rows")
    expect(str(task.doc_to_target(rows[0])) == rows[0]["answer"], "other golds")


@contract("lm-eval", "lm_eval.api.model.LM")
def models_are_asked_so(name):
    from lm_eval.api.model import LM

    wanted = {"generate_until", "loglikelihood", "loglikelihood_rolling"}
    expect(wanted >= LM.__abstractmethods__, f"abstract are {sorted(LM.__abstractmethods__)}")
    for method in wanted:
        takes(getattr(LM, method), "requests")


@contract("lm-eval", "Instance.doc_id")
def request_says_its_row(name):
    from lm_eval.api.instance import Instance

    request = Instance("generate_until", {}, ("text", {}), 0, metadata=("task", 3, 2))
    expect(request.doc_id == 3, f"it is {request.doc_id}")


@contract("lm-eval", "lm_eval.evaluator.evaluate", 'results["METRIC,FILTER"]')
def metric_is_named_with_its_filter(name):
    from lm_eval import evaluator_utils
    from lm_eval.evaluator import evaluate

    accepts(evaluate, "lm", "task_dict", "bootstrap_iters")
    reads(evaluator_utils, 'f"{metric},{filter_key}"')


@contract("datasets", "HF_DATASETS_OFFLINE")
def datasets_stays_offline(name):
    import datasets.config

    reads(datasets.config, f'os.environ.get("{name}")')


@contract("huggingface-hub", *(f"constants.{n}" for n in ("HF_HUB_OFFLINE", "HF_HOME", "ENDPOINT")))
def hub_has_the_constant(name):
    value = attribute("huggingface_hub", name)
    expect(isinstance(value, bool if "OFFLINE" in name else str), f"it is {value!r}")


@contract("huggingface-hub", "LocalEntryNotFoundError")
def missing_in_the_cache_is_a_missing_file(name):
    from huggingface_hub.errors import LocalEntryNotFoundError

    expect(issubclass(LocalEntryNotFoundError, FileNotFoundError), "it is not a FileNotFoundError")


@contract("huggingface-hub", "snapshots/COMMIT")
def snapshot_is_named_by_its_commit(name):
    from huggingface_hub import snapshot_download

    commit = "a" * 40
    with tempfile.TemporaryDirectory() as root:
        cache = Path(root) / "models--own--model"
        (cache / "snapshots" / commit).mkdir(parents=True)
        (cache / "refs").mkdir()
        (cache / "refs" / "main").write_text(commit)
        found = snapshot_download("own/model", cache_dir=root, local_files_only=True)
    expect(Path(found).name == commit, f"it is {found}")


@contract(
    "snakemake",
    "workflow.overwrite_configfiles",
    "workflow.config_settings",
    "workflow.resource_settings",
    "workflow.is_main_process",
    "workflow.basedir",
)
def the_snakefile_sees(name):
    import snakemake.api  # Must be first, because of a circular import.
    from snakemake.workflow import Workflow

    attributes = {*vars(Workflow), *Workflow.__dataclass_fields__}
    expect(name.partition(".")[2] in attributes, "the workflow has no such attribute")
    settings = snakemake.api.ConfigSettings(config={"a": 1})
    expect(settings.config == {"a": 1}, "the values of --config are elsewhere")
    from snakemake.resources import Resources

    given = Resources.parse(["max_hours=24", "gpu_kind=h100"], allow_expressions=True)
    resources = snakemake.api.ResourceSettings(default_resources=given)
    raw = [resources.default_resources[name].raw for name in ("max_hours", "gpu_kind")]
    expect(raw == [24, "h100"], f"resources of a profile are {raw}")
    expect(resources.overwrite_resources.get("train") is None, "other rules' resources")
    seen = SimpleNamespace(config_settings=SimpleNamespace(configfiles=["study.yaml"]))
    shown = Workflow.overwrite_configfiles.fget(seen)
    expect(shown == ["study.yaml"], f"the study files are {shown}")


@contract("snakemake-executor-plugin-slurm", ".snakemake/slurm_logs")
def logs_of_slurm_lie_there(name):
    import snakemake_executor_plugin_slurm as plugin
    from snakemake_executor_plugin_slurm.utils import get_job_wildcards

    unset = SimpleNamespace(executor_settings=SimpleNamespace(logdir=None))
    expect(plugin._select_logdir(unset) == Path(name).resolve(), "another directory")
    reads(plugin.Executor.run_job, 'f"rule_{job.name}"', 'group_or_rule / wildcard_str / "%j.log"')
    # The same format as in `stapo.operations.job_logs.logs_of`.
    expect(get_job_wildcards(SimpleNamespace(wildcards=["a/b", "7"])) == "a_b_7", "wildcards")


@contract("typer", "exit code 130")
def ctrl_c_is_an_exit_code(name):
    import typer

    from stapo.cli import INTERRUPTED

    program = typer.Typer()

    @program.command()
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        program([])
    expect(ended.value.code == INTERRUPTED, f"it is {ended.value.code}")


@contract("typer", "TyperGroup.format_commands")
def the_list_of_commands_is_a_method(name):
    from typer.core import TyperGroup

    takes(TyperGroup.format_commands, "ctx", "formatter")
    reads(TyperGroup.format_options, "self.format_commands(ctx, formatter)")
    reads(TyperGroup.format_commands, "cmd.get_short_help_str(", "formatter.write_dl(")


@contract("vllm", "SamplingParams")
def sampling_has_every_field(name):
    from vllm import SamplingParams

    made = SamplingParams(
        n=1, seed=0, temperature=1.0, top_p=1.0, top_k=-1, min_p=0.0, repetition_penalty=1.0, max_tokens=8,
        stop=None, stop_token_ids=[3], ignore_eos=True, detokenize=False,
    )  # fmt: skip
    expect(made.ignore_eos and list(made.stop_token_ids) == [3], "other end tokens")
    other = copy(made)
    other.seed = 1
    expect((made.seed, other.seed) == (0, 1), "a copy has no seed of its own")


@contract("vllm", "LLM.generate")
def generate_takes_parameters_of_each_prompt(name):
    from vllm import LLM

    takes(LLM.generate, "prompts", "sampling_params")
    accepts(LLM.generate, "use_tqdm")


@contract("vllm", "LLM.enqueue", "LLMEngine.step")
def requests_are_added_and_stepped(name):
    from vllm import LLM
    from vllm.v1.engine.llm_engine import LLMEngine

    accepts(LLM.enqueue, "prompts", "sampling_params", "use_tqdm")
    expect(callable(LLMEngine.step), "no step")
    expect(callable(LLMEngine.has_unfinished_requests), "no has_unfinished_requests")


@contract("vllm", "CompletionOutput.token_ids")
def output_has_tokens(name):
    from vllm.outputs import CompletionOutput, RequestOutput

    accepts(CompletionOutput, "token_ids")
    accepts(RequestOutput, "outputs")


@contract(PYTHON, "BaseProcess._identity")
def processes_are_numbered(name):
    from multiprocessing import current_process, get_context

    first, second = (get_context("spawn").Process() for _ in range(2))
    expect(second._identity[-1] == first._identity[-1] + 1, "not consecutive numbers")
    expect(len(first._identity) == len(current_process()._identity) + 1, "not one level deeper")
