"""`import fencepost` is fast: it loads no I/O library until something is used that needs one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("alembic", "billiard", "celery", "kombu", "psycopg", "redis", "sqlalchemy")
SHOW = "import sys; import {module}; print(*sorted({{n.partition('.')[0] for n in sys.modules}}))"


@pytest.mark.parametrize(
    "module", ["fencepost", "fencepost.saga", "fencepost.decide", "fencepost.testing"]
)
def test_no_io_library_is_loaded(module: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", SHOW.format(module=module)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not set(HEAVY) & set(shown.stdout.split())


def test_a_public_name_is_never_hidden_by_a_module_of_the_same_name() -> None:
    """Importing a submodule sets its name on the package, over what is exported there."""
    import fencepost

    modules = {path.stem for path in Path(fencepost.__path__[0]).iterdir()}
    assert not modules & set(fencepost.__all__)
