"""Starts orders, refunds and releases at a steady rate; which ones, the seed says."""

from __future__ import annotations

import itertools
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from fencepost import Fencepost, FencepostError, Handle
from tests.chaos.history import History
from tests.chaos.shop import SAGAS, Work

MIX = ("order", "refund", "order", "release", "refund")
STARTERS = 3
"""Threads that start: one that is stuck at a silent server doesn't hold the others up."""

LONG = 2.5
"""Seconds that some steps take: longer than a lease, and than the short visibility timeout."""

RETRY_EVERY = 0.5

MOST_OPEN = 20
"""Executions that haven't ended: with more than these, the client waits with the next.

How many a machine gets done, the nemesis and the machine's other work decide; a queue that only
grows would be all that a long run tests.
"""

DOOMED = {
    "order": ("pack", "ship"),
    "release": ("register[1]", "gate", "promote"),
    "refund": (),
}


def works(seed: int) -> Iterator[tuple[str, Work]]:
    """What is started, in order, without end."""
    draw = random.Random(f"work {seed}")
    for number, kind in zip(itertools.count(1), itertools.cycle(MIX)):
        doomed = draw.random() < 0.3 and DOOMED[kind]
        seconds = LONG if draw.random() < 0.06 else draw.uniform(0.3, 0.9)
        yield (
            kind,
            Work(
                reference=f"{kind}-{number}",
                doomed=draw.choice(doomed) if doomed else "",
                seconds=round(seconds, 2),
                items=draw.randint(2, 4) if kind == "release" else 0,
            ),
        )


class Workload:
    """A client that starts executions, and tries again until it knows that they are started.

    Args:
        fp: Its Fencepost.
        seed: Drawn from.
        rate: Starts each second.
        history: Where what was wanted and what was started is written.
        count_open: How many executions haven't ended.

    Attributes:
        surprises: Errors of a start that no caller can be expected to know.
    """

    def __init__(
        self,
        fp: Fencepost,
        seed: int,
        rate: float,
        history: History,
        count_open: Callable[[], int],
    ) -> None:
        self._fp, self._rate, self._history = fp, rate, history
        self._count_open = count_open
        self._works = works(seed)
        self._wanted: queue.Queue[tuple[str, Work] | None] = queue.Queue()
        self._stop = threading.Event()
        self.surprises: list[str] = []
        self._threads = [threading.Thread(target=self._want, daemon=True)]
        self._threads += [
            threading.Thread(target=self._serve, daemon=True) for _ in range(STARTERS)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self, patience: float = 60.0) -> bool:
        """Want nothing more, and finish what is wanted; False if that takes too long."""
        self._stop.set()
        give_up = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.1, give_up - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _want(self) -> None:
        for kind, work in self._works:
            while not self._stop.wait(1 / self._rate) and self._count_open() >= MOST_OPEN:
                pass
            if self._stop.is_set():
                break
            self._history.add("start", kind, target=work.reference, **work.model_dump())
            self._wanted.put((kind, work))
        for _ in range(STARTERS):
            self._wanted.put(None)

    def _serve(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            kind, work = wanted
            for attempt in itertools.count(1):
                try:
                    handle: Handle[Any] = self._fp.start(SAGAS[kind], work, key=work.reference)
                except Exception as problem:  # noqa: BLE001 - judged at the end
                    if not isinstance(problem, FencepostError):
                        self.surprises.append(f"start of {work.reference}: {problem!r}")
                    # Perhaps it is started all the same: the key finds it then.
                    self._history.add(
                        "not-started", kind, target=work.reference, answer=str(problem)
                    )
                    time.sleep(RETRY_EVERY)
                    continue
                self._history.add(
                    "started",
                    kind,
                    target=work.reference,
                    answer=str(handle.execution_id),
                    attempt=attempt,
                )
                break
