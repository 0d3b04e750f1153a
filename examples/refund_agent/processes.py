"""The demonstration's payment providers: a process for each mode."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from examples.refund_agent.payments import Payments
from examples.refund_agent.provider import Mode
from examples.support.fleet import ROOT
from examples.support.waiting import DemoError


@contextmanager
def providers(folder: Path, modes: Sequence[Mode] = tuple(Mode)) -> Iterator[dict[Mode, Payments]]:
    """A provider process in each mode; they end with us, however we end.

    Args:
        folder: Of their ledgers and logs.
        modes: Which ones.
    """
    folder.mkdir(parents=True)
    running: list[subprocess.Popen[str]] = []
    try:
        for mode in modes:
            command = [sys.executable, "-m", "examples.refund_agent.provider", "--mode", mode]
            with (folder / f"{mode}.log").open("ab") as log:
                process = subprocess.Popen(
                    [*command, "--ledger", str(folder / f"{mode}.sqlite3")],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            running.append(process)
        yield {m: Payments(_address(p, m)) for m, p in zip(modes, running, strict=True)}
    finally:
        for process in running:
            process.kill()
            process.communicate()


def _address(process: subprocess.Popen[str], mode: Mode) -> str:
    assert process.stdout is not None  # a pipe
    address = process.stdout.readline().strip()
    if not address:
        raise DemoError(f"the provider in mode {mode} did not start; see its log")
    return address
