"""What a worker does beside running tasks: checks at its start, the reaper, the drain."""

from __future__ import annotations

import logging
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from celery import Celery, bootsteps, signals

from fencepost.celery.hardening import Severity
from fencepost.engine.reaper import Reaper
from fencepost.errors import FencepostError
from fencepost.stores.sql import check_schema

if TYPE_CHECKING:
    from fencepost.celery.application import Fencepost

logger = logging.getLogger(__name__)

EX_CONFIG = 78
"""Exit code of a worker that can't start as it is configured (sysexits.h)."""


def extend(app: Celery, fencepost: Fencepost) -> None:
    """Add the checks, the reaper and the drain to every worker of the app."""

    def on_init(sender: Any = None, **_: Any) -> None:
        if getattr(sender, "app", None) is app:
            fencepost.node = getattr(sender, "hostname", "")
            fencepost.concurrency = getattr(sender, "concurrency", None) or 1
            _refuse_to_start_badly(fencepost)

    def on_shutdown(**_: Any) -> None:
        fencepost.draining.raise_()

    signals.worker_init.connect(on_init, weak=False)
    signals.worker_shutting_down.connect(on_shutdown, weak=False)

    class ReaperStep(bootsteps.StartStopStep):
        """Runs the reaper in the worker's main process."""

        # Started after the pool: a fork must not happen in the middle of the first pass.
        requires = ("celery.worker.components:Pool",)

        def __init__(self, parent: Any, **kwargs: Any) -> None:
            super().__init__(parent, **kwargs)
            self.loop: ReaperLoop | None = None

        def start(self, _parent: Any) -> None:
            fencepost.draining.lower()
            self.loop = ReaperLoop(fencepost)
            self.loop.start()

        def stop(self, _parent: Any) -> None:
            if self.loop is not None:
                self.loop.stop()

        def terminate(self, parent: Any) -> None:
            self.stop(parent)

    app.steps["worker"].add(ReaperStep)


def _refuse_to_start_badly(fencepost: Fencepost) -> None:
    """Exit with a report where the worker could not do its work."""
    errors = []
    for finding in fencepost.findings():
        if finding.severity is Severity.ERROR:
            errors.append(str(finding))
        else:
            logger.warning("%s", finding)
    try:
        check_schema(fencepost.database)
        fencepost.engine.leases.state([UUID(int=0)])
    except FencepostError as problem:
        errors.append(f"error: {problem} [{problem.code}]")
    if errors:
        report = "\n".join(f"  {line}" for line in errors)
        print(f"Fencepost: this worker can't start.\n{report}", file=sys.stderr, flush=True)
        raise SystemExit(EX_CONFIG)


class ReaperLoop:
    """A daemon thread that reaps until it is stopped.

    A thread and not the worker's event loop: SQL blocks, and a busy solo pool stops the loop.

    Args:
        fencepost: Whose executions are reaped.
    """

    def __init__(self, fencepost: Fencepost) -> None:
        self._fencepost = fencepost
        self._stop = threading.Event()
        self._troubled: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, name="fencepost-reaper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the pass in hand."""
        self._stop.set()

    def _run(self) -> None:
        settings = self._fencepost.settings
        reaper = Reaper(self._fencepost.engine)
        next_sweep = 0.0
        # Jitter keeps the workers of a fleet out of step.
        while not self._stop.wait(settings.reaper_interval * random.uniform(0.8, 1.2)):
            if self._fencepost.draining():
                continue
            self._attempt("expired", reaper.expired)
            if time.monotonic() >= next_sweep:
                self._attempt("due", reaper.due)
                self._attempt("waiting", reaper.waiting)
                self._attempt("overdue", reaper.overdue)
                next_sweep = time.monotonic() + settings.sweep_interval * random.uniform(0.8, 1.2)

    def _attempt(self, what: str, look: Callable[[], int]) -> None:
        try:
            look()
        except FencepostError as problem:
            # Once per trouble, not once per pass.
            if self._troubled.get(what) != problem.code:
                logger.error("the reaper can't look at what is %s: %s", what, problem)
            self._troubled[what] = problem.code
        except Exception:
            logger.exception("the reaper failed to look at what is %s", what)
        else:
            self._troubled.pop(what, None)
