"""Two files of one name are noticed; a file that changes, moves or is copied with its results is not."""

import shutil

import pytest

from stapo.study import StudyError, parse_study
from stapo.study.origin import ORIGIN, check_origin, write_origin


@pytest.fixture
def study(raw_study):
    return parse_study(raw_study)


@pytest.fixture
def changed(raw_study):
    return parse_study({**raw_study, "run": {**raw_study["run"], "seeds": [7]}})


def test_another_file_of_the_same_name_is_refused(study, changed, tmp_path):
    elsewhere = tmp_path.parent / "elsewhere.yaml"
    check_origin(study, [tmp_path / "one.yaml"], tmp_path)  # Nothing is there yet.
    assert not list(tmp_path.iterdir())
    write_origin(study, [tmp_path / "one.yaml"], tmp_path)
    for other in (tmp_path / "two.yaml", elsewhere):
        with pytest.raises(StudyError) as raised:
            check_origin(changed, [other], tmp_path)
        (line,) = raised.value.errors
        assert "smoke is also the name of one.yaml, whose results are here" in line
        assert f"remove {tmp_path / 'work/smoke/study.json'}" in line
    (tmp_path / "work/smoke/study.json").unlink()
    check_origin(changed, [elsewhere], tmp_path)


def test_a_changed_a_moved_and_a_copied_study_go_on(study, changed, tmp_path):
    first = tmp_path / "first"
    write_origin(study, [first / "one.yaml"], first)
    check_origin(changed, [first / "one.yaml"], first)
    check_origin(study, [first / "moved.yaml"], first)
    shutil.copytree(first, tmp_path / "second")
    check_origin(changed, [tmp_path / "second" / "one.yaml"], tmp_path / "second")
    write_origin(study, [first / "one.yaml"], first)
    check_origin(changed, [first / "one.yaml", first / "smaller.yaml"], first)
    renamed = changed.model_copy(update={"name": "other"})
    check_origin(renamed, [first / "two.yaml"], first)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3, "fingerprint": 1}', "\x00"])
def test_a_damaged_record_says_nothing(study, tmp_path, text):
    path = tmp_path / ORIGIN.format(study=study.name)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    check_origin(study, [tmp_path / "one.yaml"], tmp_path)
