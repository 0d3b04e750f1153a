"""Messages on Celery: hints that an execution should be looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from celery import Celery, chord
from celery.app.task import Task
from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import RedisError

from fencepost import identity
from fencepost.errors import ServiceUnavailableError
from fencepost.records import HIGHEST_PRIORITY, Execution

PUBLISH = {"retry_policy": {"max_retries": 2, "interval_start": 0.1, "interval_max": 1.0}}
"""The reaper publishes again, so a publisher need not wait long."""

CHORD_PART: dict[str, Any] = {"ignore_result": False}
"""Celery counts a chord's parts by their results."""


class CeleryTransport:
    """Implements `fencepost.ports.Transport`.

    An execution is always the same Celery task, with the same task id and chord membership, so
    that chords count it once and Flower shows one task however often it is dispatched.

    Args:
        app: The Celery app.
        run: The task that runs an execution.
        join: The task that a chord calls back.
    """

    def __init__(self, app: Celery, run: Task[..., Any], join: Task[..., Any]) -> None:
        self._app = app
        self._run = run
        self._join = join

    def dispatch(self, execution: Execution) -> None:
        """Publish the execution's task."""
        with _published():
            self._run.apply_async(
                (str(execution.execution_id),),
                _placement(execution),
                **_options(execution),
                **self._chord_of(execution),
            )

    def fan_out(self, children: Sequence[Execution]) -> None:
        """Publish the children as a chord whose body wakes their parent."""
        group_id = _group_id(children[0])
        header = [
            self._run.si(str(child.execution_id), **_placement(child)).set(
                **_options(child) | CHORD_PART
            )
            for child in children
        ]
        # The group's id is ours, because a child that is dispatched again has to name the same
        # group. Celery takes it from the chord's own options and no other place: it unpacks a
        # `group` and drops that one's.
        parts = chord(header, app=self._app, task_id=group_id)
        with _published():
            parts.apply_async(kwargs={"body": self._body(children[0])}, task_id=f"{group_id}-join")

    def _body(self, child: Execution) -> Any:
        return self._join.si(str(child.parent_id)).set(task_id=f"{_group_id(child)}-join")

    def _chord_of(self, execution: Execution) -> dict[str, Any]:
        if execution.parent_id is None:
            return {}
        return {
            "group_id": _group_id(execution),
            "group_index": execution.child_index,
            "chord": self._body(execution),
            **CHORD_PART,
        }


def _placement(execution: Execution) -> dict[str, Any]:
    """The task's own arguments: where it is meant to run, if not where Celery routes it."""
    return {} if execution.queue is None else {"queue": execution.queue}


def _options(execution: Execution) -> dict[str, Any]:
    name = execution.saga
    if execution.child_index is not None:
        name = f"{name}[{execution.child_index}]"
    return {
        "task_id": str(execution.execution_id),
        "root_id": str(execution.root_id),
        "shadow": name,
        # Celery on Redis has 0 for the most urgent.
        "priority": HIGHEST_PRIORITY - execution.priority,
        **_placement(execution),
        **PUBLISH,
    }


def _group_id(child: Execution) -> str:
    assert child.parent_id is not None  # children only
    step, visit = child.parent_step or "", child.parent_visit or 1
    return str(identity.fan_out_id(child.parent_id, step, visit))


@contextmanager
def _published() -> Iterator[None]:
    try:
        yield
    # `AttributeError`: kombu's own, where another thread has just closed the broken connection.
    except (KombuError, OperationalError, RedisError, OSError, AttributeError) as problem:
        raise ServiceUnavailableError(
            f"the broker doesn't take messages: {problem}", service="broker"
        ) from problem
