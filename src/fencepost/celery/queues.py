"""Whether somebody works off the queues that sagas name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from fencepost.commands import Definition
from fencepost.errors import ServiceUnavailableError
from fencepost.findings import Finding, Rule, Severity, source_of
from fencepost.saga import Saga

PATIENCE = 2.0
"""Seconds that running workers get to answer."""

NOT_SERVED = Rule(
    "queue.not-served",
    Severity.ERROR,
    "A step is to run on a queue that no worker consumes from.",
    "Its executions wait there for ever. Without `--live` the app's settings are asked: a queue"
    " that isn't in `task_queues` can't be used where `task_create_missing_queues` is off. With"
    " it, the workers that run are asked.",
    "start a worker with -Q and this queue, or name another one",
)

QUEUE_RULES: tuple[Rule, ...] = (NOT_SERVED,)


def declared_queues(app: Celery) -> set[str] | None:
    """The queues that there can be, by the app's settings; None where any can be made."""
    if not app.conf.task_queues or app.conf.task_create_missing_queues:
        return None
    return set(app.amqp.queues)


def served_queues(app: Celery, *, timeout: float = PATIENCE) -> set[str]:
    """The queues from which running workers consume.

    Args:
        app: The Celery app.
        timeout: Seconds that they get to answer.

    Raises:
        ServiceUnavailableError: The broker doesn't answer.
    """
    try:
        answers = app.control.inspect(timeout=timeout).active_queues() or {}
    except (OSError, OperationalError) as problem:
        raise ServiceUnavailableError(f"the broker does not answer: {problem}") from problem
    return {str(queue["name"]) for queues in answers.values() for queue in queues}


def check_queues(
    definitions: Iterable[Definition], queues: set[str], *, usual: str | None = None
) -> list[Finding]:
    """Findings about queues that are named and not served.

    Args:
        definitions: The sagas and tasks.
        queues: What there is.
        usual: Where work goes that names no queue; None leaves it out.
    """
    found: list[Finding] = []
    for definition in definitions:
        for known in definition.descendants():
            for queue, place, function in _named(known):
                name = queue or usual
                if name is not None and name not in queues:
                    said = f"it runs on queue {name!r}, which nobody serves"
                    found.append(NOT_SERVED.at(place, said, source=source_of(function)))
    return list(dict.fromkeys(found))


def usual_queue(app: Celery) -> str:
    """Where Celery routes Fencepost's work that names no queue."""
    route: dict[str, Any] = app.amqp.router.route({}, "fencepost.run")
    queue = route.get("queue")
    return str(getattr(queue, "name", queue) or app.conf.task_default_queue)


def _named(definition: Definition) -> Iterator[tuple[str | None, str, Any]]:
    """(queue, place, function) of everything that may run."""
    if not isinstance(definition, Saga):
        yield None, definition.name, definition.function
        return
    for step in definition.steps:
        yield step.queue or definition.queue, f"{definition.name}/{step.name}", step.function
