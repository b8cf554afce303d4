"""What runs outside `make`: the workflow on GitHub, the hooks before a commit, the lists of packages."""

import re
import tomllib
from importlib import metadata

import yaml
from packaging.specifiers import SpecifierSet

from stapo.repository import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
GITHUB_ALONE = {"test-torch-oldest", "test-torch-newest"}
"""Targets that `.ci/run` leaves out: gigabytes of CUDA libraries for each torch."""


def test_the_workflow_runs_what_ci_runs():
    local = set(re.findall(r"^make (\S+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))
    assert local
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    job = workflow["jobs"]["make"]
    matrix = job["strategy"]["matrix"]
    targets = {*matrix["target"], *(row["target"] for row in matrix["include"])}
    assert targets == local | GITHUB_ALONE
    assert [step["run"] for step in job["steps"] if "run" in step] == ['make "$TARGET"']
    assert job["steps"][-1]["env"]["TARGET"] == "${{ matrix.target }}"
    makefile = (ROOT / "Makefile").read_text()
    rules = re.findall(r"^([a-z -]+):", makefile, re.MULTILINE)
    assert targets <= {target for rule in rules for target in rule.split()}
    # On every version of Python that the package may be installed with.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [
        line.split(" :: ")[-1] for line in project["classifiers"] if re.search(r":: 3\.\d", line)
    ]
    assert matrix["python"] == named
    assert project["requires-python"] == f">={named[0]}"


def test_actions_are_pinned_by_commit_and_may_only_read():
    assert WORKFLOWS
    for path in WORKFLOWS:
        used = re.findall(r"uses:\s*(.*)", path.read_text())
        assert used
        for line in used:
            assert re.fullmatch(r"[\w/.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        assert not any("permissions" in job for job in workflow["jobs"].values())


def test_hooks_are_the_checks_of_make_lint_from_the_lock():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    entries = []
    for hook in config["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        python, safe, module, check = hook["entry"].split(" ", 3)
        assert (python, safe, module) == (".venv/bin/python", "-P", "-m")
        entries.append(check)
    makefile = (ROOT / "Makefile").read_text()
    linted = re.findall(r"^\t\$\(RUN\) (.*)$", makefile[makefile.index("\nlint:") :], re.MULTILINE)
    assert entries == [re.sub(r" (\.|Snakefile workflows)$", "", command) for command in linted]


def test_torch_is_the_only_requirement_and_the_lock_has_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (torch,) = project["dependencies"]
    oldest = re.fullmatch(r"torch>=([\d.]+)", torch)[1]
    tested = (ROOT / "requirements" / "torch-oldest.txt").read_text()
    assert re.search(rf"^torch=={re.escape(oldest)}\.", tested, re.MULTILINE)
    extras = project["optional-dependencies"]
    assert "stapo[suite]" in extras["gpu"]
    assert "stapo[suite]" in extras["docs"]
    assert "stapo[suite,docs]" in extras["dev"]
    lock = (ROOT / "requirements" / "lock.txt").read_text()
    locked = dict(re.findall(r"^([\w.-]+)==([\w.+]+)", lock, re.MULTILINE))
    for line in (*extras["suite"], *extras["docs"], *extras["dev"]):
        name, pinned, version = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?(==)?(.*)", line).groups()
        if name != "stapo":
            assert name.lower().replace(".", "-") in locked, line
            assert not pinned or locked[name.lower().replace(".", "-")] == version, line


def test_the_lock_installs_with_the_first_release_of_every_python():
    """Distributions have old ones, as Debian 12 has 3.11.2; `make lock` runs on a newer one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r":: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    lock = (ROOT / "requirements" / "lock.txt").read_text()
    names = re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)
    needed = {name: metadata.metadata(name).get("Requires-Python", "") for name in names}
    refused = {
        name: needs
        for name, needs in needed.items()
        if not all(SpecifierSet(needs).contains(f"{python}.0") for python in named)
    }
    assert len(names) > 100
    assert named
    assert refused == {}
