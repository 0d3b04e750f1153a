"""The holder's clock."""

import sys
import time

import pytest

from fencepost.clock import seconds_alive
from fencepost.engine import EngineOptions


def test_it_never_runs_backwards() -> None:
    readings = [seconds_alive() for _ in range(1_000)]
    assert readings == sorted(readings)


@pytest.mark.skipif(sys.platform != "linux", reason="names Linux's clock")
def test_on_linux_it_counts_while_the_machine_sleeps() -> None:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert now <= seconds_alive() < now + 5.0


def test_holders_count_on_it() -> None:
    assert EngineOptions().clock is seconds_alive
