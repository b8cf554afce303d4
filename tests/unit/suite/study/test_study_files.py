"""What `check` passes also passes every later stage, what it refuses is lines; the file that jobs read."""

import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from rich.console import Console
from ruamel.yaml import YAML
from studies import changed_studies

from stapo.suite import paths
from stapo.suite.cli.tools import study_of
from stapo.suite.jobs import jobs_of
from stapo.suite.operations.plan import print_plan
from stapo.suite.operations.status import print_status
from stapo.suite.study import Study, StudyError, merge, parse_study, read_study
from stapo.suite.study.checks import slug
from stapo.suite.study.loader import MAX_LINE
from stapo.suite.study.reading import resolved_path, write_resolved


def study_or_lines(read: Callable[[], Study]) -> Study | None:
    """Return a study, or None where it is refused with lines."""
    try:
        return read()
    except StudyError as error:
        lines = error.errors
    assert lines
    # An escape is up to ten characters for one.
    assert all(line.isprintable() and len(line) <= 10 * MAX_LINE for line in lines)
    return None


def has_paths_and_rules_of_its_own(study: Study) -> None:
    models = (path.format(study=study.name) for path in (paths.VERIFIER, paths.VERIFIER_RECORD))
    weights = (paths.checkpoint_path(study.name, one) for one in study.checkpoints())
    written = [*{*jobs_of(study).published(), *models}, *weights]
    assert len({path.lower() for path in written}) == len(written)
    # Nothing that is written is written into the directory of something else.
    within = sorted(f"{path.lower()}/" for path in written)
    assert not any(b.startswith(a) for a, b in pairwise(within))
    # Files are written beside themselves first, as .NAME.PID, and logs are named after them.
    assert max(len(part.encode()) for path in written for part in Path(path).parts) < 240
    assert max(map(len, written)) < 2000
    for kind, names in (("table", study.run.decodings), ("method", study.run.methods)):
        rules = {f"{kind}_{slug(name)}".lower() for name in names}
        assert len(rules) == len(names)
        assert all(rule.isidentifier() for rule in rules)
    titles = ["Base", *(study.method(name).title for name in study.run.methods)]
    assert len(set(titles)) == len(titles)


@pytest.mark.slow
@settings(
    max_examples=150, derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(raw=changed_studies())
def test_what_is_wrong_is_lines_and_what_is_right_passes_every_later_stage(
    raw, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    study = study_or_lines(lambda: parse_study(raw))
    if study is not None:
        write_resolved(study)
        assert study_of(Path(resolved_path(study))) == study
        made_by = [job.fingerprint for job in jobs_of(study)]
        yaml.safe_dump(study.model_dump(), allow_unicode=True).encode()
        has_paths_and_rules_of_its_own(study)
        console = Console(file=io.StringIO())
        print_plan(study, "h200", 8, console)
        print_status(study, console)
    # The same through a file, where the loader comes first and keys are sorted.
    path = tmp_path / "study.yaml"
    try:
        YAML(typ="safe", pure=True).dump(raw, path)
    except ValueError:  # A surrogate, or a number that Python does not write.
        return
    read = study_or_lines(lambda: read_study(path))
    if study is not None:
        assert [job.fingerprint for job in jobs_of(read)] == made_by


def test_each_form_of_a_study_keeps_its_own_file(raw_study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = parse_study(raw_study)
    after = parse_study(merge(raw_study, {"training": {"learning_rate": 1e-4}}))
    first = Path(resolved_path(before))
    for study in (before, after, before):
        write_resolved(study)
        assert study_of(Path(resolved_path(study))) == study
        first.write_bytes(b'{"name": "other"}')  # What is damaged is written again.
    assert len(list(first.parent.iterdir())) == 2
