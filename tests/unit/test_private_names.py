"""Names of other packages that may change without notice are listed, and mean what we rely on.

`docs/private-names.md` is the list; `contracts_trl`, `contracts_training` and `contracts_evaluation` have a
contract for each. A failure says which name of which package and version, and where it is used.
"""

import ast
import re
from importlib import import_module
from typing import Any

import contracts
import contracts_evaluation  # noqa: F401  # Fills the list, as the next two do.
import contracts_training  # noqa: F401
import contracts_trl
import pytest
from contracts import CONTRACTS, PAGE, PYTHON, hold, rows_of_page

from stapo.repository import ROOT

FILES = sorted((ROOT / "stapo").rglob("*.py"))
PACKAGES = {
    "trl", "transformers", "accelerate", "torch", "lm_eval", "datasets", "huggingface_hub", "snakemake",
    "latex2sympy2_extended", "math_verify", "sympy", "vllm",
}  # fmt: skip
DOCUMENTED = {
    "accelerate.utils", "trl.rewards", "huggingface_hub.errors", "huggingface_hub.utils.tqdm",
    "snakemake.utils", "transformers.utils.logging",
    "on_train_begin", "on_step_end", "on_log", "on_train_end",
    "generate_until", "loglikelihood", "loglikelihood_rolling", "math", "_asdict",
}  # fmt: skip
"""Modules below the first level, methods made to be overridden or named in the row of their class, and
those of NamedTuple, whose underscore keeps them apart from fields."""


@pytest.mark.parametrize(("package", "name"), sorted(CONTRACTS))
def test_what_we_rely_on_is_there(package, name):
    hold(package, name)


def test_the_page_and_the_contracts_have_the_same_names():
    assert sorted(rows_of_page()) == sorted(CONTRACTS)


def test_the_page_is_about_the_locked_versions():
    pins = {}
    for lock in ("lock.txt", "gpu.txt"):
        lines = (ROOT / "requirements" / lock).read_text().splitlines()
        found = [re.match(r"([\w.-]+)==([^\s;\\]+)", line) for line in lines]
        pins = {one[1]: one[2] for one in found if one} | pins
    headings = dict(re.findall(r"^## (\S+) (\S+)$", PAGE.read_text(), re.MULTILINE))
    assert headings.pop(PYTHON) == "3.11"
    assert headings == {name: pins[name] for name in headings}
    assert set(headings) | {PYTHON} == {package for package, _ in CONTRACTS}


@pytest.mark.parametrize(("package", "name"), sorted(CONTRACTS))
def test_a_name_is_used_where_the_page_says(package, name):
    for place in rows_of_page()[package, name].replace("\\", "").split(", "):
        path = ROOT / place if place == "Snakefile" else ROOT / "stapo" / place
        assert re.search(WRITTEN.get(name, re.findall(r"\w+", name)[-1]), path.read_text()), place


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
    "trainer_state.json": "trainer_state.json",
    "SamplingParams": "SamplingParams|stop_token_ids",
    "HF_DATASETS_OFFLINE": "HF_DATASETS_OFFLINE",
}
"""How our code writes a name that is not its last word."""


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
            text = contracts.source(base)
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
    assert not missing, f"{path.name}: {', '.join(sorted(missing))}: not in docs/private-names.md"


def test_what_the_workflow_reads_of_snakemake_is_listed():
    rules = [ROOT / "Snakefile", *(ROOT / "workflows" / "rules").glob("*.smk")]
    used = {name for path in rules for name in re.findall(r"\bworkflow\.\w+", path.read_text())}
    assert used <= {name for _, name in rows_of_page()}


# That both would notice


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


def gone(place: str, name: str) -> Any:
    """Return what removes an attribute, found by its dotted place."""

    def remove(monkeypatch: pytest.MonkeyPatch) -> None:
        module, _, inner = place.partition(":")
        owner = import_module(module)
        for part in inner.split(".") if inner else ():
            owner = getattr(owner, part)
        monkeypatch.delattr(owner, name)

    return remove


def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(contracts_trl.tiny().rollout, "ref_per_token_logps")


def other_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    from trl import GRPOTrainer

    monkeypatch.setattr(GRPOTrainer, "_generate", lambda self, batch: None)


def other_source(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "os.environ.get('ANOTHER_VARIABLE')"
    monkeypatch.setattr(contracts, "source", lambda _: text)


def other_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from trl.kernels import chunked_logprob

    monkeypatch.setattr(chunked_logprob, "TOKEN_CHUNK_SIZE", 8192)


TRAINER, SNAKEMAKE = "transformers:Trainer", "snakemake.workflow:Workflow"
CHANGES = [
    ("trl", "GRPOTrainer._calculate_rewards", gone("trl:GRPOTrainer", "_calculate_rewards")),
    ("trl", "GRPOTrainer._compute_loss", gone("trl:GRPOTrainer", "_compute_loss")),
    ("trl", "GRPOTrainer._generate", other_parameters),
    ("trl", 'rollout["ref_per_token_logps"]', no_key),
    ("trl", "trl.kernels.chunked_logprob.TOKEN_CHUNK_SIZE", other_size),
    ("trl", "trl.trainer.utils.split_tensor_dict", gone("trl.trainer.utils", "split_tensor_dict")),
    ("transformers", "Trainer._get_grad_norm", gone(TRAINER, "_get_grad_norm")),
    ("transformers", "Trainer._load_rng_state", gone(TRAINER, "_load_rng_state")),
    ("accelerate", "ACCELERATE_TORCH_DEVICE", other_source),
    ("lm-eval", "Task.set_config", gone("lm_eval.api.task:Task", "set_config")),
    ("snakemake", "workflow.overwrite_configfiles", gone(SNAKEMAKE, "overwrite_configfiles")),
]


@pytest.mark.parametrize(("package", "name", "change"), CHANGES, ids=[c[1] for c in CHANGES])
def test_a_contract_fails_when_its_name_is_gone(monkeypatch, package, name, change):
    hold(package, name)
    change(monkeypatch)
    with pytest.raises(pytest.fail.Exception) as failed:
        hold(package, name)
    said = str(failed.value)
    assert said.startswith(f"{package} ")
    assert name in said
    assert rows_of_page()[package, name] in said
