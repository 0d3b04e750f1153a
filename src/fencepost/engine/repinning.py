"""Moving live executions to another version of their saga, where their chains fit it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from fencepost import serde
from fencepost.commands import Definition, JoinChildren, Wake, queue_of
from fencepost.decide import decide, misfit
from fencepost.errors import CheckpointForkError, PayloadError, UnknownSagaError
from fencepost.records import Checkpoint, CheckpointKind, Execution, Phase, Status
from fencepost.saga import MapNode, Saga, StepNode, WaitKind, WaitNode

PAGE = 100
"""Executions that are read at a time."""


@dataclass(frozen=True, slots=True)
class Left:
    """An execution that stays as it is."""

    execution_id: UUID
    version: str
    status: Status
    reason: str


@dataclass(frozen=True, slots=True)
class Moved:
    """An execution that goes on in another version; in a dry run: that would."""

    execution: Execution
    version: str


@dataclass(frozen=True, slots=True)
class Repinned:
    """What came of `repin`.

    Attributes:
        to: The version that executions were moved to.
        moved: Those that were, or in a dry run would be.
        left: Those that stay as they are, with the reason.
    """

    saga: str
    to: str
    dry_run: bool
    moved: tuple[UUID, ...]
    left: tuple[Left, ...]


class Repins(Protocol):
    """What is needed of a store."""

    def others(
        self, saga: str, version: str, from_version: str | None, after: UUID | None, limit: int
    ) -> list[Execution]:
        """Live executions of other versions of a saga, by id, from after one on."""
        ...

    def chain(self, execution_id: UUID) -> Sequence[Checkpoint]:
        """An execution's checkpoints."""
        ...

    def children(self, parent_id: UUID, step: str, visit: int) -> list[Execution]:
        """The latest execution of each child's line, by index."""
        ...

    def move(
        self, execution: Execution, version: str, queue: str | None, *, by: str, why: str
    ) -> Execution | None:
        """Move an execution that is still as it was read; None where it isn't."""
        ...


def target(known: Iterable[Definition], saga: str, to: str | None) -> Definition:
    """The definition to move to.

    Raises:
        UnknownSagaError: None of that name and version is registered.
        PayloadError: Several are, and none was named.
    """
    versions = {one.version: one for one in known if one.name == saga}
    if not versions:
        raise UnknownSagaError(f"no saga {saga!r} is registered in this app", saga=saga)
    listed = ", ".join(sorted(versions))
    if to is None and len(versions) > 1:
        raise PayloadError(f"saga {saga!r} has several versions, say to which: {listed}")
    if to is not None and to not in versions:
        raise UnknownSagaError(
            f"saga {saga!r} has no version {to} in this app; it has {listed}", saga=saga
        )
    return versions[to] if to is not None else next(iter(versions.values()))


def repin(
    store: Repins,
    definition: Definition,
    *,
    from_version: str | None,
    by: str,
    why: str,
    dry_run: bool,
) -> Iterator[Moved | Left]:
    """Move what can be moved, one after the other; each in a transaction of its own.

    Args:
        store: Where the executions are.
        definition: What to move to.
        from_version: Only those of this version.
        by: Who decides.
        why: Kept in the audit trail.
        dry_run: Only look.
    """
    after: UUID | None = None
    while page := store.others(definition.name, definition.version, from_version, after, PAGE):
        after = page[-1].execution_id
        for execution in page:
            yield _one(store, definition, execution, by, why, dry_run=dry_run)


def _one(
    store: Repins, definition: Definition, execution: Execution, by: str, why: str, *, dry_run: bool
) -> Moved | Left:
    def left(reason: str) -> Left:
        return Left(execution.execution_id, execution.version, execution.status, reason)

    chain = store.chain(execution.execution_id)
    if chain[-1].checkpoint_id != execution.head:
        return left("it has gone on meanwhile: try again")
    reason = unfit(definition, execution, chain, store.children)
    if reason is not None:
        return left(reason)
    if dry_run:
        return Moved(execution, definition.version)
    queue = queue_of(decide(definition, execution.phase, chain), definition)
    moved = store.move(execution, definition.version, queue, by=by, why=why)
    if moved is None:
        return left("it has gone on meanwhile: try again")
    return Moved(moved, definition.version)


def unfit(
    definition: Definition,
    execution: Execution,
    chain: Sequence[Checkpoint],
    children: Callable[[UUID, str, int], list[Execution]],
) -> str | None:
    """Why an execution can't go on under this definition; None if it can."""
    if execution.directive is not None:
        return "what a person has decided about it is yet to be done: try again"
    if execution.phase is Phase.COMPENSATING:
        return "it undoes its work"
    reason = misfit(definition, execution.phase, chain)
    if reason is not None:
        return reason
    try:
        _load_all(definition, chain)
        if isinstance(definition, Saga):
            return _unfit_in_hand(definition, execution, chain, children)
    except (PayloadError, CheckpointForkError) as problem:
        return problem.message
    return None


def _load_all(definition: Definition, chain: Sequence[Checkpoint]) -> None:
    """What is on record has to be of the types that this definition reads it as."""
    serde.load(chain[0].result, definition.input_type, what="input")
    if not isinstance(definition, Saga):
        return  # what its steps return, its code says when it comes to them
    nodes = {node.name: node for node in definition.all_nodes()}
    for entry in chain[1:]:
        what = f"result of {entry.step!r} (visit {entry.visit})"
        match nodes.get(entry.step), entry.kind:
            case StepNode() as node, CheckpointKind.STEP:
                serde.load(entry.result, node.output_type, what=what)
            case MapNode() as node, CheckpointKind.JOIN:
                serde.load(entry.result, node.output_type, what=what)
            case WaitNode(kind=WaitKind.SIGNAL) as node, CheckpointKind.WOKEN:
                serde.load(entry.result["payload"], node.output_type, what=what)
            case _:
                pass


def _unfit_in_hand(
    saga: Saga[Any, Any],
    execution: Execution,
    chain: Sequence[Checkpoint],
    children: Callable[[UUID, str, int], list[Execution]],
) -> str | None:
    """Whether what the execution waits for is what this version takes."""
    command = decide(saga, execution.phase, chain)
    if isinstance(command, Wake):
        awaited = None if command.node.signal is None else command.node.signal.name
        if command.since.result["signal"] != awaited:
            return (
                f"{command.node.name!r} waits for {command.since.result['signal']!r}, and in this"
                f" version for {awaited!r}"
            )
    if isinstance(command, JoinChildren):
        for child in children(execution.execution_id, command.node.name, command.visit):
            if child.status is Status.SUCCEEDED:
                what = f"result of child {child.child_index} of {command.node.name!r}"
                serde.load(child.result, command.node.child.output_type, what=what)
    return None
