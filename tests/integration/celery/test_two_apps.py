"""Two Celery apps in one process, each with a Fencepost of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from celery import Celery

import fencepost
from fencepost import Saga, Status, step
from fencepost.stores.sql import migrate


@step
def double(number: int) -> int:
    return 2 * number


doubling = Saga("doubling", input=int).then(double)


def test_each_runs_its_own_executions(tmp_path: Path, redis_url: str) -> None:
    apps = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("one", "two"):
            database_url = f"sqlite:///{tmp_path / name}.sqlite3"
            migrate(database_url)
            app = Celery(name, broker=redis_url, set_as_current=False)
            fp = fencepost.install(
                app, sagas=[doubling], database_url=database_url, redis_url=redis_url
            )
            app.finalize()
            apps.append((app, fp))
    for app, fp in apps:
        handle = fp.start(doubling, 21)
        run: Callable[[str], dict[str, object]] = app.tasks["fencepost.run"]
        assert run(str(handle.execution_id))["result"] == 42
        assert handle.status() is Status.SUCCEEDED
        fp.database.dispose()


def test_an_app_of_somebody_else_is_left_alone(tmp_path: Path, redis_url: str) -> None:
    app = Celery("ours", broker=redis_url, set_as_current=False)
    fencepost.install(app, database_url=f"sqlite:///{tmp_path / 'x.sqlite3'}")
    theirs = Celery("theirs", set_as_current=False)
    theirs.finalize()
    assert not [name for name in theirs.tasks if name.startswith("fencepost.")]
