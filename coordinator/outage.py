"""The outage: Redis is restarted under a release, with a worker in mid-step."""

from __future__ import annotations

import time
from collections.abc import Iterator

from coordinator import scenarios
from coordinator.claims import Claim, joined, left_of
from coordinator.ledger_facts import read_line
from coordinator.phrases import worker_of
from coordinator.play import Play
from coordinator.runtime import Action, Target
from coordinator.scenarios import Course
from fencepost.records import CheckpointKind, EventName, Execution, Status
from ledger.database import engine_for
from ledger.vocabulary import ReleaseRequest

STEP = "stage"


def play_redis_restart(play: Play, request: ReleaseRequest, target: Target) -> Course:
    """Play it to its end."""
    struck = scenarios.strike(play, request, target, Action.HOLD)
    play.narrator.note(f"{struck.worker.name} is inside a step, and Redis is restarted now")
    scenarios.tell_in_hand(play, struck)
    play.runtime.restart_redis()
    back = time.time() + scenarios.clock_offset(play.factory.fp.database)
    play.narrator.note("Redis is back: broker, leases and results were gone for a while")
    struck.trap.let_go()
    done = play.until(lambda: _step_done(play, struck.execution), "the end of the step in hand")
    last = play.until_the_end()
    epoch = struck.execution.epoch + 1
    return Course(
        struck=struck,
        acquired=play.event(struck.execution_id, EventName.LEASE_ACQUIRED, epoch),
        recovered=play.event(struck.execution_id, EventName.RECOVERED, epoch),
        latency=done - struck.at,
        refusals=(),
        last=last,
        returned=back,
    )


def _step_done(play: Play, execution: Execution) -> float | None:
    chain = play.factory.fp.engine.executions.chain(execution.execution_id)
    times = [c.created_at.timestamp() for c in chain if (c.step, c.kind) == _DONE]
    return times[0] if times else None


_DONE = (STEP, CheckpointKind.STEP)


def claims_of(play: Play, course: Course) -> list[Claim]:
    """What must have come of it."""
    return [*_chain(play, course), *_outcome(play, course)]


def _chain(play: Play, course: Course) -> Iterator[Claim]:
    store = play.factory.fp.engine.executions
    struck = course.struck
    chain = store.chain(struck.execution_id)
    kept = chain[: len(struck.chain)] == struck.chain
    yield Claim("what was done before is kept", kept, joined(c.step for c in struck.chain[1:]))
    links = [c.parent_checkpoint_id for c in chain[1:]]
    in_line = links == [c.checkpoint_id for c in chain[:-1]]
    yield Claim("the checkpoints are one line", in_line, " → ".join(c.step for c in chain))
    done = [c for c in chain if (c.step, c.kind) == _DONE]
    shown = joined(f"epoch {c.epoch}, {worker_of(c.owner)}" for c in done)
    yield Claim("the step in hand was done once", len(done) == 1, shown)
    events = store.events([struck.execution_id])
    epochs = [e.epoch for e in events if e.name == EventName.LEASE_ACQUIRED]
    in_order = epochs == list(range(1, len(epochs) + 1))
    yield Claim("no epoch was given twice or left out", in_order, joined(epochs))


def _outcome(play: Play, course: Course) -> Iterator[Claim]:
    last = play.read(course.last.execution_id)
    line = read_line(engine_for(play.site.settings.database), play.root_id)
    wanted = sorted(module["name"] for module in last.input["modules"])
    out = sorted(p.module for p in line.promotions if p.attempt_id == last.execution_id)
    promoted = last.status is Status.SUCCEEDED and out == wanted
    yield Claim(f"{len(wanted)} modules promoted, each once", promoted, joined(out))
    for attempt in line.attempts:
        if attempt.execution_id != last.execution_id:
            left = list(left_of(play, line, attempt))
            shown = joined(left) or "no row, no file"
            yield Claim(f"nothing active of attempt {attempt.attempt}", not left, shown)
