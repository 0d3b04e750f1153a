"""How long a heartbeat renews."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from fencepost.engine.heartbeat import Heartbeat
from fencepost.stores.memory import MemoryLeaseStore

TTL = timedelta(seconds=3)


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def heart(clock: Clock) -> Heartbeat:
    """Beats when the test says so."""
    leases = MemoryLeaseStore(clock=clock)
    held = leases.acquire(uuid4(), "me", TTL)
    assert held is not None
    settled = leases.settle(held, 1, TTL)
    assert settled is not None
    return Heartbeat(leases, settled, TTL, clock)


def lasts(heart: Heartbeat, clock: Clock, seconds: int) -> bool:
    """Whether a beat each second keeps the lease for so long."""
    for _ in range(seconds):
        clock.now += 1
        heart._renew()
    return not heart.lost()


def test_a_lease_is_renewed_for_as_long_as_a_step_runs(heart: Heartbeat, clock: Clock) -> None:
    assert lasts(heart, clock, 1_000)


def test_a_step_has_its_time_and_no_more(heart: Heartbeat, clock: Clock) -> None:
    heart.limit(timedelta(seconds=5))
    assert lasts(heart, clock, 4)
    assert not lasts(heart, clock, 1)


def test_a_commit_that_hangs_keeps_nobody_away(heart: Heartbeat, clock: Clock) -> None:
    with heart.bounded():
        assert lasts(heart, clock, 2)
        assert not lasts(heart, clock, 1)


def test_a_commit_in_time_leaves_the_limit_as_it_was(heart: Heartbeat, clock: Clock) -> None:
    heart.limit(timedelta(seconds=20))
    for _ in range(5):
        with heart.bounded():
            assert lasts(heart, clock, 2)
    assert lasts(heart, clock, 9)
    assert not lasts(heart, clock, 1)


def test_a_commit_has_no_more_time_than_its_step(heart: Heartbeat, clock: Clock) -> None:
    heart.limit(timedelta(seconds=1))
    with heart.bounded():
        assert not lasts(heart, clock, 1)
