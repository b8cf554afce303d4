"""Every command of README.md and docs/ is executed, here or by another test, or a reason says why not.

A command is a line of a fenced block without a language, or of a shell, that begins with `stapo`,
`snakemake`, `make` or `python`. Here it runs as written, in a directory that holds the repository's workflows
and the finished run of the reduced smoke study under the names that the pages use:

- `stapo` in this process;
- `snakemake` and `make` with `--dry-run`, which shows that study, targets and options exist. The tests of
  this folder and tests/extensions run whole studies.

A new command needs an entry below only if it cannot run so. An entry that fits no command is an error.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from stapo.cli import main
from stapo.files import write_jsonl
from stapo.repository import ROOT
from stapo.study.sources import TinyData
from stapo.training.prompts import tiny_prompts

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELLS = ("", "bash", "sh", "console", "shell")
PROGRAMS = ("stapo", "snakemake", "make", "python")
COMMAND = re.compile(rf"(?:[A-Z_]+=\S+ )*(?:{'|'.join(PROGRAMS)})(?: |$)")

EXIT_CODES = {
    "stapo doctor workflows/studies/paper.yaml": 1,
    "stapo doctor workflows/studies/paper-1.7b.yaml": 1,
}
"""Commands that end with another code than 0: this machine has neither GPUs nor the models."""

ELSEWHERE: dict[str, str] = {}
"""Commands that another test runs: with files that only it has, at a smaller size, or in a way of its own."""

HUB = "needs the internet: models, prompts or benchmarks of the Hub"
NOT_HERE = {
    "stapo fetch workflows/studies/paper.yaml": HUB,
    "stapo evaluate base=Qwen/Qwen3-1.7B-Base mine=out/model --benchmark aime24 --benchmark math500 "
    "--backend vllm": "needs a GPU for vLLM, and the internet",
}
"""Commands that nothing of CI can run, and why."""

BASE = "results/smoke/models/tiny/base"
STAND_INS = ("first",)
"""Studies of the pages whose results are read. Here their files are the reduced smoke study's."""


def commands_of(text: str) -> Iterator[str]:
    """Yield the commands of a page, without comments and with one space between words."""
    for language, block in BLOCK.findall(text):
        if language not in SHELLS:
            continue
        for line in re.sub(r"\\\n", " ", block).splitlines():
            command = " ".join(re.sub(r"(^|\s)#.*", "", line).removeprefix("$ ").split())
            if COMMAND.match(command):
                yield command


COMMANDS = {
    command: page.relative_to(ROOT) for page in PAGES for command in commands_of(page.read_text())
}
"""Command to a page that shows it."""
EXECUTED = [command for command in COMMANDS if command not in {*ELSEWHERE, *NOT_HERE}]


def words_of(command: str) -> tuple[dict[str, str], list[str]]:
    """Return the environment variables that a command sets, and its words."""
    words = shlex.split(command)
    first = next(i for i, word in enumerate(words) if word in PROGRAMS)
    return dict(word.split("=", 1) for word in words[:first]), words[first:]


def of_program(*names: str) -> list[str]:
    return [command for command in EXECUTED if words_of(command)[1][0] in names]


def examples() -> Iterator[tuple[str, str]]:
    """Yield name and text of the files that the pages put into workflows/studies."""
    for page in PAGES:
        for language, block in BLOCK.findall(page.read_text()):
            named = re.match(r"(?:#|\{#) workflows/studies/([\w.-]+)(?: #\})?\n", block)
            if named:
                yield named[1], block
            elif language == "yaml" and re.search(r"^extends:", block, re.MULTILINE):
                yield f"{yaml.safe_load(block)['name']}.yaml", block


def write_examples(studies: Path, base: Path) -> None:
    """Write the files that the pages show, and what the studies among them name.

    Args:
        studies: folder for them.
        base: weights that stand for a model of one's own.
    """
    for name, text in examples():
        (studies / name).write_text(text)
    (studies / "questions.jsonl").write_text('{"problem": "chain:2*3?", "answer": 6}\n')
    prompts = tiny_prompts(TinyData(builder="tiny-arithmetic", prompts=64))
    write_jsonl(studies / "prompts.jsonl", list(prompts))
    shutil.copytree(base, studies.parent / "weights" / "mine")


@pytest.fixture(scope="module")
def place(finished: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's workflows, the studies of the pages, and a finished run."""
    path = tmp_path_factory.mktemp("documented") / "repository"
    shutil.copytree(finished.path, path)
    for name in ("workflows", "profiles"):
        shutil.copytree(ROOT / name, path / name)
    shutil.copy(ROOT / "Snakefile", path)
    write_examples(path / "workflows" / "studies", path / BASE)
    for name in ("smoke", *STAND_INS):
        study = path / "workflows" / "studies" / f"{name}.yaml"
        study.write_text(yaml.safe_dump(finished.study, sort_keys=False))
    for name in STAND_INS:
        shutil.copytree(path / "results" / "smoke", path / "results" / name)
    shutil.copytree(path / "results" / "smoke", path / "elsewhere" / "results" / "smoke")
    # The trainer that the page on other trainers asks the reader for: ours.
    (path / "my_package").mkdir()
    (path / "my_package" / "my_module.py").write_text(
        "from stapo.conformance.trainers import TRAINERS\n\nupdate, _ = TRAINERS['ours']\n"
    )
    return path


@pytest.fixture(scope="module")
def dry_runs(place: Path) -> dict[str, subprocess.CompletedProcess[str]]:
    """The dry runs of all commands of Snakemake, two at a time."""

    def run(command: str) -> subprocess.CompletedProcess[str]:
        variables, (_, *words) = words_of(command)
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *words, "--dry-run"],
            cwd=place, env={**os.environ, **variables, "HF_HUB_OFFLINE": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    with ThreadPoolExecutor(2) as pool:
        asked = of_program("snakemake")
        return dict(zip(asked, pool.map(run, asked), strict=True))


def test_every_entry_is_a_command_in_one_class_and_every_named_test_exists():
    entries = [*EXIT_CODES, *ELSEWHERE, *NOT_HERE]
    assert len(entries) == len(set(entries))
    assert set(entries) <= COMMANDS.keys()
    for test in ELSEWHERE.values():
        assert (ROOT / test).is_file(), test
    assert len(of_program("stapo")) > 15
    assert len(of_program("snakemake")) > 5
    assert "make smoke" in of_program("make")


@pytest.fixture
def environment() -> Iterator[None]:
    """Variables that `main` and some commands set do not reach the next one."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("command", of_program("stapo"))
def test_a_command_does_what_it_is_for(command, place, monkeypatch, capfd):
    variables, words = words_of(command)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("STAPO_DATA_DIR", raising=False)
    for name, value in {"HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1", **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        main()
    said = capfd.readouterr()
    assert (ended.value.code or 0) == EXIT_CODES.get(command, 0), said.out + said.err
    assert said.out.strip()


@pytest.mark.parametrize("command", of_program("snakemake"))
def test_a_run_of_snakemake_finds_its_study_and_targets(command, dry_runs):
    done = dry_runs[command]
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", of_program("make"))
def test_a_target_of_make_exists(command):
    _, words = words_of(command)
    done = subprocess.run([*words, "-n"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", of_program("python"))
def test_a_module_runs(command, place):
    variables, (_, *words) = words_of(command)
    done = subprocess.run(
        [sys.executable, *words],
        cwd=place, env={**os.environ, **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_studies_of_the_pages_are_valid(place, tmp_path, monkeypatch, capfd):
    (tmp_path / "studies").mkdir()
    write_examples(tmp_path / "studies", place / BASE)
    monkeypatch.chdir(tmp_path)
    checked = 0
    for name, text in examples():
        # mine.yaml has methods and more that tests/extensions adds.
        if name == "mine.yaml" or not name.endswith(".yaml"):
            continue
        study = tmp_path / "studies" / name
        study.write_text(text)
        monkeypatch.setattr(sys, "argv", ["stapo", "check", str(study)])
        with suppress(SystemExit):
            main()
        assert not capfd.readouterr().err, name
        checked += 1
    assert checked > 8
