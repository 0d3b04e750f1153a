"""The workers, each in a slot whose dead occupant is replaced."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.chaos.history import History
from tests.support.fleet import Fleet, Worker

LOOK_EVERY = 0.3
REPLACE_AFTER = 0.5
ORPHANS_END_AFTER = 8.0
"""Seconds after which what a dead main process has left is ended, as a service manager would."""


class Slot:
    """A place for a worker.

    Attributes:
        name: `w1`, ...: names its links, its clock and its line in the history.
        worker: Who is there, alive or not.
        died_at: When it was found dead, if it hasn't been replaced yet.
    """

    def __init__(self, name: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self.environment = dict(environment)
        self.worker: Worker | None = None
        self.died_at: float | None = None
        self._ready: Worker | None = None

    @property
    def up(self) -> bool:
        """Whether a worker is there that takes messages."""
        worker = self.worker
        if worker is None or not worker.running:
            return False
        if self._ready is not worker and f"{worker.name} ready." in worker.log():
            self._ready = worker
        return self._ready is worker

    def children(self) -> list[psutil.Process]:
        """The processes that run tasks, not the one that fetches messages."""
        assert self.worker is not None
        with contextlib.suppress(psutil.Error):
            return psutil.Process(self.worker.pid).children()
        return []


class Supervisor:
    """Keeps the slots filled.

    Args:
        folder: For logs.
        slots: Each with the environment of its workers.
        history: Where deaths and starts are written.
        concurrency: Of each worker.

    Attributes:
        patience: Seconds that workers are given to end by themselves.
    """

    def __init__(
        self,
        folder: Path,
        slots: Mapping[str, Mapping[str, str]],
        history: History,
        *,
        concurrency: int = 3,
    ) -> None:
        self.fleet = Fleet(folder, "tests.chaos.worker", {})
        self.slots = {name: Slot(name, environment) for name, environment in slots.items()}
        self._history = history
        self._concurrency = concurrency
        self.patience = 15.0
        self._orphans: list[tuple[float, list[psutil.Process]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Fill the slots, wait until all take messages, and keep them filled from then on."""
        for slot in self.slots.values():
            self._fill(slot)
        for slot in self.slots.values():
            assert slot.worker is not None
            slot.worker.await_ready(60)
        self._thread.start()

    def _fill(self, slot: Slot) -> None:
        variables: dict[str, Any] = {**slot.environment, "CHAOS_WORKER": slot.name}
        (slot.worker,) = self.fleet.start(
            1, pool="prefork", concurrency=self._concurrency, **variables
        )
        slot.died_at = None
        self._history.add("worker", "start", target=slot.name, answer=slot.worker.name)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY):
            for slot in self.slots.values():
                self._look(slot)
            self._end_orphans()

    def _look(self, slot: Slot) -> None:
        worker = slot.worker
        assert worker is not None
        if worker.running:
            return
        if slot.died_at is None:
            slot.died_at = time.monotonic()
            code = worker.wait()
            # By themselves and not by their group: its number may be somebody else's by then.
            self._orphans.append((slot.died_at, worker.processes()))
            self._history.add("worker", "end", target=slot.name, answer=f"{worker.name}: {code}")
        elif time.monotonic() - slot.died_at >= REPLACE_AFTER:
            self._fill(slot)

    def _end_orphans(self) -> None:
        now = time.monotonic()
        for died_at, left in list(self._orphans):
            if now - died_at >= ORPHANS_END_AFTER:
                _each(left, psutil.Process.kill)
                self._orphans.remove((died_at, left))

    def thaw(self) -> None:
        """Let everybody go on who was stopped, orphans too."""
        for worker in self._alive():
            worker.signal_group(signal.SIGCONT)
        for _, left in list(self._orphans):
            _each(left, psutil.Process.resume)

    def stop(self) -> None:
        """End all workers: warm first, then hard."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.thaw()
        left = [process for worker in self._alive() for process in worker.processes()]
        left += [process for _, orphans in self._orphans for process in orphans]
        for worker in self._alive():
            worker.terminate()
        give_up = time.monotonic() + self.patience
        while self._alive() and time.monotonic() < give_up:
            time.sleep(0.1)
        for worker in self._alive():
            worker.kill()
        _each(left, psutil.Process.kill)

    def _alive(self) -> list[Worker]:
        workers = (slot.worker for slot in self.slots.values())
        return [worker for worker in workers if worker is not None and worker.running]


def _each(processes: list[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            act(process)
