"""What `snakemake --lint` says, less what does not apply here."""

import re
import subprocess
import sys

from stapo.repository import ROOT

NOT_FOR_US = (
    # One locked environment for everything, made by `make`; per-rule ones would split the lock.
    "Specify a conda environment or container for each rule.",
    # The study is no file to be tracked: each rule tracks the settings of its own part of it.
    "Shell command directly uses variable STUDY_FILE from outside of the rule",
    # Where the interpreter is: Snakemake compares commands before they are filled in, so that a checkout
    # that was moved reruns nothing.
    "Shell command directly uses variable sys from outside of the rule",
)


def test_snakemake_lint():
    command = [sys.executable, "-m", "snakemake", "--lint"]
    profile = ["--workflow-profile", "workflows/profiles/smoke"]
    done = subprocess.run(command + profile, cwd=ROOT, capture_output=True, text=True, check=False)
    findings = re.findall(r"^\s+\* (.*?):?$", done.stdout + done.stderr, flags=re.MULTILINE)
    assert findings, "the linter no longer prints as expected"
    assert [finding for finding in findings if finding.rstrip(":") not in NOT_FOR_US] == []
