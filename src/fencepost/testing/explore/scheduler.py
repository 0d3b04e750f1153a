"""Cooperative tasks: each runs until its next scheduling point, and somebody else says who moves.

The engine's own, synchronous code runs in greenlets. A scheduling point is a plain call that
switches to the scheduler, so that nothing of the engine has to know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from greenlet import getcurrent, greenlet

START = "start"
"""Where a task is that nobody has moved yet."""


class Gone(BaseException):
    """Ends what is left of a dead task when the world ends. Nothing catches it."""


class Condition(StrEnum):
    """What can become of a task."""

    READY = "ready"
    FROZEN = "frozen"
    DEAD = "dead"
    DONE = "done"


class Verdict(StrEnum):
    """What a task is told at a scheduling point."""

    GO = "go"
    LOSE_ANSWER = "lose-answer"
    """Do it, and don't hear that it is done."""
    LOSE_REQUEST = "lose-request"
    """It never arrives, and an error is all that comes back."""


@dataclass(eq=False)
class Task:
    """A delivery, a reaper's pass, or what a user does.

    Attributes:
        worker: Who runs it.
        at: What it is about to do.
        lossy: Whether the answer to that can get lost.
        after: Must have come to its end before this one begins.
        patient: Whether time may go by before it begins, as with what a user does.
    """

    name: str
    worker: str
    condition: Condition = Condition.READY
    at: str = START
    lossy: bool = False
    after: Task | None = None
    patient: bool = False
    green: Any = field(default=None, repr=False)

    @property
    def ready(self) -> bool:
        """Whether it can move."""
        if self.condition is not Condition.READY:
            return False
        return self.after is None or self.after.condition is Condition.DONE

    @property
    def waits_to_begin(self) -> bool:
        """Whether it is a user's task that nobody has moved yet."""
        return self.patient and self.at == START


class Scheduler:
    """Holds the tasks. Whoever drives it runs in the greenlet that made it."""

    def __init__(self) -> None:
        self._hub = getcurrent()
        self._ended = False
        self._of: dict[Any, Task] = {}
        self.tasks: list[Task] = []
        self.errors: list[tuple[Task, BaseException]] = []

    def spawn(
        self,
        name: str,
        worker: str,
        function: Callable[[], object],
        *,
        after: Task | None = None,
        patient: bool = False,
    ) -> Task:
        """Add a task; it begins when it is first moved. See `Task` for the arguments."""
        task = Task(name, worker, after=after, patient=patient)

        def body(_verdict: Verdict) -> None:
            try:
                function()
            except Gone:
                pass
            except BaseException as error:  # noqa: BLE001 - reported; a task must not end the hub
                self.errors.append((task, error))
            task.condition = Condition.DONE

        task.green = greenlet(body, parent=self._hub)
        self._of[task.green] = task
        self.tasks.append(task)
        return task

    def current(self) -> Task | None:
        """The task that runs; None for whoever drives."""
        return self._of.get(getcurrent())

    def perish(self) -> None:
        """The task that runs dies here, as a process does that its own code kills."""
        task = self.current()
        assert task is not None, "only a task can die"
        task.condition = Condition.DEAD
        self._hub.switch()
        raise Gone

    def move(self, task: Task, verdict: Verdict = Verdict.GO) -> None:
        """Let a task go on to its next scheduling point, or to its end."""
        task.green.switch(verdict)

    def point(self, what: str, *, lossy: bool = False) -> Verdict:
        """Where a task may be stopped. Outside of a task, and once the world has ended, no stop.

        Args:
            what: The task is about to do.
            lossy: Whether its answer can get lost.
        """
        if self._ended:
            raise Gone
        task = self.current()
        if task is None:
            return Verdict.GO
        task.at, task.lossy = what, lossy
        verdict: Verdict = self._hub.switch()
        if self._ended:
            raise Gone
        return verdict

    def end(self) -> None:
        """Throw away what has not come to its end; nothing of it touches the world any more."""
        self._ended = True
        for task in self.tasks:
            if task.green and not task.green.dead:
                task.green.throw(Gone)
