"""Callbacks: a signal ends a training between two steps."""

import os
import signal
from types import SimpleNamespace

import pytest

from stapo.training.callbacks import StopBetweenSteps
from stapo.training.launch import NOTICE


@pytest.fixture
def stop():
    names = (signal.SIGTERM, signal.SIGINT, NOTICE)
    before = {name: signal.getsignal(name) for name in names}
    yield StopBetweenSteps()
    for name, handler in before.items():
        signal.signal(name, handler)


def after_step(stop: StopBetweenSteps) -> tuple[bool, bool]:
    """Return whether the training saves and stops after a step."""
    control = SimpleNamespace(should_training_stop=False, should_save=False)
    stop.on_step_end(None, SimpleNamespace(global_step=3, is_world_process_zero=True), control)
    return control.should_save, control.should_training_stop


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT, NOTICE])
def test_a_signal_lets_the_step_end_and_saves_it(stop, name, capsys):
    assert after_step(stop) == (False, False)
    os.kill(os.getpid(), name)
    assert not stop.asked
    assert after_step(stop) == (True, True)
    assert stop.asked
    assert capsys.readouterr().out == "told to stop: saving step 3\n"


def test_a_second_signal_ends_it_at_once_but_a_second_notice_does_not(stop):
    os.kill(os.getpid(), NOTICE)
    os.kill(os.getpid(), NOTICE)
    assert after_step(stop) == (True, True)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
