"""Names of other packages that may change without notice are listed, and are still there.

`private_names.md` beside this file is the list. A failure says which name of which package and
version, and where it is used. What the names do is what the tests of the trainer, of resuming and
of the scores would miss.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import accelerate.commands.accelerate_cli  # noqa: F401  # Submodules, which the packages do not import.
import pytest
import snakemake.api  # noqa: F401

from stapo.repository import ROOT

PAGE, PYTHON = ROOT / "tests" / "unit" / "private_names.md", "Python"
FILES = sorted((ROOT / "stapo").rglob("*.py"))
PACKAGES = {
    "trl", "transformers", "accelerate", "torch", "lm_eval", "datasets", "huggingface_hub", "snakemake",
    "latex2sympy2_extended", "math_verify", "antlr4", "sympy", "vllm",
}  # fmt: skip
DOCUMENTED = {
    "accelerate.utils", "trl.rewards", "huggingface_hub.errors", "huggingface_hub.utils.tqdm",
    "snakemake.utils", "transformers.utils.logging",
    "on_train_begin", "on_step_end", "on_log", "on_train_end",
    "generate_until", "loglikelihood", "loglikelihood_rolling", "math", "_asdict", "_replace",
}  # fmt: skip
"""Modules below the first level, methods made to be overridden or named in the row of their class, and
those of NamedTuple, whose underscore keeps them apart from fields."""

WHERE = {
    "rollout": "trl.trainer.grpo_trainer", "GRPOTrainer": "trl", "GRPOConfig": "trl",
    "fused_lm_head": "trl.trainer.utils", "base_model": "trl.trainer.utils",
    "FusedCausalLMOutput": "trl.trainer.utils", "shift_labels": "trl.trainer.utils",
    "Trainer": "transformers", "logs": "transformers.trainer", "checkpoint": "transformers.trainer_utils",
    "rng_state_RANK": "transformers.trainer",
    "PreTrainedConfig": "transformers", "PreTrainedModel": "transformers",
    "cu_seq_lens_q": "transformers.modeling_flash_attention_utils",
    "attention_mask": "transformers.masking_utils",
    "trust_remote_code": "transformers.dynamic_module_utils",
    "split_special_tokens": "transformers.tokenization_utils_base",
    "added_tokens_decoder": "transformers.tokenization_utils_base",
    "ACCELERATE_TORCH_DEVICE": "accelerate.state", "fsdp_plugin": "accelerate.utils.fsdp_utils",
    "__RANK_": "torch.distributed.checkpoint.filesystem", "inline_container": "torch.serialization",
    "latex2sympy2": "latex2sympy2_extended", "Parser": "antlr4", "Task": "lm_eval.api.task",
    "Instance": "lm_eval.api.instance", "results": "lm_eval.evaluator",
    "HF_DATASETS_OFFLINE": "datasets.config", "constants": "huggingface_hub",
    "LocalEntryNotFoundError": "huggingface_hub.errors", "snapshots": "huggingface_hub.file_download",
    "workflow": "snakemake.workflow", "exit": "typer.core", "TyperGroup": "typer.core",
    "SamplingParams": "vllm", "LLM": "vllm", "LLMEngine": "vllm", "CompletionOutput": "vllm.outputs",
    "BaseProcess": "multiprocessing.process", ".snakemake/slurm_logs": "snakemake_executor_plugin_slurm",
}  # fmt: skip
"""First word of a name that is no module -> module in which it is found."""
WORDS = {
    "Requires-Dist: vllm": "", "inline_container.cc": "", "results[\"METRIC,FILTER\"]": "results",
    "snapshots/COMMIT": "snapshots", "checkpoint-STEP": '"checkpoint"', "rng_state_RANK.pth": "rng_state_",
    "__RANK_": "__", "exit code 130": "130", ".snakemake/slurm_logs": "slurm_logs",
    "workflow.basedir": "basedir", "base_model.last_hidden_state": "last_hidden_state",
}  # fmt: skip
"""How the other package writes a name that is not its last word; empty where there is no Python source."""
WRITTEN = {
    "GRPOTrainer.eos_token_ids": "eos_token_id",
    "GRPOTrainer.get_train_dataloader": "data order",
    "Requires-Dist: vllm": r'requires\("trl"\)',
    "checkpoint-STEP": "checkpoint-",
    "rng_state_RANK.pth": "rng_state_",
    "__RANK_": "__",
    'results["METRIC,FILTER"]': "average_at_n,all-samples",
    "snapshots/COMMIT": "snapshot.name",
    "exit code 130": "= 130",
    "inline_container.cc": "inline_container.cc",
    "SamplingParams": "SamplingParams|stop_token_ids",
    "HF_DATASETS_OFFLINE": "HF_DATASETS_OFFLINE",
}
"""How our code writes a name that is not its last word."""
TAKEN = {
    "GRPOTrainer._prepare_inputs": "generation_batch",
    "GRPOTrainer._generate_and_score_completions": "inputs",
    "GRPOTrainer._generate": "prompts",
    "GRPOTrainer._calculate_rewards": "inputs prompts completions completion_ids_list",
    "GRPOTrainer._get_per_token_logps_and_entropies": "model input_ids attention_mask logits_to_keep",
    "GRPOTrainer.log": "logs start_time",
    "Trainer.training_step": "model inputs num_items_in_batch",
    "Trainer._get_grad_norm": "model grad_norm",
    "Trainer._save_checkpoint": "model trial",
    "Trainer._load_from_checkpoint": "resume_from_checkpoint model",
    "Trainer._load_optimizer_and_scheduler": "checkpoint",
    "Trainer._load_rng_state": "checkpoint",
    "accelerate.utils.fsdp2_prepare_model": "accelerator model",
    "torch.nn.attention.varlen.varlen_attn": "query key value cu_seq_q cu_seq_k max_q max_k",
}
"""Function -> its first parameters, which we pass or take by position."""


# What is listed


@cache
def rows_of_page() -> dict[tuple[str, str], str]:
    """Return package and name -> files where the page says that it is used."""
    rows, package = {}, ""
    for line in PAGE.read_text().splitlines():
        if heading := re.match(r"## (\S+) \S+$", line):
            package = heading[1]
        elif found := re.match(r"\| `([^|]+)` \| ([^|]+) \| [^|]+ \| [^|]+ \|$", line):
            assert (package, found[1]) not in rows, f"{found[1]} is on the page twice"
            rows[package, found[1]] = found[2]
    return rows


def module_of(name: str) -> tuple[Any, list[str]]:
    """Return the module that has a name, and the words of the name inside of it."""
    words = name.split(".")
    for end in range(len(words) - 1, 0, -1):
        if words[0] in PACKAGES and find_spec(".".join(words[:end])):
            return import_module(".".join(words[:end])), words[end:]
    first = name if name in WHERE else re.match(r"\w+", name)[0]
    return import_module(WHERE[first]), words


def sources(module: Any, words: list[str]) -> Iterator[str]:
    """Yield the sources in which a name is written: of its class and the classes above, or of its module."""
    if inspect.isclass(found := getattr(module, words[0], None)):
        yield from (inspect.getsource(one) for one in found.__mro__ if one.__module__ != "builtins")
        return
    yield inspect.getsource(module)
    if Path(module.__file__).name == "__init__.py":
        yield from (path.read_text() for path in Path(module.__file__).parent.glob("*.py"))


def is_there(name: str) -> bool:
    if (word := WORDS.get(name)) == "":
        return True
    module, words = module_of(name)
    found = module
    for one in words:
        inside = f"{getattr(found, '__name__', '')}.{one}"
        found = sys.modules.get(inside) or getattr(found, one, None)
    if found is not None:
        parameters = [one for one in inspect.signature(found).parameters if one != "self"] if (
            name in TAKEN
        ) else []  # fmt: skip
        wanted = TAKEN.get(name, "").split()
        assert parameters[: len(wanted)] == wanted, f"its parameters are {parameters}"
        return True
    word = word or re.findall(r"\w+", name)[-1]
    return any(word in text for text in sources(module, words))


@pytest.mark.parametrize(("package", "name"), sorted(rows_of_page()))
def test_what_we_rely_on_is_there_and_used_where_the_page_says(package, name):
    places = rows_of_page()[package, name]
    for place in places.replace("\\", "").split(", "):
        path = ROOT / place if place == "Snakefile" else ROOT / "stapo" / place
        assert re.search(WRITTEN.get(name, re.findall(r"\w+", name)[-1]), path.read_text()), place
    if package == "vllm":
        pytest.importorskip("vllm", reason="vLLM is not installed here; `make test-vllm` runs this")
    version = sys.version.split()[0] if package == PYTHON else metadata.version(package)
    assert is_there(name), f"{package} {version}: {name}, used in {places}, is missing"


def test_the_page_is_about_the_locked_versions():
    pins = {}
    for lock in ("lock.txt", "gpu.txt"):
        lines = (ROOT / "requirements" / lock).read_text().splitlines()
        found = [re.match(r"([\w.-]+)==([^\s;\\]+)", line) for line in lines]
        pins = {one[1]: one[2] for one in found if one} | pins
    headings = dict(re.findall(r"^## (\S+) (\S+)$", PAGE.read_text(), re.MULTILINE))
    assert headings.pop(PYTHON) == "3.11"
    assert headings == {name: pins[name] for name in headings}


# What our code uses


def defined_in(tree: ast.AST) -> set[str]:
    """Return what classes and functions are called, and what is assigned, also as an attribute."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


OURS = {name for path in FILES for name in defined_in(ast.parse(path.read_text()))}


def foreign_classes(tree: ast.Module) -> dict[str, list[type]]:
    """Return each class of a module -> the classes of other packages that it inherits from."""
    # Their imports alone: a module of ours may do more when it is imported.
    names: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            exec(ast.unparse(node), names)
    found = {}
    for node in ast.walk(tree):
        for base in node.bases if isinstance(node, ast.ClassDef) else []:
            text = ast.unparse(base)
            if text.split(".")[0] in names:
                mro = eval(text, names).__mro__
                found[node.name] = [one for one in mro if one.__module__.split(".")[0] in PACKAGES]
    return found


def set_on_self(tree: ast.AST) -> set[str]:
    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {
        node.attr
        for node in stored
        if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }


def foreign_names(tree: ast.Module) -> set[str]:
    """Return private attributes that are theirs or of unknown origin, and all that overrides theirs."""
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    own = OURS | defined_in(tree)
    found = {name for name in attributes if name.startswith("_") and name not in own}
    classes = foreign_classes(tree)
    for node in ast.walk(tree):
        for base in classes.get(node.name, []) if isinstance(node, ast.ClassDef) else []:
            # What its source sets or defines is theirs also where we set it: else two would mean one name.
            text = inspect.getsource(base)
            theirs = set(re.findall(r"(?:self\.|def )(_\w+)", text))
            found |= {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)} & theirs
            found |= set_on_self(node) & set(re.findall(r"self\.(\w+) = ", text))
            methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            fields = {
                ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)
            }
            found |= (methods | fields) & {*dir(base), *getattr(base, "__dataclass_fields__", ())}
    return {name for name in found if not name.startswith("__")}


def deep_imports(tree: ast.AST) -> set[str]:
    """Return what is imported from modules of other packages below their first level."""
    found = set()
    for node in ast.walk(tree):
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        top, _, below = module.partition(".")
        if top in PACKAGES and below and module not in DOCUMENTED:
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def unlisted(names: set[str]) -> set[str]:
    """Return those that no row of the page is about."""
    rows = [name for _, name in rows_of_page()]
    words = {word for name in rows for word in (name, *re.findall(r"\w+", name))} | DOCUMENTED
    return {
        name
        for name in names
        if name not in words and not any(row.startswith(f"{name}.") for row in rows)
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "stapo")))
def test_a_private_name_of_another_package_is_listed(path):
    tree = ast.parse(path.read_text())
    missing = unlisted(foreign_names(tree) | deep_imports(tree))
    assert not missing, (
        f"{path.name}: {', '.join(sorted(missing))}: not in tests/unit/private_names.md"
    )


def test_what_the_workflow_reads_of_snakemake_is_listed():
    rules = [ROOT / "Snakefile", *(ROOT / "workflows" / "rules").glob("*.smk")]
    used = {name for path in rules for name in re.findall(r"\bworkflow\.\w+", path.read_text())}
    assert used <= {name for _, name in rows_of_page()}


def test_a_new_private_name_is_noticed():
    code = """
from accelerate.utils import gather_object
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import pad

class Ours(GRPOTrainer):
    def _generate(self, prompts):
        self._entirely_our_own = 1
        return super()._generate(prompts)

    def _get_train_sampler(self, dataset=None):
        return self.model._private_cache

    def compute_loss(self):
        self._metrics = {}
        self.temperature = self.ours = 1.0

class Settings(GRPOConfig):
    max_grad_norm: float = 0.0
    delta_of_ours: float = 0.0
"""
    tree = ast.parse(code)
    assert unlisted(foreign_names(tree) | deep_imports(tree)) == {
        "_get_train_sampler", "_private_cache", "_metrics", "compute_loss", "trl.trainer.utils.pad",
        "temperature", "max_grad_norm",
    }  # fmt: skip
