"""The API of `api.py` in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[3]


@contextmanager
def served_api(database: str, folder: Path) -> Iterator[str]:
    """Run it on a real ASGI server; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log = folder / "api.log"
    command = [sys.executable, "-m", "uvicorn", "--factory", "tests.conformance.sinks.api:make"]
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*command, "--port", str(port), "--lifespan", "off", "--log-level", "warning"],
            env=os.environ | {"API_DATABASE": database, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: answers(address), 20, lambda: f"the API to start: {log.read_text()}")
        yield address
    finally:
        server.kill()
        server.wait()


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address + "/.well-known/fencepost/fence", timeout=5)
    except urllib.error.HTTPError as problem:
        return problem.code == 405
    except OSError:
        return False
    raise AssertionError("the fence can't be asked by GET")
