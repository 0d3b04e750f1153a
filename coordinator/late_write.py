"""The late write: a worker frozen inside staging outlives the release that it was staging for.

The release's deadline passes while the worker stands still. The release is turned back and undone
by the other worker, long before the frozen one's lease would run out. Then the frozen one returns,
and writes what it had in hand: neither its file nor its row may come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from coordinator import scenarios, tables
from coordinator.claims import Claim, joined, left_of
from coordinator.ledger_facts import read_line
from coordinator.play import Play
from coordinator.runtime import Target
from coordinator.scenarios import Course
from fencepost.records import Event, EventName, Execution, Status
from ledger.database import engine_for
from ledger.vocabulary import ReleaseRequest

DEADLINE = timedelta(seconds=8)
PATIENCE = 60.0


def play_late_write(play: Play, request: ReleaseRequest, target: Target) -> Course:
    """Play it to its end."""
    play.narrator.act(
        "A worker freezes inside a step, and the release runs out of time",
        f"The release has {DEADLINE.total_seconds():g} s; a lease lasts {play.ttl:g} s.",
    )
    struck = scenarios.freeze(play, request, target, deadline=DEADLINE)
    scenarios.tell_frozen(play, struck)
    passed = play.until(lambda: _deadline_passed(play), "the deadline", patience=PATIENCE)
    play.narrator.note("the deadline has passed: the release is turned back, and fenced at once")
    undoer = play.until(
        lambda: _next_owner(play, struck.execution_id, struck.execution.epoch),
        "the undoing of the module",
        patience=PATIENCE,
    )
    last = play.until_the_end()
    frozen = struck.worker.frozen()
    play.narrator.act(
        "The frozen worker returns, to a release that is undone",
        "It still holds the result of its step, and writes it with the epoch that it knows.",
    )
    scenarios.thaw(struck)
    play.narrator.note(
        f"{struck.worker.name} THAWED: {struck.worker.means_of_return}", style="bold white on blue"
    )
    refusals = scenarios.until_refused(play, struck)
    play.narrator.show(tables.refusals(refusals))
    assert last.ended_at is not None  # it has ended
    return Course(
        struck=struck,
        acquired=undoer,
        recovered=None,
        latency=last.ended_at.timestamp() - scenarios.seconds(passed),
        refusals=refusals if frozen else (),
        last=last,
    )


def _deadline_passed(play: Play) -> Event | None:
    store = play.factory.fp.engine.executions
    events = store.events([play.root_id])
    return next((e for e in events if e.name == EventName.DEADLINE_PASSED), None)


def _next_owner(play: Play, execution_id: object, epoch: int) -> Event | None:
    store = play.factory.fp.engine.executions
    mine = [e for e in play.watch.executions if e == execution_id]
    for event in store.events(mine):
        if event.name == EventName.LEASE_ACQUIRED and event.epoch > epoch:
            return event
    return None


def claims_of(play: Play, course: Course) -> list[Claim]:
    """What must have come of it."""
    return [*_turned_back(play, course), *_nothing_left(play, course), *_refused(play, course)]


def _turned_back(play: Play, course: Course) -> Iterator[Claim]:
    last: Execution = course.last
    code = (last.error or {}).get("code", "")
    yield Claim("the release is compensated", last.status is Status.COMPENSATED, str(last.status))
    yield Claim("because its deadline passed", code == "execution.deadline-passed", code)
    took = f"{course.latency:.3f} s"
    yield Claim("without waiting for the frozen one's lease", course.latency < play.ttl, took)
    assert course.acquired is not None  # the undoer's
    owners = {course.struck.execution.owner, course.acquired.owner}
    yield Claim("another worker undid the module", len(owners) == 2, joined(owners))


def _nothing_left(play: Play, course: Course) -> Iterator[Claim]:
    line = read_line(engine_for(play.site.settings.database), play.root_id)
    for attempt in line.attempts:
        left = list(left_of(play, line, attempt))
        what = f"after the thaw: no file and no active row of attempt {attempt.attempt}"
        yield Claim(what, not left, joined(left) or "none")
    key = f"{course.struck.execution_id}:stage:1"
    rows = [artifact for artifact in line.artifacts if artifact.step_key == key]
    yield Claim("the zombie's row was never written", not rows, joined(r.path for r in rows))


def _refused(play: Play, course: Course) -> Iterator[Claim]:
    events = play.factory.fp.engine.executions.events([course.struck.execution_id])
    for name in (EventName.ZOMBIE_WRITE_REJECTED, EventName.LEASE_LOST):
        found = [e for e in events if e.name == name]
        held = bool(found) and all((e.current_epoch or 0) > e.epoch for e in found)
        shown = joined(f"epoch {e.epoch}, current is {e.current_epoch}" for e in found)
        yield Claim(f"{name} is on record", held and bool(course.refusals), shown)
