"""Stores whose every operation is a scheduling point, and may lose its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fencepost.errors import ServiceUnavailableError
from fencepost.testing.explore.scheduler import Scheduler, Verdict

WRITES = frozenset(
    {
        "commit",
        "acquire",
        "record_attempt",
        "hand_back",
        "park",
        "intend",
        "announce",
        "conclude",
        "reopen",
        "settle",
        "release",
        "take",
        "serve",
        "dispatch",
        "fan_out",
        "create",
    }
)
"""Operations of which the answer can get lost."""

CONTEXTS = frozenset({"transaction", "in_session"})


class Scheduled:
    """Stands before a store.

    Args:
        store: Does what is asked; one operation is one atomic step.
        scheduler: Decides when.
        name: Of the store, for the timeline.
    """

    def __init__(self, store: Any, scheduler: Scheduler, name: str) -> None:
        self._store = store
        self._scheduler = scheduler
        self._name = name

    def __getattr__(self, operation: str) -> Any:
        found = getattr(self._store, operation)
        if not callable(found):
            return found
        wrapped = (
            self._context(found) if operation in CONTEXTS else self._operation(found, operation)
        )
        setattr(self, operation, wrapped)  # the next call doesn't come here
        return wrapped

    def _operation(self, found: Callable[..., Any], operation: str) -> Callable[..., Any]:
        lossy = operation in WRITES
        name = f"{self._name}.{operation}"

        def call(*args: Any, **kwargs: Any) -> Any:
            what = name + _about(args)
            verdict = self._scheduler.point(what, lossy=lossy)
            if verdict is Verdict.LOSE_REQUEST:
                raise ServiceUnavailableError(f"{what}: nobody answers", service=self._name)
            result = found(*args, **kwargs)
            if verdict is Verdict.LOSE_ANSWER:
                raise ServiceUnavailableError(f"{what}: the answer is lost", service=self._name)
            return result

        return call

    def _context(self, found: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def call(*args: Any, **kwargs: Any) -> Iterator[Any]:
            with found(*args, **kwargs) as inside:
                yield inside if inside is None else Scheduled(inside, self._scheduler, self._name)

        return call


def _about(args: tuple[Any, ...]) -> str:
    """What an operation is about, in a word: the kind and step of a commit."""
    if not args:
        return ""
    first = args[0]
    kind = getattr(first, "kind", None)
    if kind is None:
        return ""
    step = getattr(first, "step", None) or getattr(first, "effect", None)
    return f"({kind} {step})" if step is not None else ""
