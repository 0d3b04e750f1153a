"""A sink's module loads the library of its own storage, and no other."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIBRARIES = {"alembic", "boto3", "celery", "kombu", "psycopg", "pytest", "redis", "sqlalchemy"}
SHOW = "import sys; import {module}; print(*sorted({{n.partition('.')[0] for n in sys.modules}}))"


@pytest.mark.parametrize(
    ("module", "needs"),
    [
        ("fencepost.sinks", set()),
        ("fencepost.sinks.http", set()),
        ("fencepost.sinks.files", set()),
        ("fencepost.sinks.objects", set()),
        ("fencepost.sinks.redis", {"redis"}),
        ("fencepost.sinks.tables", {"sqlalchemy"}),
        ("fencepost.sinks.sql", {"sqlalchemy"}),
        ("fencepost.sinks.asgi", {"sqlalchemy"}),
        ("fencepost.testing", set()),
        ("fencepost.testing.sinks", {"pytest"}),
    ],
)
def test_only_what_it_needs_is_loaded(module: str, needs: set[str]) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", SHOW.format(module=module)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert LIBRARIES & set(shown.stdout.split()) == needs
