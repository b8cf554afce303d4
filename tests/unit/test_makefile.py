"""What `make` says at the end of an installation."""

import subprocess

from stapo.repository import ROOT


def commands(target: str) -> str:
    command = ["make", "-n", "--no-print-directory", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_setup_ends_with_the_next_command():
    last = commands("setup").splitlines()[-1]
    assert "next: make smoke" in last
    assert "source .venv/bin/activate && stapo --help" in last
    assert "stapo doctor" in commands("setup-gpu").splitlines()[-1]


def test_what_needs_the_setup_does_not_say_so():
    assert "next:" not in commands("lint")
