"""Finds the fleet that `docker compose up` has started, and how to reach its servers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import sqlalchemy as sa

from coordinator.containers.client import UP, Compose, Container, ContainersUnavailableError
from coordinator.containers.worker import ContainerWorker
from coordinator.settings import CoordinatorSettings
from coordinator.settings import load as load_settings
from coordinator.site import Servers, Site
from fencepost import faults

WORKERS = ("worker-a", "worker-b")
SERVERS = {"postgres": 5432, "redis": 6379}
APP = PurePosixPath("/app")
"""Where the image has what this repository has at its root."""
CODE = ("saga", "tasks")
_DIGEST = f'cd "$1" && LC_ALL=C cat {" ".join(f"{name}/*.py" for name in CODE)} | sha256sum'


@dataclass(frozen=True)
class ContainerFleet:
    """What is up.

    Attributes:
        environment: What the workers were told.
    """

    compose: Compose
    workers: tuple[ContainerWorker, ...]
    environment: Mapping[str, str]

    @property
    def faults(self) -> PurePosixPath:
        """Where the workers look for fault plans."""
        return PurePosixPath(self.environment[faults.ENVIRONMENT])

    @property
    def staging(self) -> PurePosixPath:
        """The workers' staging folder."""
        return PurePosixPath(self.environment["FACTORY_STAGING_DIR"])

    @property
    def published(self) -> PurePosixPath:
        """The workers' publish folder."""
        return PurePosixPath(self.environment["FACTORY_PUBLISH_DIR"])

    def site(self, folder: Path) -> Site:
        """The fleet's servers as this process reaches them, and a folder for the run."""
        told = dict(self.environment)
        for name in ("FENCEPOST_DATABASE_URL", "FENCEPOST_BROKER_URL", "FENCEPOST_REDIS_URL"):
            if told.get(name):
                told[name] = self._reached(told[name])
        settings = load_settings(told)
        servers = Servers(settings.database, settings.broker, settings.leases)
        return Site(folder, _without_guard_switch(settings), servers, {})

    def _reached(self, url: str) -> str:
        """The same URL by the port that is published on this machine."""
        parsed = sa.make_url(url)
        if parsed.host not in SERVERS:
            return url  # a server elsewhere, which both of us reach by its name
        host, port = self.compose.published(parsed.host, parsed.port or SERVERS[parsed.host])
        return parsed.set(host=host, port=port).render_as_string(hide_password=False)


def find(folder: Path) -> ContainerFleet:
    """The fleet of a compose file, if it is up and can be used.

    Args:
        folder: Where the file is.

    Raises:
        ContainersUnavailableError: It isn't, or can't; says what to type.
    """
    compose = Compose(folder)
    there = {container.service: container for container in compose.containers()}
    _check_up(there)
    workers = tuple(ContainerWorker(compose, name, there[name].container_id) for name in WORKERS)
    environment = _environment(compose, workers[0])
    if not environment.get(faults.ENVIRONMENT):
        raise ContainersUnavailableError(
            f"the workers look for no fault plans: {faults.ENVIRONMENT} is empty in them, and so a"
            f" scenario can't tell when one is inside a step. Without it in your .env, type: {UP}",
            command="docker compose",
        )
    return ContainerFleet(compose, workers, environment)


def check_code(fleet: ContainerFleet, folder: Path) -> None:
    """Make sure that the image was built from the sagas and steps that are here.

    Compares files: starting a Python in the container takes minutes on a machine that is busy.

    Raises:
        ContainersUnavailableError: It was built from other code.
    """
    arguments = ("exec", "-T", fleet.workers[0].name, "sh", "-c", _DIGEST, "sh", str(APP))
    theirs = fleet.compose.compose(*arguments).split()[:1]
    digest = hashlib.sha256()
    for each in CODE:
        for path in sorted((folder / each).glob("*.py")):
            digest.update(path.read_bytes())
    if theirs != [digest.hexdigest()]:
        raise ContainersUnavailableError(
            f"the fleet's image was built from other code than what is in {' and '.join(CODE)}"
            f" here. Type: {UP}",
            command="docker compose",
        )


def _check_up(there: Mapping[str, Container]) -> None:
    wanted = (*SERVERS, *WORKERS)
    missing = [name for name in wanted if name not in there]
    if missing:
        raise ContainersUnavailableError(
            f"the fleet is not up: there is no {', '.join(missing)}. Type: {UP}",
            command="docker compose ps",
        )
    down = [f"{name} is {there[name].state}" for name in SERVERS if there[name].state != "running"]
    if down:
        raise ContainersUnavailableError(
            f"the fleet is not up: {', '.join(down)}. Type: {UP}", command="docker compose ps"
        )


def _environment(compose: Compose, worker: ContainerWorker) -> dict[str, str]:
    lines = compose.inspected(worker.container_id)["Config"]["Env"] or []
    pairs = (line.partition("=") for line in lines)
    return {name: value for name, _, value in pairs}


def _without_guard_switch(settings: CoordinatorSettings) -> CoordinatorSettings:
    return settings.model_copy(update={"unfenced": False})
