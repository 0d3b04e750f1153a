"""One release under a scenario's eyes: it starts it, follows it, and acts at named points."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from coordinator.composition import Factory
from coordinator.narrator import Narrator
from coordinator.runtime import Runtime
from coordinator.site import Site
from coordinator.watch import Fact, Watch
from fencepost.errors import FencepostError
from fencepost.records import Event, EventName, Execution, Status
from ledger.vocabulary import ReleaseRequest
from saga.release import release

POLL = 0.1
PATIENCE = 90.0
"""Seconds without the awaited happening until a scenario gives up."""

T = TypeVar("T")


class ScenarioError(FencepostError):
    """A scenario did not take its course."""

    code = "scenario.failed"


Listener = Callable[[Watch, Sequence[Fact]], None]


class Play:
    """A release and its surroundings.

    Args:
        runtime: The workers, and the site that they are on.
        factory: Of this process.
        narrator: Tells what happens.
        listener: Is given all news first, and narrates them.
    """

    def __init__(
        self,
        runtime: Runtime,
        factory: Factory,
        narrator: Narrator,
        listener: Listener | None = None,
    ) -> None:
        self.runtime = runtime
        self.factory = factory
        self.narrator = narrator
        self._listener = listener
        self._watch: Watch | None = None
        self._events: list[Event] = []

    @property
    def site(self) -> Site:
        """Servers and folders."""
        return self.runtime.site

    @property
    def watch(self) -> Watch:
        """What is followed; there after `start`."""
        assert self._watch is not None  # start() was called
        return self._watch

    @property
    def root_id(self) -> UUID:
        """The execution that was started; also the id of the line of attempts."""
        return self._root_id

    @property
    def ttl(self) -> float:
        """The lease time in seconds."""
        return self.site.settings.lease_ttl

    def start(self, request: ReleaseRequest, deadline: timedelta | None = None) -> UUID:
        """Start the release."""
        request = self.runtime.adapted(request)
        handle = self.factory.fp.start(release, request, deadline=deadline)
        self._name = request.name
        self._root_id = handle.execution_id
        self._watch = Watch(self.factory.fp.engine.executions, handle.execution_id)
        execution = self.read(handle.execution_id)
        self.narrator.begin(execution.created_at)
        return handle.execution_id

    def read(self, execution_id: UUID) -> Execution:
        """An execution's row as it is now."""
        execution = self.factory.fp.engine.executions.get(execution_id)
        if execution is None:
            raise ScenarioError(f"execution {execution_id} is gone")
        return execution

    def collect(self) -> None:
        """Have what the release has left on disk in the site's folders."""
        self.runtime.collect(self.root_id, self._name)

    def look(self) -> None:
        """Take notice of what has happened, and tell it."""
        news = self.watch.news()
        self._events += [fact.entry for fact in news if isinstance(fact.entry, Event)]
        if self._listener is not None:
            self._listener(self.watch, news)
        else:
            self.narrator.facts(news)

    def until(
        self,
        found: Callable[[], T | None],
        what: str,
        *,
        patience: float = PATIENCE,
        after_the_end: bool = False,
    ) -> T:
        """Follow the release until something is there.

        Args:
            found: Returns it, or something false.
            what: For the error, as in "... did not happen within 90 s".
            patience: Seconds.
            after_the_end: It may also come when the release has ended.

        Raises:
            ScenarioError: It doesn't come, or the release ended without it.
        """
        deadline = time.monotonic() + patience
        while True:
            # Known before looking: what there is when a release has ended is seen then.
            ended = self.ending() is not None
            self.look()
            result = found()
            if result:
                return result
            if ended and not after_the_end:
                raise ScenarioError(f"the release has ended, and {what} did not happen")
            if time.monotonic() > deadline:
                raise ScenarioError(f"{what} did not happen within {patience:.0f} s")
            time.sleep(POLL)

    def ending(self) -> Execution | None:
        """The last attempt, if the line has come to its end or waits for a person."""
        attempts = self.watch.attempts()
        if not attempts or attempts[-1].status is Status.CONTINUED:
            return None
        last = attempts[-1]
        return last if last.status.ended or self.watch.waiting_for_a_person() else None

    def until_the_end(self) -> Execution:
        """Follow the release to its end; returns the last attempt."""
        last = self.until(self.ending, "the end")
        self.look()
        return last

    def event(self, execution_id: UUID, name: EventName, epoch: int) -> Event | None:
        """The first event of that name and epoch that has been seen."""
        wanted = (execution_id, name, epoch)
        for event in self._events:
            if (event.execution_id, event.name, event.epoch) == wanted:
                return event
        return None

    def lease_left(self, execution_id: UUID) -> timedelta | None:
        """How long the lease on an execution still lasts, by Redis's own clock."""
        (state,) = self.factory.fp.engine.leases.state([execution_id])
        return None if state is None else state.remaining
