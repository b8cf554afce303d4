"""Figures hold the numbers of the metrics, in the same bytes every time."""

import numpy as np
import pytest

from stapo import artifacts
from stapo.analysis.figures import FIGURES, draw, moving_mean, write_figure


def test_every_announced_figure_can_be_drawn():
    assert tuple(FIGURES) == artifacts.FIGURE_NAMES


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_a_line_per_method_with_its_values(study, finished, name):
    figure = draw(study, name, finished)
    (panel,) = figure.axes
    raw = [line for line in panel.lines if line.get_alpha() == 0.2]
    assert len(raw) == len(study.run.methods)
    for line, path in zip(raw, artifacts.metrics_paths(study), strict=True):
        values = [FIGURES[name].value(r) for r in artifacts.read_jsonl(finished / path)]
        assert line.get_ydata().tolist() == values
    labels = [text.get_text() for text in panel.get_legend().get_texts()]
    assert labels[: len(raw)] == [study.method(m).title for m in study.run.methods]


def test_files_are_the_same_bytes_every_time(study, finished):
    first = [path.read_bytes() for path in write_figure(study, "entropy", finished)]
    second = [path.read_bytes() for path in write_figure(study, "entropy", finished)]
    assert first == second
    assert first[1].startswith(b"\x89PNG")


def test_the_moving_mean_keeps_a_constant_and_its_length():
    assert moving_mean(np.full(7, 3.0), 3).tolist() == [3.0] * 7
    assert moving_mean(np.array([0.0, 3.0, 6.0]), 3).tolist() == [1.5, 3.0, 4.5]
