"""Servers for sinks: an object store, and an API of our own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conformance.sinks import s3
from tests.conformance.sinks.serving import served_api

# The suite's assertions explain themselves like a test's.
pytest.register_assert_rewrite("fencepost.testing.sinks", "fencepost.testing._preemption")


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
