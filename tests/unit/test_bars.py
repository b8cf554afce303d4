"""Progress is a line of its own in a log, with rate and time left, and a bar in a terminal."""

import re

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
