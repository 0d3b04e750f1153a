"""Freeze, kill, terminate, cut off: a worker is hit in mid-step, and the release goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import sqlalchemy as sa
from celery import Celery

from coordinator.play import Play, ScenarioError
from coordinator.runtime import Action, Target, Trap, Worker
from fencepost.errors import ConfigurationError
from fencepost.records import Checkpoint, CheckpointKind, Event, EventName, Execution
from fencepost.stores.sql.engine import READ
from fencepost.stores.sql.types import now
from ledger.vocabulary import ReleaseRequest

FREEZE_SECONDS = 5.0
STEP_SECONDS = 30.0
RETURN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Struck:
    """A worker that was hit, and what it was doing.

    Attributes:
        at: Seconds since 1970, by the database's clock.
        execution: Its row right after the hit.
        chain: Its checkpoints right after the hit.
        trap: What it fell into.
        point: The crash point.
    """

    worker: Worker
    trap: Trap
    point: str
    pid: int
    at: float
    execution: Execution
    chain: tuple[Checkpoint, ...]

    @property
    def execution_id(self) -> UUID:
        """Of the execution that the worker had in hand."""
        return self.execution.execution_id


@dataclass(frozen=True, slots=True)
class Course:
    """What became of it.

    Attributes:
        acquired: The next owner's acquisition; None if the worker has kept the execution.
        recovered: The takeover; None where the execution was handed on.
        latency: Seconds until the next owner: from the hit, or from the end of the step for a
            worker that was terminated. Where nobody was hit, until the end of the step in hand.
        refusals: What the hit worker tried to write later, and could not.
        last: The last attempt of the release, at the end.
        returned: When all was as before the hit, in seconds since 1970 by the database's clock.
    """

    struck: Struck
    acquired: Event | None
    recovered: Event | None
    latency: float
    refusals: tuple[Event, ...]
    last: Execution
    returned: float | None = None


def refuse_company(app: Celery) -> None:
    """Make sure that no other worker takes part.

    Raises:
        ConfigurationError: Workers answer on this broker that are not the scenario's own.
    """
    answers = app.control.ping(timeout=1.0) or []
    others = sorted(name for answer in answers for name in answer)
    if others:
        raise ConfigurationError(
            f"workers are at work on this broker ({', '.join(others)}), and would take part in"
            " the scenario: stop them, or let the scenario start servers of its own (--embedded)"
        )


def strike(
    play: Play,
    request: ReleaseRequest,
    target: Target,
    action: Action,
    *,
    deadline: timedelta | None = None,
) -> Struck:
    """Start a release, and wait until a worker was hit at the target.

    Raises:
        ScenarioError: No worker came there.
        UnsupportedError: The runtime has no means for this action.
    """
    trap = play.runtime.trap(target, action)
    try:
        play.start(request, deadline)
        sprung = play.until(
            trap.sprung, f"{target.point} in {target.module}, where a worker is hit"
        )
    finally:
        trap.disarm()
    execution = play.until(
        lambda: play.watch.module(target.module, sprung.attempt), "the module's execution"
    )
    hit = trap.hit(sprung, play.read(execution.execution_id))
    store = play.factory.fp.engine.executions
    return Struck(
        worker=hit.worker,
        trap=trap,
        point=target.point,
        pid=sprung.pid,
        at=hit.at + clock_offset(play.factory.fp.database),
        execution=play.read(execution.execution_id),
        chain=store.chain(execution.execution_id),
    )


def freeze(
    play: Play, request: ReleaseRequest, target: Target, *, deadline: timedelta | None = None
) -> Struck:
    """Freeze a worker, and wait until the operating system says that all of it stands still."""
    struck = strike(play, request, target, Action.FREEZE, deadline=deadline)
    until = time.monotonic() + FREEZE_SECONDS
    while not struck.worker.frozen():
        if time.monotonic() > until:
            raise ScenarioError(f"{struck.worker.name} was frozen and runs on")
        time.sleep(0.02)
    return struck


def tell_frozen(play: Play, struck: Struck) -> None:
    """Say who was frozen, and what it had in hand."""
    worker = struck.worker
    done = [c.step for c in struck.chain if c.kind is CheckpointKind.STEP]
    play.narrator.note(
        f"{worker.name} FROZEN: {worker.means(Action.FREEZE)}, in mid-step",
        style="bold white on blue",
    )
    tell_in_hand(play, struck)
    play.narrator.detail(
        f"committed: {', '.join(done)}. Its archive is on disk, under a name with its epoch;"
        " no row makes it visible"
    )


def tell_in_hand(play: Play, struck: Struck) -> None:
    """Say what the worker was doing."""
    execution = struck.execution
    play.narrator.detail(
        f"at {struck.point}; in hand: {execution.input['module']['name']}, execution"
        f" {struck.execution_id}, epoch {execution.epoch}"
    )


def until_expired(play: Play, struck: Struck) -> None:
    """Show what is left of the lease until it has run out."""
    countdown = play.narrator.countdown(play.ttl)
    try:
        while (left := play.lease_left(struck.execution_id)) is not None:
            countdown.show(left.total_seconds())
            play.look()
            time.sleep(0.1)
    finally:
        countdown.end()


def until_taken_over(play: Play, struck: Struck) -> tuple[Event, Event]:
    """Wait for the takeover; returns the acquisition and the recovery."""
    epoch = struck.execution.epoch + 1
    acquired = play.until(
        lambda: play.event(struck.execution_id, EventName.LEASE_ACQUIRED, epoch), "the takeover"
    )
    recovered = play.until(
        lambda: play.event(struck.execution_id, EventName.RECOVERED, epoch), "the takeover"
    )
    return acquired, recovered


def until_module_ended(play: Play, struck: Struck) -> Execution:
    """Wait until the execution that was hit has ended."""

    def ended() -> Execution | None:
        execution = play.read(struck.execution_id)
        return execution if execution.status.ended else None

    return play.until(ended, "the end of the recovered execution")


def thaw(struck: Struck) -> None:
    """Let a frozen worker go on as if nothing had happened."""
    struck.worker.come_back()
    struck.trap.let_go()


def until_refused(play: Play, struck: Struck) -> tuple[Event, ...]:
    """Wait until both the ledger and the checkpoint store have refused the thawed worker."""
    epoch = struck.execution.epoch
    names = (EventName.ZOMBIE_WRITE_REJECTED, EventName.LEASE_LOST)

    def both() -> Sequence[Event] | None:
        found = [play.event(struck.execution_id, name, epoch) for name in names]
        return [event for event in found if event] if all(found) else None

    return tuple(play.until(both, "both refusals", patience=STEP_SECONDS, after_the_end=True))


def kill(play: Play, request: ReleaseRequest, target: Target) -> Course:
    """Kill a whole worker in mid-step; it never returns."""
    struck = strike(play, request, target, Action.KILL)
    worker = struck.worker
    play.narrator.note(f"{worker.name} KILLED: {worker.means(Action.KILL)}, in mid-step")
    worker.wait_until_it_ends(FREEZE_SECONDS)
    acquired, recovered = until_taken_over(play, struck)
    return Course(
        struck=struck,
        acquired=acquired,
        recovered=recovered,
        latency=seconds(recovered) - struck.at,
        refusals=(),
        last=play.until_the_end(),
    )


def term(play: Play, request: ReleaseRequest, target: Target) -> Course:
    """SIGTERM to a worker in mid-step: it finishes the step, and hands the execution on."""
    struck = strike(play, request, target, Action.HOLD)
    worker = struck.worker
    worker.terminate()
    worker.wait_until_it_says("Warm shutdown", STEP_SECONDS)
    play.narrator.note(f"{worker.name} TERMINATED: SIGTERM to its main process, in mid-step")
    # From here on the step can end; before, the worker has learnt that it must leave.
    released = time.time() + clock_offset(play.factory.fp.database)
    struck.trap.let_go()
    epoch = struck.execution.epoch + 1
    acquired = play.until(
        lambda: play.event(struck.execution_id, EventName.LEASE_ACQUIRED, epoch), "the hand-over"
    )
    last = play.until_the_end()
    code = worker.wait_until_it_ends(STEP_SECONDS)
    if code != 0:
        raise ScenarioError(f"{worker.name} was terminated warmly, and ended with exit code {code}")
    return Course(
        struck=struck,
        acquired=acquired,
        recovered=play.event(struck.execution_id, EventName.RECOVERED, epoch),
        latency=seconds(acquired) - released,
        refusals=(),
        last=last,
    )


def partition(play: Play, request: ReleaseRequest, target: Target) -> Course:
    """Cut a worker off from every server in mid-step; it works on, and is connected again later."""
    struck = strike(play, request, target, Action.CUT_OFF)
    worker = struck.worker
    play.narrator.note(
        f"{worker.name} CUT OFF: {worker.means(Action.CUT_OFF)}, in mid-step",
        style="bold white on blue",
    )
    tell_in_hand(play, struck)
    struck.trap.let_go()
    play.narrator.detail("it goes on with the step, and reaches neither PostgreSQL nor Redis")
    until_expired(play, struck)
    acquired, recovered = until_taken_over(play, struck)
    until_module_ended(play, struck)
    worker.come_back()
    returned = time.time() + clock_offset(play.factory.fp.database)
    play.narrator.note(
        f"{worker.name} is CONNECTED again: {worker.means_of_return}", style="bold white on blue"
    )
    last = play.until_the_end()
    until_it_answers(play, worker)
    play.narrator.note(f"{worker.name} answers again, and takes work")
    play.look()
    names = (EventName.ZOMBIE_WRITE_REJECTED, EventName.LEASE_LOST)
    epoch = struck.execution.epoch
    # A worker that works on knows that it lost its lease, and may not even try to write.
    refused = [play.event(struck.execution_id, name, epoch) for name in names]
    return Course(
        struck=struck,
        acquired=acquired,
        recovered=recovered,
        latency=seconds(recovered) - struck.at,
        refusals=tuple(event for event in refused if event) if all(refused) else (),
        last=last,
        returned=returned,
    )


def until_it_answers(play: Play, worker: Worker) -> None:
    """Wait until a worker answers over the broker.

    Raises:
        ScenarioError: It doesn't.
    """
    control = play.factory.app.control
    deadline = time.monotonic() + RETURN_SECONDS
    while True:
        answers = control.ping(timeout=1.0) or []
        if any(name.partition("@")[0] == worker.name for answer in answers for name in answer):
            return
        if time.monotonic() > deadline:
            raise ScenarioError(f"{worker.name} does not answer within {RETURN_SECONDS:.0f} s")


def clock_offset(database: sa.Engine) -> float:
    """How far the database's clock is ahead of this machine's, in seconds."""
    with database.connect() as connection:
        before = time.time()
        there = connection.execution_options(**READ).execute(sa.select(now())).scalar_one()
        between = (before + time.time()) / 2
    return there.timestamp() - between


def seconds(event: Event) -> float:
    """When it was recorded, in seconds since 1970, by the database's clock."""
    assert event.at is not None  # it was stored
    return event.at.timestamp()
