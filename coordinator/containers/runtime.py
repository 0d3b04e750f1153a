"""The runtime of containers: traps on the fleet's volume, and commands to Docker."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from uuid import UUID

from celery import Celery

from coordinator.containers import fleet as fleets
from coordinator.containers.client import ContainersUnavailableError
from coordinator.containers.fleet import APP, ContainerFleet
from coordinator.containers.worker import ContainerWorker
from coordinator.fleet import ROOT
from coordinator.phrases import worker_of
from coordinator.runtime import Action, Hit, Sprung, Target, UnsupportedError, WorkerError
from coordinator.site import Site
from fencepost.errors import FencepostError
from fencepost.records import Execution
from ledger.vocabulary import ReleaseRequest

REDIS = "redis"
REDIS_SECONDS = 60.0
WORKER_SECONDS = 120.0
_WRITE = 'mkdir -p "${1%/*}" && cat >"$1.partial" && mv "$1.partial" "$1"'
_READ = 'cat "$1" 2>/dev/null || true'
_TOUCH = 'mkdir -p "${1%/*}" && touch "$1"'
_REMOVE = 'rm -f "$1"'


class Volume:
    """The volume that all workers share, by way of whichever of them can be asked.

    Args:
        fleet: Whose.
    """

    def __init__(self, fleet: ContainerFleet) -> None:
        self._fleet = fleet

    def do(self, script: str, path: PurePosixPath, stdin: str | None = None) -> str:
        """Run a line of shell on a path."""
        arguments = ("exec", "-T", self._one(), "sh", "-c", script, "sh", str(path))
        return self._fleet.compose.compose(*arguments, stdin=stdin)

    def folder(self, base: PurePosixPath, name: str) -> bytes:
        """A folder as a tar archive; an empty one if it isn't there."""
        arguments = ("exec", "-T", self._one(), "tar", "-C", str(base), "-c", "--", name)
        return self._fleet.compose.output("compose", *arguments, tolerant=True)

    def _one(self) -> str:
        for worker in self._fleet.workers:
            state = self._fleet.compose.inspected(worker.container_id)["State"]
            if state["Running"] and not state["Paused"]:
                return worker.name
        raise ContainersUnavailableError("no worker's container runs", command="docker compose ps")


@dataclass(frozen=True, slots=True)
class ContainerTrap:
    """A fault plan that holds whoever comes there, until the container has been dealt with."""

    volume: Volume
    workers: Sequence[ContainerWorker]
    plan: PurePosixPath
    action: Action

    def sprung(self) -> Sprung | None:
        """Who came there."""
        told = self.volume.do(_READ, self.plan.with_suffix(".fired-1"))
        if not told.strip():
            return None
        record = json.loads(told)
        return Sprung(record["facts"], record["pid"], record["pgid"], record["at"])

    def hit(self, sprung: Sprung, execution: Execution) -> Hit:  # noqa: ARG002 - by its owner
        """Deal with the container of the execution's owner."""
        name = worker_of(execution.owner)
        worker = next((worker for worker in self.workers if worker.name == name), None)
        if worker is None:
            raise ContainersUnavailableError(
                f"the step is in the hands of {execution.owner}, which is none of the compose"
                " file's workers: stop the others",
                command="docker compose ps",
            )
        worker.do(self.action)
        return Hit(worker, time.time())

    def let_go(self) -> None:
        """Let the one that is held go on, now or when it thaws."""
        self.volume.do(_TOUCH, self.plan.with_suffix(".go"))

    def disarm(self) -> None:
        """Nobody else shall fall into it."""
        self.volume.do(_REMOVE, self.plan)


class ContainerRuntime:
    """A running fleet of containers.

    Args:
        fleet: From `coordinator.containers.fleet.find`.
        site: Its servers, and a folder for the run.
    """

    def __init__(self, fleet: ContainerFleet, site: Site) -> None:
        self._fleet = fleet
        self._site = site
        self._volume = Volume(fleet)
        self._celery = Celery(broker=site.settings.broker)
        self._traps: list[ContainerTrap] = []

    @property
    def site(self) -> Site:
        """Servers and folders, as this process reaches them."""
        return self._site

    @property
    def workers(self) -> Sequence[ContainerWorker]:
        """Those of the compose file."""
        return self._fleet.workers

    def hire(self) -> None:
        """Have all workers running and connected, and answering over the broker.

        Raises:
            WorkerError: One doesn't answer.
        """
        for worker in self.workers:
            worker.recover()
        silent = {worker.name for worker in self.workers}
        deadline = time.monotonic() + WORKER_SECONDS
        while silent:
            if time.monotonic() > deadline:
                name = sorted(silent)[0]
                raise WorkerError(
                    f"{name} does not answer within {WORKER_SECONDS:.0f} s:"
                    f" docker compose logs {name}",
                    worker=name,
                    log=f"docker compose logs {name}",
                )
            # Its health check in the container comes seldom, and may be about an earlier time.
            answers = self._celery.control.ping(timeout=2.0) or []
            silent -= {node.partition("@")[0] for answer in answers for node in answer}

    def adapted(self, request: ReleaseRequest) -> ReleaseRequest:
        """The request with the paths of the image.

        Raises:
            UnsupportedError: It has sources that the image hasn't.
        """
        gate = request.gate.model_copy(update={"check": _in_image(request.gate.check)})
        modules = tuple(
            module.model_copy(update={"directory": _in_image(module.directory)})
            for module in request.modules
        )
        return request.model_copy(update={"gate": gate, "modules": modules})

    def trap(self, target: Target, action: Action) -> ContainerTrap:
        """Arm a fault plan in the fleet's volume."""
        name = f"{self._site.run_id}-{action}-{len(self._traps) + 1}"
        plan = self._fleet.faults / f"{name}.json"
        content = {"point": target.point, "action": "pause", "match": target.match}
        trap = ContainerTrap(self._volume, self.workers, plan, action)
        self._traps.append(trap)
        self._volume.do(_WRITE, plan, stdin=json.dumps(content | {"times": 1, "fired": 0}))
        return trap

    def restart_redis(self) -> None:
        """Restart the service; returns when its health check says that it answers."""
        compose = self._fleet.compose
        compose.compose("restart", REDIS)
        deadline = time.monotonic() + REDIS_SECONDS
        while not any(c.service == REDIS and c.health == "healthy" for c in compose.containers()):
            if time.monotonic() > deadline:
                raise ContainersUnavailableError(
                    f"Redis is not healthy {REDIS_SECONDS:.0f} s after its restart",
                    command="docker compose restart",
                )
            time.sleep(0.2)

    def collect(self, root: UUID, release: str) -> None:
        """Copy a release's files from the volume to the run's folder."""
        places = (
            (self._fleet.staging, str(root), self._site.staging.root),
            (self._fleet.published, release, self._site.published.root),
        )
        for base, name, here in places:
            shutil.rmtree(here, ignore_errors=True)
            here.mkdir(parents=True)
            archive = self._volume.folder(base, name)
            if archive:
                with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
                    packed.extractall(here, filter="data")

    def leave(self) -> None:
        """Leave the fleet as it was found: every worker there, nobody held, no plan armed."""
        problems: list[FencepostError] = []
        for worker in self.workers:
            try:
                worker.recover()
            except FencepostError as problem:
                problems.append(problem)
        for trap in self._traps:
            with suppress(FencepostError):
                trap.disarm()
                trap.let_go()
        self._keep_logs()
        if problems:
            raise problems[0]

    def _keep_logs(self) -> None:
        self._site.logs.mkdir(parents=True, exist_ok=True)
        for worker in self.workers:
            with suppress(FencepostError):
                (self._site.logs / f"{worker.name}.log").write_text(worker.log())


def _in_image(path: Path) -> Path:
    try:
        return Path(APP / path.relative_to(ROOT).as_posix())
    except ValueError:
        raise UnsupportedError(
            f"{path} is not in the fleet's image: with --runtime compose, a release's sources are"
            " below examples/",
            scenario="release",
            runtime="compose",
        ) from None


@contextmanager
def compose_runtime(folder: Path) -> Iterator[ContainerRuntime]:
    """The fleet that is up, for the length of a `with` block; left as it was found.

    Args:
        folder: Of the run.

    Raises:
        ContainersUnavailableError: There is none; says what to type.
    """
    fleet = fleets.find(ROOT)
    runtime = ContainerRuntime(fleet, fleet.site(folder))
    try:
        runtime.hire()
        fleets.check_code(fleet, ROOT)
        yield runtime
    finally:
        runtime.leave()
