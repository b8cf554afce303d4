"""Progress is a line of its own in a log, with rate and time left, and a bar in a terminal."""

import re

from huggingface_hub.utils import are_progress_bars_disabled
from transformers.utils import logging as transformers_logging

from stapo import bars


def test_in_a_log_each_state_is_a_line(monkeypatch, capsys):
    monkeypatch.setitem(bars.SECONDS, "log", 0.0)
    with bars.bar("generating", 4, "response", initial=1) as shown:
        for name in "ab":
            shown.set_postfix_str(name, refresh=False)
            shown.update()
    assert list(bars.bar("moments", 3, "rollout", over=range(3))) == [0, 1, 2]
    said, moments = capsys.readouterr().err.split("moments:", 1)
    assert "3 of 3 rollouts" in moments
    assert "\r" not in said
    first, *_, last = said.splitlines()
    assert first.startswith("generating: 1 of 4 responses, ")
    assert re.fullmatch(r"generating: 3 of 4 responses, +[\d.,]+response/s, b, [\d:]+ left", last)


def test_transformers_shows_no_bars_of_files(monkeypatch, capfd):
    monkeypatch.setattr(transformers_logging, "_tqdm_active", True)
    for shown_by_default in (True, False):
        with transformers_logging.tqdm(["file"], desc="Writing model shards") as shown:
            assert [*shown] == ["file"]
        assert ("Writing model shards" in capfd.readouterr().err) == shown_by_default
        bars.only_ours()
    # A download of gigabytes without a word would look dead.
    assert not are_progress_bars_disabled()
