"""Servers for sinks: an object store, and an API of our own."""

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
from tempfile import TemporaryDirectory

import pytest

from tests.conformance.sinks import s3
from tests.support.waiting import wait_for

# The suite's assertions explain themselves like a test's.
pytest.register_assert_rewrite("fencepost.testing.sinks", "fencepost.testing._preemption")

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def memory_folder() -> Iterator[Path]:
    """A folder in memory where there is one: these tests flush to the disk very often."""
    shared_memory = Path("/dev/shm")
    with TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    with s3.serve() as url:
        yield url


@pytest.fixture(scope="module")
def api_server(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_api(postgres, tmp_path_factory.mktemp("api")) as address:
        yield address


@contextmanager
def served_api(database: str, folder: Path) -> Iterator[str]:
    """The API of `api.py` in a process of its own, on a real ASGI server."""
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
