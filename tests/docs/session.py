"""Doing what a page says, on real servers, in a folder of its own."""

from __future__ import annotations

import doctest
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.pages import Block

COMMAND_TIMEOUT = 240
STOP_TIMEOUT = 30
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass
class Session:
    """A reader with a terminal.

    Attributes:
        folder: Where the page's files go and its commands run.
        replacements: URLs that the page shows, and the servers of this test in their place.
    """

    folder: Path
    replacements: Mapping[str, str]
    environment: dict[str, str] = field(init=False)
    printed: str = ""
    _workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CELERY_", "PYTHON"))}
        for name in ("FENCEPOST_DATABASE_URL", "FENCEPOST_REDIS_URL", "FENCEPOST_LEASE_TTL"):
            kept.pop(name, None)
        scripts = Path(sys.executable).parent
        self.environment = kept | {
            "PATH": f"{scripts}{os.pathsep}{kept['PATH']}",
            "COLUMNS": "200",
            "NO_COLOR": "1",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.terminate()
        codes = [self._end_of(worker) for worker in self._workers]
        if error is not None:
            error.add_note(self.logs())
        else:
            assert not any(codes), f"workers ended with {codes}:\n{self.logs()}"

    def _end_of(self, worker: subprocess.Popen[bytes]) -> int:
        try:
            return worker.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(worker.pid, signal.SIGKILL)
            return worker.wait()

    def logs(self) -> str:
        """What the workers have logged."""
        return "\n".join(
            f"== {log.name}\n{log.read_text('utf-8', 'replace')}"
            for log in sorted(self.folder.glob("worker-*.log"))
        )

    def play(self, blocks: Sequence[Block]) -> None:
        """Do what the blocks' directives say, in order.

        A page's files are there from the beginning on, in their first form: a page may show first
        what belongs together, and then its parts.
        """
        for block in reversed(blocks):
            if block.verb == "file":
                self._write(block)
        for block in blocks:
            text = self._here(block.text)
            match block.verb:
                case None | "shown" | "from":
                    pass
                case "file":
                    self._write(block)
                case "python":
                    self._script(block, text)
                case "output":
                    self._compare(block, text)
                case "console":
                    self._console(block, text)
                case "worker":
                    self._console(block, text, then_stay=True)
                case other:
                    raise AssertionError(f"{block}: unknown directive {other!r}")

    def _write(self, block: Block) -> None:
        path = self.folder / block.argument
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._here(block.text), "utf-8")

    def _here(self, text: str) -> str:
        for shown, real in self.replacements.items():
            text = text.replace(shown, real)
        return text

    def _script(self, block: Block, text: str) -> None:
        script = self.folder / f"line_{block.line}.py"
        script.write_text(text, "utf-8")
        self._run(block, [sys.executable, script.name])

    def _console(self, block: Block, text: str, *, then_stay: bool = False) -> None:
        commands = _commands(text)
        assert commands, f"{block}: no line begins with '$ '"
        for number, (command, expected) in enumerate(commands, 1):
            exported = re.fullmatch(r"export (\w+)=(\S+)", command)
            if exported:
                self.environment[exported[1]] = exported[2].strip("'\"")
            elif then_stay and number == len(commands):
                self._stay(command)
            else:
                self._run(block, ["/bin/sh", "-c", command])
                if expected:
                    self._compare(block, expected)

    def _run(self, block: Block, arguments: Sequence[str]) -> None:
        done = subprocess.run(
            arguments,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
        assert done.returncode == 0, f"{block}: {arguments}\n{done.stdout}\n{done.stderr}"
        self.printed = done.stdout

    def _stay(self, command: str) -> None:
        log = self.folder / f"worker-{len(self._workers) + 1}.log"
        with log.open("wb") as out:
            worker = subprocess.Popen(
                # Its shell makes room for it, so that our signal reaches the worker itself.
                ["/bin/sh", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._workers.append(worker)

    def _compare(self, block: Block, expected: str) -> None:
        same = doctest.OutputChecker().check_output(expected, self.printed, LOOSELY)
        assert same, f"{block} says:\n{expected}\nbut this was printed:\n{self.printed}"


def _commands(text: str) -> list[tuple[str, str]]:
    """Commands, each with the output that follows it."""
    found: list[tuple[str, str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append((line[2:].strip(), ""))
        elif found:
            command, expected = found[-1]
            found[-1] = (command, expected + line + "\n")
    return found
