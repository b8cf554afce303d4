"""What a record says of the code that it was made with."""

import subprocess

import pytest

from stapo import provenance


@pytest.fixture
def repository(tmp_path, monkeypatch):
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    for name in ("code.py", "results/miniature/table.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git("init")
    git("add", "-A")
    git("commit", "-m", "first")
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    provenance.provenance.cache_clear()
    yield tmp_path
    provenance.provenance.cache_clear()


@pytest.mark.parametrize(
    ("changed", "dirty"),
    [
        (None, False),
        ("results/miniature/table.csv", False),
        ("results/miniature/new.csv", False),
        ("code.py", True),
        ("new.py", True),
    ],
)
def test_changed_code_is_dirty_and_changed_results_are_not(repository, changed, dirty):
    if changed:
        (repository / changed).write_text("2")
    found = provenance.provenance()
    assert len(found["commit"]) == 40
    assert found["dirty"] is dirty
