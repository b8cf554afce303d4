"""The rule `intervene`: only where a study asks, and again only for what it depends on."""

import pytest
from test_state_machine import CHANGES, World

from stapo import paths

UNTOUCHED = {"prompts", "base_model", "train", "weights", "generate", "score"}
"""Rules on whose results interventions have no influence."""


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path / "world")


def jobs(said: str) -> dict[str, int]:
    """Return how many jobs of each rule Snakemake announced."""
    rows = [line.split() for line in said.split("Job stats:")[1].split("total")[0].splitlines()[3:]]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[0] != "all"}


def test_interventions_are_made_and_repeated_where_something_changed(world, monkeypatch):
    assert "intervene" not in jobs(world.run())
    world.changed.add("interventions")
    found = jobs(world.run())
    assert {"intervene": 2, "figure": 2, "report": 1, "provenance": 1}.items() <= found.items()
    assert not UNTOUCHED & {*found}
    for path in paths.intervention_paths(world.study()):
        assert (world.path / path).exists()
    assert "Nothing to be done" in world.run()
    monkeypatch.setitem(
        CHANGES["interventions"],
        "interventions",
        {**CHANGES["interventions"]["interventions"], "prompts": 4},
    )
    said = world.run("-n")
    assert jobs(said)["intervene"] == 2
    assert "interventions.prompts=4" in said
    assert not UNTOUCHED & {*jobs(said)}
