"""Models that bring Python code: even if every question is answered with yes, nothing of it runs."""

import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from damaged import settings
from datasets import Dataset
from programs import python
from safetensors.torch import load_file

from stapo.core.config import StapoConfig
from stapo.core.methods import METHODS
from stapo.core.trainer import StapoTrainer
from stapo.suite.models.loading import load_model, load_tokenizer
from stapo.suite.study import StudyError
from stapo.suite.training.rewards import boxed_reward

CODE = """
from pathlib import Path
Path({marker!r}).write_text("the model's code ran")
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
class Config(Qwen3Config):
    model_type = "own"
class Model(Qwen3ForCausalLM):
    config_class = Config
class Tokenizer(PreTrainedTokenizerFast):
    pass
"""
RUN = """
import sys
from stapo.suite.cli import app
for arguments in {commands!r}:
    try:
        app(arguments, standalone_mode=False)
    except Exception as error:
        print(error, flush=True)
"""


def with_code(model: Path, path: Path) -> Path:
    """Return a copy whose classes are those of a file beside it, as models of the Hub may be."""
    shutil.copytree(model, path)
    (path / "own.py").write_text(CODE.format(marker=str(path.parent / "marker")))
    classes = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    settings(path, model_type="own", auto_map=classes)
    of_tokenizer = {"AutoTokenizer": [None, "own.Tokenizer"]}
    settings(path, "tokenizer_config.json", tokenizer_class="Tokenizer", auto_map=of_tokenizer)
    return path


def test_no_code_of_a_model_is_run(model, tmp_path):
    with_code(model, tmp_path / "downloaded")
    (tmp_path / "own.yaml").write_text(
        "extends: smoke\nname: own\nmodels: {own: {path: downloaded}}\nrun: {models: [own]}\n"
    )
    commands = [["check", "own.yaml"], ["run", "base", "--study", "own.yaml"]]
    environment = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    code = RUN.format(commands=commands)
    done = python("-c", code, at=tmp_path, answers="y\n" * 50, **environment)
    told = done.stdout + done.stderr
    assert not (tmp_path / "marker").exists(), told
    assert "[y/N]" not in told
    assert told.count("needs its own Python code, which is never run here") == len(commands), told


def test_trl_is_given_no_code_to_run_and_no_pickles(model, tmp_path):
    rows = Dataset.from_list([{"prompt": "chain:1+1?", "answer": "2"}] * 8)
    given = {"use_cpu": True, "bf16": False, "num_generations": 2, "report_to": []}
    config = StapoConfig(str(tmp_path / "out"), method="grpo", **given)
    assert METHODS["grpo"].kl_coefficient > 0  # With a reference model, which TRL loads.
    bringing = with_code(model, tmp_path / "downloaded")
    with pytest.raises(ValueError, match="custom code"):
        StapoTrainer(str(bringing), boxed_reward, config, rows)
    pickled = tmp_path / "pickled"
    shutil.copytree(model, pickled)
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    with pytest.raises(OSError, match="safetensors"):
        StapoTrainer(str(pickled), boxed_reward, config, rows)
    with pytest.raises(StudyError, match=r"no weights: model\.safetensors cannot be read"):
        load_model(pickled, torch.float32)


def test_a_directory_that_is_missing_is_not_looked_for_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for load in (load_tokenizer, partial(load_model, dtype=torch.float32)):
        with pytest.raises(StudyError, match="openai-community/gpt2: no such directory"):
            load("openai-community/gpt2")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(StudyError, match=r"no tokenizer\.json; give the directory of a whole"):
        load_tokenizer(tmp_path)
