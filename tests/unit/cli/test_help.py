"""`stapo --help`, `-h` and `--version`: every command under its heading, and the exit codes as documented."""

import os
import re
import subprocess
import sys

import pytest

from stapo.cli import interventions, main, pipeline, presentation
from stapo.cli.common import EXIT_CODES, GROUPS, STEPS, app
from stapo.repository import ROOT

PAGE = ROOT / "docs" / "command-line.md"


def said(monkeypatch, capsys, *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["stapo", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return capsys.readouterr().out


def sections(text: str) -> dict[str, list[str]]:
    """Return heading to the first words of its entries."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if heading := re.match(r"(\S.*):$", line):
            entries = found.setdefault(heading[1], [])
        elif entry := re.match(r"  (\S+)  ", line):
            entries.append(entry[1])
    return found


def test_every_command_stands_under_one_heading(monkeypatch, capsys):
    found = sections(said(monkeypatch, capsys, "--help"))
    names = [one.name or one.callback.__name__ for one in app.registered_commands]
    listed = [name for heading in (*GROUPS, STEPS) for name in found[heading]]
    assert sorted(listed) == sorted(names)
    for heading, commands in GROUPS.items():
        assert found[heading] == list(commands)


def test_only_what_snakemake_calls_stands_among_its_steps(monkeypatch, capsys):
    steps = sections(said(monkeypatch, capsys, "--help"))[STEPS]
    of_steps = {pipeline.__name__, presentation.__name__}
    of_rules = {*of_steps, interventions.__name__}
    rules = "".join(path.read_text() for path in (ROOT / "workflows" / "rules").glob("*.smk"))
    for one in app.registered_commands:
        name = one.name or one.callback.__name__
        assert (one.callback.__module__ in of_rules) == (f" {name} --" in rules), name
        assert (name in steps) == (one.callback.__module__ in of_steps), name


def test_the_exit_codes_end_the_help_and_are_those_of_the_page(monkeypatch, capsys):
    text = said(monkeypatch, capsys, "--help")
    assert [*sections(text)][-1] == "Exit codes"
    documented = re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert sections(text)["Exit codes"] == documented == [str(code) for code in EXIT_CODES]


def test_no_sentence_is_cut_off(monkeypatch, capsys):
    assert "..." not in said(monkeypatch, capsys, "--help").partition("Options:")[2]


def test_h_is_help_and_the_version_is_printed(monkeypatch, capsys):
    assert said(monkeypatch, capsys, "-h") == said(monkeypatch, capsys, "--help")
    assert "Study file" in said(monkeypatch, capsys, "check", "-h")
    assert re.fullmatch(r"stapo \d+\.\d+\.\d+\S*\n", said(monkeypatch, capsys, "--version"))


def test_a_shell_can_complete_commands():
    program = "import sys; sys.argv = ['stapo']; from stapo.cli import main; main()"
    asked = {"_STAPO_COMPLETE": "complete_bash", "COMP_WORDS": "stapo do", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["doctor"], done.stderr


def test_ctrl_c_while_the_program_starts_is_one_line():
    interrupted = """
import sys, runpy

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "stapo.cli.tools":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
runpy.run_module("stapo", run_name="__main__")
"""
    command = [sys.executable, "-c", interrupted]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "stapo: stopped; run the same command again\n"
