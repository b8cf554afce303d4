"""Every command of README.md and docs/ does what it says.

A command is a line of a fenced block without a language, or of a shell, that begins with `stapo`,
`snakemake`, `make` or `python`. It runs as written, in a directory that holds the repository's workflows
and the finished run of the reduced smoke study under the names that the pages use; `snakemake` and `make`
only with `--dry-run`, which shows that study, targets and options exist.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from programs import ran

from stapo.core.files import write_jsonl
from stapo.suite import sandbox
from stapo.suite.cli import main
from stapo.suite.repository import ROOT
from stapo.suite.study import read_study
from stapo.suite.study.sources import TinyData
from stapo.suite.training.prompts import tiny_prompts

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = [found for page in PAGES for found in BLOCK.findall(page.read_text())]
"""Language and content."""
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(stapo|snakemake|make|python)(?: |$)")
NOT_HERE = (
    "stapo fetch workflows/studies/paper/paper.yaml",
    "stapo compare results/paper-v3",
    "stapo show workflows/studies/domains/sums.yaml",
)
"""Starts of commands that need models, prompts or benchmarks of the Hub, or trainings of minutes and more."""
BASE = "results/smoke/models/tiny/base"


def commands() -> Iterator[tuple[str, str]]:
    """Yield program and command, without comments and with one space between words."""
    for language, block in BLOCKS:
        if language in ("", "bash", "sh", "console", "shell"):
            for line in re.sub(r"\\\n", " ", block).splitlines():
                command = " ".join(re.sub(r"(^|\s)#.*", "", line).removeprefix("$ ").split())
                if (found := COMMAND.match(command)) and not command.startswith(NOT_HERE):
                    yield found[1], command


COMMANDS = {command: program for program, command in commands()}
QUICK = [command for command, program in COMMANDS.items() if program == "stapo"]
OTHERS = [command for command in COMMANDS if command not in QUICK]


def words_of(command: str) -> tuple[dict[str, str], list[str]]:
    """Return the environment variables that a command sets, and its words."""
    words = shlex.split(command)
    first = next(i for i, word in enumerate(words) if word == COMMANDS[command])
    return dict(word.split("=", 1) for word in words[:first]), words[first:]


def examples() -> Iterator[tuple[str, str]]:
    """Yield name and text of the files that the pages put into workflows/studies."""
    for language, block in BLOCKS:
        named = re.match(r"(?:#|\{#) workflows/studies/([\w.-]+)(?: #\})?\n", block)
        if named:
            yield named[1], block
        elif language == "yaml" and re.search(r"^extends:", block, re.MULTILINE):
            yield f"{yaml.safe_load(block)['name']}.yaml", block


@pytest.fixture(scope="module")
def place(finished: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's workflows, the studies of the pages, and a finished run, as smoke and as first."""
    path = tmp_path_factory.mktemp("documented") / "repository"
    shutil.copytree(finished.path, path)
    for name in ("workflows", "profiles"):
        shutil.copytree(ROOT / name, path / name)
    shutil.copy(ROOT / "Snakefile", path)
    studies = path / "workflows" / "studies"
    for name, text in examples():
        (studies / name).write_text(text)
    (studies / "questions.jsonl").write_text('{"question": "chain:2*3?", "answer": 6}\n')
    for name, number in (("functions", 1), ("others", 2)):
        gold = json.dumps({"function": "f", "tests": [[[], number]]})
        write_jsonl(studies / f"{name}.jsonl", [{"question": f"{number}?", "answer": gold}])
    prompts = tiny_prompts(TinyData(builder="tiny-arithmetic", prompts=64))
    write_jsonl(studies / "prompts.jsonl", list(prompts))
    shutil.copytree(path / BASE, path / "workflows" / "weights" / "mine")
    for name in ("quickstart/smoke", "first"):
        (studies / f"{name}.yaml").write_text(yaml.safe_dump(finished.study, sort_keys=False))
    shutil.copytree(path / "results" / "smoke", path / "results" / "first")
    # The trainer that the page on other trainers asks the reader for: ours.
    (path / "my_package").mkdir()
    (path / "my_package" / "my_module.py").write_text(
        "from stapo.core.conformance.trainers import TRAINERS\n\nupdate, _ = TRAINERS['ours']\n"
    )
    return path


@pytest.mark.parametrize("command", QUICK)
def test_a_command_does_what_it_is_for(command, place, monkeypatch, capfd):
    variables, words = words_of(command)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "path", [*sys.path])
    # What `main` and some commands set does not reach the next one.
    with patch.dict(os.environ, {"HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1", **variables}):
        if "STAPO_DATA_DIR" not in variables:
            os.environ.pop("STAPO_DATA_DIR", None)
        with pytest.raises(SystemExit) as ended:
            main()
    said = capfd.readouterr()
    assert (ended.value.code or 0) == 0, said.out + said.err
    assert said.out.strip()


@pytest.mark.parametrize("command", OTHERS)
def test_another_program_finds_what_it_is_asked_for(command, place):
    variables, (program, *words) = words_of(command)
    asked = {
        "make": ["make", *words, "-n"],
        "python": [sys.executable, *words],
        "snakemake": [sys.executable, "-m", "snakemake", *words, "--dry-run"],
    }
    variables["HF_HUB_OFFLINE"] = "1"
    ran(*asked[program], at=ROOT if program == "make" else place, **variables)


def test_the_studies_of_the_pages_are_valid(place):
    # mine.yaml has methods and more that tests/extensions adds.
    names = [name for name, _ in examples() if name.endswith(".yaml") and name != "mine.yaml"]
    assert len(names) > 8
    assert len(QUICK) > 10
    for name, text in examples():
        # Without bubblewrap it is refused, as it should be.
        if name in names and not ("python_function" in text and sandbox.missing()):
            study = place / "workflows" / "studies" / f"shown-{name}"
            study.write_text(text)
            read_study(study)
