"""How GPUs are divided among trainings: by hand on few jobs, and what the model must obey."""

from pathlib import Path

import pytest

from stapo.models.shapes import shapes_of
from stapo.operations.costs import DEVICES, Device
from stapo.operations.scale import (
    HEADROOM,
    Division,
    best_engine,
    choices,
    divisions,
    fits,
    largest_budget,
    recommendation,
    training_hours,
    wall_hours,
)
from stapo.repository import ROOT
from stapo.study import Study, read_study

H100 = DEVICES["h100"]


@pytest.fixture(scope="module")
def paper() -> Study:
    return read_study(Path(ROOT / "workflows" / "studies" / "paper.yaml"))


def test_the_longest_jobs_start_first_on_the_gpus_that_are_free():
    assert wall_hours([(2.0, 4), (1.0, 4), (3.0, 4)], 4) == (6.0, 1)
    # The longest two at once, then the short one on the GPUs that are free first.
    assert wall_hours([(2.0, 4), (1.0, 4), (3.0, 4)], 8) == (3.0, 2)
    # One that needs all GPUs waits for both others.
    assert wall_hours([(1.0, 8), (5.0, 4), (2.0, 4)], 8) == (6.0, 2)
    assert wall_hours([], 8) == (0.0, 0)


def test_only_numbers_that_divide_the_mini_batch_hold_whole_engines_and_fit_are_chosen(paper):
    shape = shapes_of(paper)["14B"]
    found = choices(paper, "14B", shape, H100, 100)
    # A mini-batch has 512 responses; on 4 GPUs, parameters with gradients and moments are 59 GB of each.
    assert found == [8, 16, 32, 64]
    assert not fits(paper, shape, paper.engine, 4, H100.memory)
    four = paper.engine.model_copy(update={"vllm_tensor_parallel": 16, "sizes": {}})
    changed = paper.model_copy(update={"engine": four})
    assert choices(changed, "14B", shape, H100, 100) == [16, 32, 64]


def test_more_gpus_for_one_training_cost_more_gpu_hours_once_the_tail_bounds_the_rollout(paper):
    """The longest response takes its steps however few responses an engine has."""
    hours = {gpus: training_hours(paper, "1.7B", "justrl", H100, gpus) for gpus in (8, 64, 128)}
    assert hours[8] > hours[64] > hours[128]
    spent = {gpus: gpus * own for gpus, own in hours.items()}
    assert spent[64] > 1.5 * spent[8]
    # Never faster than one response alone: 15,360 steps of 28 layers, shared by four updates.
    assert hours[128] * 3600 > 3000 / 4 * 15360 * 28 * 0.0003


def test_divisions_count_all_trainings_and_stay_within_the_gpus(paper):
    found = list(divisions(paper, H100, 64))
    assert {len(one.gpus) for one in found} == {3}
    assert all(max(one.gpus) <= 64 for one in found)
    eight = next(one for one in found if one.gpus == (8, 8, 8))
    by_hand = sum(
        8 * training_hours(paper, size, method, H100, 8)
        for size in paper.run.sizes
        for method in paper.run.methods
    )
    assert eight.gpu_hours == pytest.approx(by_hand)
    assert eight.at_once == 8
    assert eight.wall_hours >= by_hand / 64


def test_engine_settings_are_the_fastest_that_fit(paper):
    shape = shapes_of(paper)["14B"]
    engine = best_engine(paper, shape, H100, 8)
    assert engine is not None
    assert fits(paper, shape, engine, 8, H100.memory)
    # A tenth of the memory is left free, and no setting that does so is faster by more than 5 %.
    assert fits(paper, shape, engine, 8, H100.memory, HEADROOM)
    more = engine.model_copy(update={"vllm_gpu_memory": engine.vllm_gpu_memory + 0.05})
    assert not fits(paper, shape, more, 8, H100.memory, HEADROOM)
    assert engine.vllm_tensor_parallel > 1
    small = Device("h100", H100.flops, H100.bandwidth, 10e9)
    assert best_engine(paper, shape, small, 8) is None
    assert largest_budget(paper, shape, engine, small, 8) is None


def test_a_study_that_fits_nowhere_is_said_not_to_fit(paper):
    table, lines = recommendation(paper, Device("h100", H100.flops, H100.bandwidth, 10e9))
    assert list(table.columns[1].cells) == ["does not fit"] * 3
    assert lines[0] == "1.7B on 8 h100: nothing to choose"


def test_the_recommendation_has_the_cheapest_and_the_fastest_division(paper):
    table, lines = recommendation(paper, H100)
    assert list(table.columns[0].cells) == ["8", "8", "64", "64", "512", "512"]
    assert list(table.columns[1].cells) == ["cheapest", "fastest"] * 3
    spent = [float(cell.replace(",", "")) for cell in table.columns[4].cells]
    wall = [float(cell) for cell in table.columns[5].cells]
    assert all(spent[i] <= spent[i + 1] for i in (0, 2, 4))
    assert all(wall[i] >= wall[i + 1] for i in (0, 2, 4))
    assert [line.split()[0] for line in lines] == ["1.7B", "8B", "14B"]
    assert isinstance(next(divisions(paper, H100, 8)), Division)
