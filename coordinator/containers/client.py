"""Talks to Docker Compose and to Docker's engine, and says clearly why it can't."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fencepost.errors import FencepostError

COMMAND_SECONDS = 300.0
UP = "docker compose up --build --detach"
_TELLING_LINES = 5


class ContainersUnavailableError(FencepostError):
    """There is no fleet of containers to be used; says what to type. Fields: `command`."""

    code = "runtime.unavailable"


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a project.

    Attributes:
        service: Its name in the compose file.
        state: `running`, `paused`, `exited`, ...
        health: `healthy`, `unhealthy`, `starting`, or empty without a check.
    """

    container_id: str
    service: str
    state: str
    health: str


class Compose:
    """The project of a compose file.

    Args:
        folder: Where the file is.
        docker: The program.
    """

    def __init__(self, folder: Path, docker: str = "docker") -> None:
        self._folder = folder
        self._docker = docker

    def compose(self, *arguments: str, stdin: str | None = None) -> str:
        """Run `docker compose ...`; returns its standard output.

        Raises:
            ContainersUnavailableError: It can't be run, or failed.
        """
        return self.output("compose", *arguments, stdin=stdin).decode(errors="replace")

    def docker(self, *arguments: str) -> str:
        """Run `docker ...`; returns its standard output.

        Raises:
            ContainersUnavailableError: It can't be run, or failed.
        """
        return self.output(*arguments).decode(errors="replace")

    def output(self, *arguments: str, stdin: str | None = None, tolerant: bool = False) -> bytes:
        """Run `docker ...`; returns what it printed.

        Args:
            *arguments: Behind `docker`.
            stdin: For its standard input.
            tolerant: A failing command has printed something of use all the same.

        Raises:
            ContainersUnavailableError: It can't be run, or failed.
        """
        command = [self._docker, *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=self._folder,
                input=b"" if stdin is None else stdin.encode(),
                capture_output=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except FileNotFoundError:
            raise ContainersUnavailableError(
                "there is no `docker` here: install Docker Engine with its Compose plugin"
                f" (docs/how-to/compose.md), and then type: {UP}",
                command=self._docker,
            ) from None
        except subprocess.TimeoutExpired:
            raise ContainersUnavailableError(
                f"`{_shown(command)}` did not end within {COMMAND_SECONDS:.0f} s",
                command=_shown(command),
            ) from None
        if done.returncode != 0 and not tolerant:
            raise _failure(command, done.stderr.decode(errors="replace"))
        return done.stdout

    def containers(self) -> list[Container]:
        """All containers of the project's services, those that have ended too."""
        printed = self.compose("ps", "--all", "--format", "json")
        rows = [json.loads(line) for line in printed.splitlines() if line.strip()]
        return [Container(r["ID"], r["Service"], r["State"], r.get("Health") or "") for r in rows]

    def inspected(self, container_id: str) -> Mapping[str, Any]:
        """Everything that the engine knows of a container."""
        (found,) = json.loads(self.docker("inspect", container_id))
        known: Mapping[str, Any] = found
        return known

    def published(self, service: str, port: int) -> tuple[str, int]:
        """Host and port under which this machine reaches a service's port."""
        host, _, number = self.compose("port", service, str(port)).strip().rpartition(":")
        return ("127.0.0.1" if host in ("", "0.0.0.0", "[::]") else host, int(number))  # noqa: S104


def _shown(command: list[str]) -> str:
    return " ".join(command[:4])


def _failure(command: list[str], stderr: str) -> ContainersUnavailableError:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = "\n".join(lines[-_TELLING_LINES:]) or "it said nothing"
    if any("is not a docker command" in line or "unknown command" in line for line in lines):
        text = "`docker` has no `compose` here: install the Compose plugin (docs/how-to/compose.md)"
    elif any("daemon" in line and ("connect" in line or "running" in line) for line in lines):
        text = f"Docker's engine doesn't answer: {said}\nStart it, and then type: {UP}"
    else:
        text = f"`{_shown(command)}` failed: {said}"
    return ContainersUnavailableError(text, command=_shown(command))
