"""The places of which a saga is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

from fencepost.errors import SagaDefinitionError
from fencepost.saga.joins import Collect, Join
from fencepost.saga.signals import APPROVAL, Signal
from fencepost.saga.steps import Step

if TYPE_CHECKING:
    from fencepost.saga.definition import Saga


class TerminalKind(StrEnum):
    """How the last step's value ends an execution."""

    FINISH = "finish"
    CONTINUE_AS_NEW = "continue-as-new"


@dataclass(frozen=True)
class StepNode:
    """A place at which a step runs.

    Attributes:
        pivot: Once it is completed, the saga only goes forward.
    """

    step: Step[Any, Any]
    terminal: TerminalKind | None = None
    pivot: bool = False

    def __post_init__(self) -> None:
        # Without a type checker, an effect or a bare function looks as if it fitted here.
        if not isinstance(self.step, Step):
            raise SagaDefinitionError(
                f"{self.step!r} is not a step: put @step on the function that runs here; an effect"
                " is performed in a step that declares it, with ctx.perform"
            )

    @property
    def name(self) -> str:
        """The step's name."""
        return self.step.name

    @property
    def input_type(self) -> Any:
        """What it takes."""
        return self.step.input_type

    @property
    def output_type(self) -> Any:
        """What the next node is given."""
        return self.step.output_type


@dataclass(frozen=True)
class MapNode:
    """A place at which a child saga runs once for each item, or (`single`) once.

    Attributes:
        over: Pure function from the result so far to the items.
        item_type: What `over` gives of each, None where it gives no list.
        max_items: More fail the fan-out before anything is inserted; None for any number.
    """

    name: str
    child: Saga[Any, Any]
    over: Callable[[Any], Sequence[Any]]
    input_type: Any
    item_type: Any
    join: Join
    max_concurrency: int
    max_items: int | None
    single: bool = False

    @property
    def output_type(self) -> Any:
        """What the next node is given: the children's results, by index."""
        if self.single:
            return self.child.output_type
        if isinstance(self.join, Collect):
            from fencepost.saga.joins import ChildResult

            return list[ChildResult[self.child.output_type]]  # type: ignore[name-defined]
        return list[self.child.output_type]  # type: ignore[name-defined]


@dataclass(frozen=True)
class BranchNode:
    """A place at which one of several paths is taken.

    Attributes:
        choose: Pure function from the result so far to a case.
        case_type: What it is annotated to return.
        cases: The paths, by `case_label` of their case.
        default: Taken where no case fits.
    """

    name: str
    choose: Callable[[Any], Any]
    input_type: Any
    case_type: Any
    cases: Mapping[str, Saga[Any, Any]]
    default: Saga[Any, Any] | None = None

    @property
    def paths(self) -> tuple[Saga[Any, Any], ...]:
        """All of them, the default last."""
        return (*self.cases.values(), *([self.default] if self.default is not None else []))

    @property
    def output_type(self) -> Any:
        """What the next node is given: what any of the paths gives."""
        union: Any = None
        for given in dict.fromkeys(_unhashed(path.output_type) for path in self.paths):
            union = given.declared if union is None else union | given.declared
        return union


@dataclass(frozen=True)
class _Declared:
    """A type as a dictionary's key, told apart by how it is written."""

    text: str
    declared: Any = field(compare=False)


def _unhashed(declared: Any) -> _Declared:
    declared = type(None) if declared is None else declared
    return _Declared(repr(declared), declared)


@dataclass(frozen=True)
class LoopNode:
    """A place at which a path is run, and run again while `again` says so.

    Attributes:
        again: Pure function from what the path gave.
        max_visits: Passes after which the loop fails if it wants another one.
    """

    name: str
    body: Saga[Any, Any]
    again: Callable[[Any], bool]
    again_type: Any
    max_visits: int

    @property
    def input_type(self) -> Any:
        """What it takes."""
        return self.body.input_type

    @property
    def output_type(self) -> Any:
        """What the next node is given."""
        return self.body.output_type


class WaitKind(StrEnum):
    """What a wait waits for."""

    SLEEP = "sleep"
    UNTIL = "until"
    SIGNAL = "signal"
    APPROVAL = "approval"


@dataclass(frozen=True)
class WaitNode:
    """A place at which the execution waits; nobody holds a lease, and no worker is busy.

    Attributes:
        input_type: What comes in; and what goes out, but for a signal.
        duration: For a sleep: how long, or a pure function that says it.
        at: For `until`: a pure function to a moment with a time zone.
        signal: What ends the wait.
        timeout: For signals and approvals: how long at most; None for ever.
    """

    name: str
    kind: WaitKind
    input_type: Any
    duration: timedelta | Callable[[Any], timedelta] | None = None
    at: Callable[[Any], datetime] | None = None
    signal: Signal[Any] | None = None
    timeout: timedelta | None = None
    argument_type: Any = None

    @property
    def output_type(self) -> Any:
        """What the next node is given."""
        if self.kind is WaitKind.SIGNAL and self.signal is not None:
            return self.signal.payload
        return self.input_type

    @property
    def approval(self) -> str | None:
        """The approval's name, if it is one."""
        if self.kind is not WaitKind.APPROVAL or self.signal is None:
            return None
        return self.signal.name.removeprefix(APPROVAL)


Node = StepNode | MapNode | BranchNode | LoopNode | WaitNode


def flattened(nodes: Iterable[Node]) -> Iterator[Node]:
    """The nodes, each followed by those of its paths: all that one execution may come to."""
    for node in nodes:
        yield node
        if isinstance(node, BranchNode):
            for path in node.paths:
                yield from flattened(path.nodes)
        elif isinstance(node, LoopNode):
            yield from flattened(node.body.nodes)


def case_label(case: Any) -> str:
    """How a case is written in checkpoints: an enum by its value, a truth value in lower case."""
    if isinstance(case, Enum):
        return case_label(case.value)
    if isinstance(case, bool):
        return str(case).lower()
    return str(case)


__all__ = [
    "BranchNode",
    "LoopNode",
    "MapNode",
    "Node",
    "StepNode",
    "TerminalKind",
    "WaitKind",
    "WaitNode",
    "case_label",
    "flattened",
]
