"""A worker of the compose fleet: a container that is paused, killed and cut off."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.containers.client import Compose
from coordinator.runtime import Action, WorkerError

POLL = 0.2


@dataclass
class ContainerWorker:
    """One service of the compose file.

    Attributes:
        name: Of the service; also the first part of its node name.
        container_id: Of its container.
        cut_off_from: Names of the networks that it was disconnected from.
        returned_by: The command that ends what was done to it last.
    """

    compose: Compose
    name: str
    container_id: str
    cut_off_from: list[str] = field(default_factory=list)
    returned_by: str = "compose start"

    @property
    def place(self) -> str:
        """Its container."""
        return f"container {self.container_id[:12]}"

    @property
    def facts(self) -> Mapping[str, Any]:
        """Its container."""
        return {"container": self.container_id}

    def means(self, action: Action) -> str:
        """The command."""
        match action:
            case Action.FREEZE:
                return f"docker compose pause {self.name}"
            case Action.KILL:
                return f"docker compose kill {self.name}"
            case Action.CUT_OFF:
                return f"docker network disconnect {' '.join(self.cut_off_from)} {self.name}"
            case Action.HOLD:
                return "held"

    @property
    def means_of_return(self) -> str:
        """The commands."""
        return f"docker {self.returned_by} {self.name}"

    def do(self, action: Action) -> None:
        """Do it; returns when the engine says that it is done."""
        match action:
            case Action.FREEZE:
                self.compose.compose("pause", self.name)
                self.returned_by = "compose unpause"
            case Action.KILL:
                self.compose.compose("kill", self.name)
            case Action.CUT_OFF:
                for network in self._networks():
                    self.compose.docker("network", "disconnect", network, self.container_id)
                    self.cut_off_from.append(network)
                self.returned_by = f"network connect {' '.join(self.cut_off_from)}"
            case Action.HOLD:
                pass

    def frozen(self) -> bool:
        """Whether the engine says that it is paused."""
        return bool(self._state()["Paused"])

    def come_back(self) -> None:
        """Thaw it, or connect it again under the name that it had."""
        if self.frozen():
            self.compose.compose("unpause", self.name)
        for network in self.cut_off_from:
            self.compose.docker(
                "network", "connect", "--alias", self.name, network, self.container_id
            )
        self.cut_off_from.clear()

    def recover(self) -> None:
        """Have it as it was before any scenario: connected and running."""
        self.come_back()
        if not self._state()["Running"]:
            self.compose.compose("start", self.name)

    def terminate(self) -> None:
        """Ask for a warm shutdown."""
        self.compose.compose("kill", "--signal", "SIGTERM", self.name)

    def wait_until_it_says(self, words: str, seconds: float) -> None:
        """Follow its log until it has these words."""
        deadline = time.monotonic() + seconds
        while words not in self.log():
            if time.monotonic() > deadline:
                raise self._failed(f"did not say {words!r} within {seconds:.0f} s")
            time.sleep(POLL)

    def wait_until_it_ends(self, seconds: float) -> int:
        """Wait until the engine says that it doesn't run; returns its exit code."""
        deadline = time.monotonic() + seconds
        while (state := self._state())["Running"]:
            if time.monotonic() > deadline:
                raise self._failed(f"did not end within {seconds:.0f} s")
            time.sleep(POLL)
        return int(state["ExitCode"])

    def log(self) -> str:
        """All that it has printed."""
        return self.compose.compose("logs", "--no-color", "--no-log-prefix", self.name)

    def _state(self) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self.compose.inspected(self.container_id)["State"]
        return state

    def _networks(self) -> list[str]:
        return sorted(self.compose.inspected(self.container_id)["NetworkSettings"]["Networks"])

    def _failed(self, what: str) -> WorkerError:
        tail = "\n".join(self.log().splitlines()[-15:])
        return WorkerError(
            f"{self.name} {what}; the end of its log:\n{tail}",
            worker=self.name,
            log=f"docker compose logs {self.name}",
        )
