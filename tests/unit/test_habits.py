"""What runs outside `make`: the workflow on GitHub and the lists of packages."""

import re
import tomllib

import yaml

from stapo.repository import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


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
