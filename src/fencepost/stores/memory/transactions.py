"""What a transactional step, or a caller of `start`, writes in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fencepost.effects.model import EffectIntent
from fencepost.errors import ExecutionStateError
from fencepost.records import Checkpoint, Commit, NewExecution

if TYPE_CHECKING:
    from fencepost.stores.memory.owning import Owning


class MemorySession:
    """A unit of work: what was added becomes visible at the commit, all of it or nothing.

    Attributes:
        added: Objects added so far.
        new: Executions to be created with them.
        effects: Effects to be recorded with them, with their results.
    """

    def __init__(self, land: Callable[[MemorySession], None] | None) -> None:
        self._land = land
        self.added: list[Any] = []
        self.new: list[NewExecution] = []
        self.effects: list[tuple[EffectIntent, Any]] = []

    def add(self, item: Any) -> None:
        """Write one object."""
        self.added.append(item)

    def add_all(self, items: Iterable[Any]) -> None:
        """Write several objects."""
        self.added.extend(items)

    def commit(self) -> None:
        """Make it all visible.

        Raises:
            ExecutionStateError: The session belongs to a step, whose checkpoint commits it.
        """
        if self._land is None:
            raise ExecutionStateError("a transactional step's session is committed for it")
        self._land(self)
        self.rollback()

    def rollback(self) -> None:
        """Drop what was added since the last commit."""
        for part in (self.added, self.new, self.effects):
            part.clear()

    @contextmanager
    def begin_nested(self) -> Iterator[None]:
        """Drop what is added inside if it raises."""
        parts: list[list[Any]] = [self.added, self.new, self.effects]
        before = [len(part) for part in parts]
        try:
            yield
        except BaseException:
            for part, length in zip(parts, before, strict=True):
                del part[length:]
            raise


class MemoryTransaction:
    """The transaction of a transactional step."""

    def __init__(self, store: Owning) -> None:
        self._store = store
        self._session = MemorySession(None)

    @property
    def session(self) -> MemorySession:
        """Collects what the step writes."""
        return self._session

    def commit(self, commit: Commit) -> Checkpoint:
        """Check the fence, extend the chain, and make the session's writes visible with it.

        Raises:
            StaleLeaseFenceError: Another owner; nothing was written.
            CheckpointForkError: The owner is right and the head isn't; nothing was written.
        """
        try:
            return self._store.commit_together(commit, self._session)
        finally:
            self._session.rollback()
