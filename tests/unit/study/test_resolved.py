"""The file from which commands read the study."""

import pytest

from stapo.study import StudyError, merge, parse_study
from stapo.study.reading import read_resolved, resolved_path, write_resolved


def test_each_form_of_a_study_keeps_its_own_file(raw_study, tmp_path):
    before = parse_study(raw_study)
    after = parse_study(merge(raw_study, {"training": {"learning_rate": 1e-4}}))
    write_resolved(before, tmp_path)
    first = tmp_path / resolved_path(before)
    written = first.stat().st_mtime_ns
    for study in (after, before, after):
        write_resolved(study, tmp_path)
    assert first.stat().st_mtime_ns == written
    assert len(list(first.parent.iterdir())) == 2
    assert read_resolved(first) == before
    assert read_resolved(tmp_path / resolved_path(after)) == after


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b'{"name": "other"}'], ids=repr)
def test_a_damaged_file_is_written_again(raw_study, tmp_path, damage):
    study = parse_study(raw_study)
    path = tmp_path / resolved_path(study)
    path.parent.mkdir(parents=True)
    path.write_bytes(damage)
    write_resolved(study, tmp_path)
    assert read_resolved(path) == study


def test_a_missing_or_damaged_file_is_one_line(tmp_path):
    path = tmp_path / "study.json"
    with pytest.raises(StudyError, match="not in a dry run; give the study file instead"):
        read_resolved(path)
    path.write_text("{")
    with pytest.raises(StudyError, match="truncated or corrupt"):
        read_resolved(path)
