"""What a record says of the code that it was made with."""

from programs import ran

from stapo.suite import provenance


def test_changed_code_is_dirty_and_changed_results_are_not(tmp_path, monkeypatch):
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        ran("git", *who, *words, at=tmp_path)

    for folder in ("results", "stapo"):
        (tmp_path / folder).mkdir()
    (tmp_path / "stapo" / "code.py").write_text("1")
    git("init")
    git("add", "-A")
    git("commit", "-m", "first")
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    for changed, dirty in (("results/a.csv", False), ("own.py", False), ("stapo/code.py", True)):
        (tmp_path / changed).write_text("2")
        found = provenance.provenance.__wrapped__()
        assert (len(found["commit"]), found["dirty"]) == (40, dirty)
