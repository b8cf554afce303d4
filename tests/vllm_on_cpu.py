"""Colocated vLLM on the CPU, for tests: three changes to vLLM and TRL, made when their modules are imported.

Import this module before TRL. With `processes`, every Python that is started later does so by itself.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


def _keep_weights(module: ModuleType) -> None:
    """Keep the weights of linear layers: packed ones are dropped, and no update could be loaded."""

    def plain(layer: Any, remove_weight: bool) -> None:
        import torch

        layer.cpu_linear = torch.nn.functional.linear

    module.dispatch_cpu_unquantized_gemm = plain  # type: ignore[attr-defined]


def _single_precision_awake(module: ModuleType) -> None:
    """Let TRL start vLLM in the trainer's precision, and without sleep mode, which the CPU does not have."""
    start = module.VLLMGeneration.__init__

    def awake(self: Any, *args: Any, **named: Any) -> None:
        start(self, *args, **{**named, "enable_sleep_mode": False})

    module.VLLMGeneration.__init__ = awake
    module.LLM = partial(module.LLM, dtype="float32", enforce_eager=True)  # type: ignore[attr-defined]


def _train_without_gpus(module: ModuleType) -> None:
    """Let a job without GPUs train with vLLM."""
    module.require_fit = lambda *_: None  # type: ignore[attr-defined]


CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "vllm.model_executor.layers.utils": _keep_weights,
    "trl.generation.vllm_generation": _single_precision_awake,
    "stapo.suite.training.launch": _train_without_gpus,
}


class _Changes(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # Popped, so that the search below finds the module itself.
        change = CHANGES.pop(name, None)
        spec = importlib.util.find_spec(name) if change else None
        if change is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def changed(module: ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = changed  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Changes())


def processes(directory: Path) -> dict[str, str]:
    """Return the environment in which every new Python imports this module first."""
    import os

    (directory / "sitecustomize.py").write_text("import vllm_on_cpu\n")
    paths = [str(directory), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
