"""Names of other packages that may change without notice are still there.

`private_names.md` beside this file lists them, with what each is for. What the names do is what the tests of
the trainer, of resuming and of the scores would miss.
"""

import inspect
import re
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

import pytest

from stapo.repository import ROOT

PAGE = (ROOT / "tests" / "unit" / "private_names.md").read_text()
CLASSES = {
    "GRPOTrainer": "trl", "GRPOConfig": "trl", "FusedCausalLMOutput": "trl.trainer.utils",
    "Trainer": "transformers", "PreTrainedConfig": "transformers", "PreTrainedModel": "transformers",
    "Task": "lm_eval.api.task", "Instance": "lm_eval.api.instance",
    "TyperGroup": "typer.core", "constants": "huggingface_hub",
}  # fmt: skip
"""First word of a name that is no module -> module in which it is found."""
PACKAGES = ("trl", "transformers", "accelerate", "torch", "lm_eval", "datasets", "huggingface_hub",
            "snakemake", "latex2sympy2_extended", "math_verify", "sympy")  # fmt: skip
NAMES = [
    name
    for name in re.findall(r"^\| `([\w.]+)` \|", PAGE, re.MULTILINE)
    if name.split(".")[0] in (*PACKAGES, *CLASSES)
]


def place_of(name: str) -> tuple[Any, list[str]]:
    """Return the module that has a name, and the words of the name inside of it."""
    words = name.split(".")
    for end in range(len(words) - 1, 0, -1):
        if words[0] in PACKAGES and find_spec(".".join(words[:end])):
            return import_module(".".join(words[:end])), words[end:]
    return import_module(CLASSES[words[0]]), words


@pytest.mark.parametrize("name", NAMES)
def test_what_we_rely_on_is_there(name):
    found, words = place_of(name)
    for word in words:
        inside = getattr(found, word, None)
        if inside is None and inspect.isclass(found):  # Set by a method.
            above = (one for one in found.__mro__ if one is not object)
            assert any(word in inspect.getsource(one) for one in above), name
            return
        found = inside if inside is not None else import_module(f"{found.__name__}.{word}")


def test_the_page_is_about_the_locked_versions():
    headings = dict(re.findall(r"^## (\S+) (\S+)$", PAGE, re.MULTILINE))
    locks = [(ROOT / "requirements" / name).read_text() for name in ("gpu.txt", "lock.txt")]
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", "\n".join(locks), re.MULTILINE))
    assert headings.pop("Python") == "3.11"
    assert headings == {name: pins[name] for name in headings}
    assert metadata.version("trl") == headings["trl"]
