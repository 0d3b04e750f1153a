"""Carries a plan out, each action in a thread of its own, until it is told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from tests.chaos.actions import ACTIONS, Doing, NotNow
from tests.chaos.history import History
from tests.chaos.plan import Planned
from tests.chaos.site import Site

UNDO_PATIENCE = 60.0


class Nemesis:
    """Does what is planned.

    Args:
        site: To whom.
        planned: What and when.
        history: Where it is written.
    """

    def __init__(self, site: Site, planned: Iterator[Planned], history: History) -> None:
        self._site = site
        self._planned = planned
        self._history = history
        self._stop = threading.Event()
        self._busy: set[str] = set()
        self._lock = threading.Lock()
        self._acting: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, patience: float = UNDO_PATIENCE) -> None:
        """Undo what is under way, and do nothing more; waits at most so many seconds."""
        self._stop.set()
        self._site.calm.set()
        self._thread.join()
        give_up = time.monotonic() + patience
        for thread in self._acting:
            thread.join(max(0.1, give_up - time.monotonic()))

    def _run(self) -> None:
        began = time.monotonic()
        for planned in self._planned:
            if self._stop.wait(max(0.0, began + planned.at - time.monotonic())):
                return
            self._acting = [thread for thread in self._acting if thread.is_alive()]
            thread = threading.Thread(target=self._act, args=(planned,), daemon=True)
            self._acting.append(thread)
            thread.start()

    def _act(self, planned: Planned) -> None:
        # One thing at a time to each target: what one action undoes, another has just done.
        with self._lock:
            free = planned.target not in self._busy
            self._busy.add(planned.target)
        if not free:
            self._note(planned, "busy", done=False)
            return
        try:
            self._do(planned)
        finally:
            with self._lock:
                self._busy.discard(planned.target)

    def _do(self, planned: Planned) -> None:
        doing = ACTIONS[planned.kind](self._site, planned)
        try:
            self._note(planned, next(doing), done=True)
        except Exception as problem:  # noqa: BLE001 - what fails here is part of the chaos
            self._note(planned, _named(problem), done=False)
            return
        self._stop.wait(planned.lasts)
        self._undo(planned, doing)

    def _undo(self, planned: Planned, doing: Doing) -> None:
        try:
            next(doing)
        except StopIteration as end:
            if end.value:
                self._history.add("undone", planned.kind, target=planned.target, answer=end.value)
        except Exception as problem:  # noqa: BLE001 - the site is healed at the end anyway
            answer = _named(problem)
            self._history.add("undone", planned.kind, target=planned.target, answer=answer)

    def _note(self, planned: Planned, answer: str, *, done: bool) -> None:
        self._history.add(
            "action",
            planned.kind,
            target=planned.target,
            answer=answer,
            done=done,
            planned_at=planned.at,
            lasts=planned.lasts,
        )


def _named(problem: Exception) -> str:
    if isinstance(problem, NotNow):
        return str(problem)
    return f"{type(problem).__name__}: {problem}"
