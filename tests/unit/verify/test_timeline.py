"""Who owned an execution, and when, from audit events."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from fencepost.verify import CheckpointFact, EventFact, Timeline

ID = uuid4()
START = datetime(2026, 1, 1, tzinfo=UTC)


def event(number: int, name: str, epoch: int, owner: str, **details: object) -> EventFact:
    return EventFact(
        event_id=number,
        execution_id=ID,
        name=name,
        epoch=epoch,
        current_epoch=None,
        owner=owner,
        current_owner=None,
        step_key=None,
        sink=None,
        payload_digest=None,
        details=details,
        at=START + timedelta(minutes=number),
    )


def checkpoint(seq: int, epoch: int, minutes: float) -> CheckpointFact:
    return CheckpointFact(
        checkpoint_id=uuid4(),
        execution_id=ID,
        seq=seq,
        parent_checkpoint_id=UUID(int=0),
        kind="step",
        step="stage",
        visit=1,
        step_key=f"{ID}:stage:1",
        epoch=epoch,
        owner="a",
        result=None,
        created_at=START + timedelta(minutes=minutes),
    )


ACQUIRED = event(1, "lease.acquired", 1, "a", head_seq=0)
TAKEN_OVER = event(2, "lease.acquired", 2, "b", head_seq=1)


def test_a_checkpoint_after_the_takeovers_head_is_stale():
    timeline = Timeline(ID, [ACQUIRED, TAKEN_OVER])
    assert timeline.successor_before(checkpoint(1, 1, minutes=1.5)) is None
    stale = timeline.successor_before(checkpoint(2, 1, minutes=3))
    assert stale is not None
    assert stale.owner == "b"


def test_a_clock_that_was_set_back_makes_nothing_stale():
    timeline = Timeline(ID, [ACQUIRED, TAKEN_OVER])
    assert timeline.successor_before(checkpoint(1, 1, minutes=60)) is None


def test_without_a_recorded_head_the_clock_is_asked():
    timeline = Timeline(ID, [ACQUIRED, replace(TAKEN_OVER, details={})])
    assert timeline.successor_before(checkpoint(2, 1, minutes=1.5)) is None
    assert timeline.successor_before(checkpoint(2, 1, minutes=3)) is not None


def test_only_who_raises_its_own_epoch_stays_the_owner():
    own = event(2, "execution.epoch-raised", 2, "a", by=str(ID), head_seq=1)
    parents = event(3, "execution.epoch-raised", 3, "p", by=str(uuid4()), head_seq=1)
    timeline = Timeline(ID, [ACQUIRED, own, parents])
    assert timeline.owned(2, "a")
    assert not timeline.owned(3, "p")
    assert timeline.owned(3, None)


def test_other_events_begin_no_epoch():
    assert Timeline(ID, [event(1, "execution.started", 0, "")]).tenures == ()
