"""Time stamps are set by what jobs recorded."""

import os

from stapo.core.checksums import file_sums
from stapo.core.files import write_json
from stapo.suite.jobs import jobs_of
from stapo.suite.operations.timestamps import settle
from stapo.suite.study import parse_study


def test_only_results_of_present_settings_and_files_become_new(tmp_path, raw_study, monkeypatch):
    """Also in a study of base models alone, of which no figures are drawn."""
    monkeypatch.chdir(tmp_path)
    raw_study["run"]["methods"] = []
    study = parse_study(raw_study)
    (overlap,) = jobs_of(study).all("overlap")
    (read, *_), (wrote,) = overlap.inputs, overlap.outputs
    for path in (*overlap.inputs, wrote):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)

    def newer(made_by: str) -> bool:
        """Return whether the result is as new as what it was made from, which was changed later."""
        sums = (file_sums(tmp_path, paths) for paths in (overlap.inputs, [wrote]))
        record = dict(zip(("made_by", "read", "wrote"), (made_by, *sums), strict=True))
        write_json(tmp_path / overlap.record, record)
        for second, path in enumerate((wrote, *overlap.inputs)):
            os.utime(tmp_path / path, (1e9 + second, 1e9 + second))
        settle(study)
        last = max((tmp_path / path).stat().st_mtime for path in overlap.inputs)
        return (tmp_path / wrote).stat().st_mtime >= last

    assert newer(overlap.param)
    assert not newer("other settings")
    (tmp_path / wrote).write_text("changed")
    assert newer(overlap.param)
    (tmp_path / read).write_text("changed")
    os.utime(tmp_path / wrote, (1e9, 1e9))
    settle(study)
    assert (tmp_path / wrote).stat().st_mtime == 1e9
