"""Real `celery worker` processes of an app: started, hurt, waited for, and ended."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

from fencepost import faults
from fencepost.records import EventName, Status
from fencepost.testing.crash_points import CrashPoints
from fencepost.testing.ledger import Ledger
from fencepost.testing.network import Link, Network
from fencepost.testing.waiting import wait_for
from fencepost.testing.worker import Worker

if TYPE_CHECKING:
    from fencepost.celery import Fencepost
    from fencepost.records import Event, Execution

T = TypeVar("T")

NOT_INHERITED = ("FENCEPOST_", "CELERY_")
"""Of our own environment, what would reach into a worker's settings."""

EVENT_SECONDS = 60.0
END_SECONDS = 60.0
PORTS = {"redis": 6379, "rediss": 6379, "postgresql": 5432, "http": 80, "https": 443, "amqp": 5672}


class Fleet:
    """The workers of one Celery app.

    Args:
        folder: For logs and fault plans.
        module: What stands behind `celery -A`.
        environment: Added to the workers' environment.
        cwd: Where they run; by default here.
        python: The interpreter that has Celery.
        services: URLs of servers that a worker may be cut off from, by a name such as `redis`.
            Where a variable of the environment has that server's address, the worker gets a
            proxy's in its place.
        crash_points: Shared with other fleets; by default its own.
        not_inherited: Prefixes of variables of ours that the workers don't get.

    Attributes:
        module: The app's.
        environment: What the workers are given, beside what they inherit.
        workers: All that were started, dead ones too.
        crash_points: What may happen to them, and where.
    """

    def __init__(
        self,
        folder: Path,
        module: str,
        environment: Mapping[str, str] | None = None,
        *,
        cwd: Path | None = None,
        python: str = sys.executable,
        services: Mapping[str, str] | None = None,
        crash_points: CrashPoints | None = None,
        not_inherited: Sequence[str] = NOT_INHERITED,
    ) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.module = module
        self.environment = dict(environment or {})
        self.crash_points = crash_points or CrashPoints(folder / "faults")
        self.workers: list[Worker] = []
        self._cwd = cwd or Path.cwd()
        self._python = python
        self._services = dict(services or {})
        self._not_inherited = tuple(not_inherited)
        self._network: Network | None = None

    # -- starting --------------------------------------------------------------------------

    def start(
        self,
        count: int = 1,
        *,
        pool: str = "prefork",
        concurrency: int = 1,
        arguments: Sequence[str] = (),
        **environment: str,
    ) -> list[Worker]:
        """Start workers without waiting for them.

        Args:
            count: How many.
            pool: Celery's `-P`.
            concurrency: Celery's `-c`; the solo pool ignores it.
            arguments: More of `celery worker`'s.
            **environment: Variables for these workers only.
        """
        started = []
        for _ in range(count):
            name = f"w{len(self.workers) + 1}@test"
            argv = [
                *(self._python, "-m", "celery", "-A", self.module, "worker"),
                *("-P", pool, "-c", str(concurrency), "-n", name, "-l", "INFO"),
                # Each would add a second to every start, and neither matters to the protocol.
                *("--without-mingle", "--without-gossip"),
                *arguments,
            ]
            given, links = self._linked({**self.environment, **environment})
            worker = Worker(name, argv, self._all(given), self.folder, self._cwd, links=links)
            self.workers.append(worker)
            self.crash_points.workers.append(worker)
            started.append(worker)
        return started

    def ready(self, count: int = 1, **how: Any) -> list[Worker]:
        """Start workers and wait until they take messages.

        Args:
            count: How many.
            **how: As for `start`.

        Raises:
            AssertionError: One ended, or isn't ready in time; has its last words.
        """
        started = self.start(count, **how)
        for worker in started:
            worker.await_ready()
        return started

    def _all(self, given: Mapping[str, str]) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(self._not_inherited)}
        path = os.pathsep.join(p for p in (str(self._cwd), kept.get("PYTHONPATH", "")) if p)
        return {
            **kept,
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            faults.ENVIRONMENT: str(self.crash_points.folder),
            **given,
        }

    def _linked(self, environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Link]]:
        """The environment with proxies in place of the services that it names."""
        given, links = dict(environment), {}
        for service, url in self._services.items():
            host, port = _address(url)
            address = re.compile(rf"(?<=[/@]){re.escape(host)}:{port}\b")
            named = [name for name, value in given.items() if address.search(value)]
            if named:
                self._network = self._network or Network()
                link = links[service] = self._network.link(service, host, port)
                for name in named:
                    given[name] = address.sub(f"127.0.0.1:{link.port}", given[name])
        return given, links

    # -- asking ----------------------------------------------------------------------------

    @property
    def alive(self) -> list[Worker]:
        """Workers whose main process has not ended."""
        return [worker for worker in self.workers if worker.running]

    def of(self, pid: int) -> Worker:
        """The worker whose process group is `pid`'s, as a fault plan records it."""
        (found,) = [worker for worker in self.workers if worker.pid == pid]
        return found

    def worker_of(self, owner: str | None) -> Worker:
        """The worker that an owner's name in an event or checkpoint stands for."""
        (found,) = [w for w in self.workers if (owner or "").startswith(f"{w.name}:")]
        return found

    def logs(self) -> str:
        """The end of every worker's log, for a failed assertion."""
        return "\n".join(worker.last_words() for worker in self.workers)

    @property
    def fp(self) -> Fencepost:
        """Fencepost on the app, in the test's own process: imports the app's module.

        Raises:
            ConfigurationError: The module doesn't install Fencepost, or a setting is missing.
        """
        from fencepost.celery import Fencepost
        from fencepost.celery.application import current

        module = import_module(self.module.partition(":")[0])
        installed = [value for value in vars(module).values() if isinstance(value, Fencepost)]
        return installed[0] if installed else current()

    @cached_property
    def ledger(self) -> Ledger:
        """What is stored in the database that `FENCEPOST_DATABASE_URL` names to the workers.

        Raises:
            ValueError: The fleet was not given that variable.
        """
        url = self.environment.get("FENCEPOST_DATABASE_URL")
        if url is None:
            raise ValueError("the fleet's environment has no FENCEPOST_DATABASE_URL")
        return Ledger(url)

    # -- waiting ---------------------------------------------------------------------------

    def wait_for(self, probe: Callable[[], T], timeout: float, what: str) -> T:
        """Wait for a fact; failing that, show the workers' last words.

        Args:
            probe: Asked again and again; its first truthy answer is returned.
            timeout: Seconds.
            what: Names the fact.

        Raises:
            AssertionError: It isn't there in time.
        """
        return wait_for(probe, timeout, lambda: f"{what}\n{self.logs()}")

    def await_event(self, execution: Any, name: str, timeout: float = EVENT_SECONDS) -> Event:
        """Wait until an event of an execution is on record, such as `execution.recovered`.

        Args:
            execution: Its handle or id.
            name: The event's, as in the glossary.
            timeout: Seconds.

        Returns:
            The first of that name.

        Raises:
            ValueError: No event has such a name.
            AssertionError: There is none in time; tells the execution's story.
        """
        name = EventName(name)
        found = wait_for(
            lambda: self.ledger.events(execution, name),
            timeout,
            lambda: f"the event {name}\n{self.ledger.story(execution)}\n{self.logs()}",
        )
        return found[0]

    def await_end(self, execution: Any, timeout: float = END_SECONDS) -> Execution:
        """Wait until an execution, or what continues it, has ended or is parked.

        Args:
            execution: Its handle or id.
            timeout: Seconds.

        Raises:
            AssertionError: It is still under way; tells the execution's story.
        """

        def ended() -> Execution | None:
            row = self.ledger.execution(execution)
            at_rest = row is not None and (row.status.ended or row.status is Status.PARKED)
            return row if at_rest else None

        found = wait_for(
            ended, timeout, lambda: f"an end\n{self.ledger.story(execution)}\n{self.logs()}"
        )
        assert found is not None  # only such an answer ends the wait
        return found

    # -- ending ----------------------------------------------------------------------------

    def stop(self) -> None:
        """End every worker, frozen ones too, and leave nothing running."""
        for worker in self.workers:
            worker.signal_group(signal.SIGKILL)
        with contextlib.ExitStack() as stack:
            if self._network is not None:
                stack.callback(self._network.close)
            if "ledger" in self.__dict__:
                stack.callback(self.ledger.close)
            for worker in self.workers:
                stack.callback(worker.kill)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    port = parts.port or PORTS.get(parts.scheme.partition("+")[0])
    if not parts.hostname or port is None:
        raise ValueError(f"{parts.scheme} URL of a service names no host and port")
    return parts.hostname, port
