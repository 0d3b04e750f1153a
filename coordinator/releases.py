"""Starting a release on the servers of the environment, and following it to its end."""

from __future__ import annotations

import time
from datetime import timedelta
from uuid import UUID

from celery import Celery

from coordinator.acts import Acts
from coordinator.composition import Factory
from coordinator.narrator import Narrator
from coordinator.watch import Watch
from fencepost.records import Execution, Status
from ledger.staging import StagingStore
from ledger.vocabulary import ReleaseRequest
from saga.release import release

POLL = 0.2
LONELY_SECONDS = 5.0
"""After this long without any worker's work it is worth asking whether there is one."""


def start(
    factory: Factory,
    request: ReleaseRequest,
    key: str | None,
    deadline: timedelta | None = None,
) -> tuple[UUID, bool]:
    """Start a release.

    Args:
        factory: Of this process.
        request: From a release file.
        key: Business key: the same key with the same request finds the release that is there.
        deadline: For all its attempts together.

    Returns:
        The execution's id, and whether this call made it.

    Raises:
        BusinessKeyConflictError: The key belongs to another request.
    """
    handle = factory.fp.start(release, request, key=key, deadline=deadline)
    return handle.execution_id, handle.created


def follow(factory: Factory, execution_id: UUID, narrator: Narrator) -> Execution:
    """Tell what happens until the line of attempts has ended, or waits for a person.

    Returns:
        The last attempt.
    """
    watch = Watch(factory.fp.engine.executions, execution_id)
    acts = Acts(narrator, factory.settings.database, StagingStore())
    began = time.monotonic()
    asked = False
    while True:
        news = watch.news()
        if not news and not watch.executions:
            time.sleep(POLL)
            continue
        if news:
            narrator.begin(watch.attempts()[0].created_at)
            acts(watch, news)
        last = watch.attempts()[-1]
        ended = last.status.ended and last.status is not Status.CONTINUED
        if not news and (ended or watch.waiting_for_a_person()):
            return last
        if not asked and time.monotonic() - began > LONELY_SECONDS and last.epoch == 0:
            asked = True
            _say_if_alone(factory.app, narrator)
        time.sleep(POLL)


def _say_if_alone(app: Celery, narrator: Narrator) -> None:
    if not app.control.ping(timeout=1.0):
        narrator.note(
            "no worker answers. The release is safe in SQL and starts with the first one:"
            " celery -A coordinator.app worker",
            style="yellow",
        )
