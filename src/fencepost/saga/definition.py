"""`Saga` and `ErrorBranch`: immutable, typed, checked while they are being written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, TypeVar

from fencepost import serde
from fencepost.effects.declaration import Effect
from fencepost.errors import SagaDefinitionError
from fencepost.failure import Failure
from fencepost.identity import check_name
from fencepost.saga.steps import Step, check_compensation
from fencepost.saga.typecheck import fits, item_type, read_signature
from fencepost.saga.version import structural_hash

In = TypeVar("In")
Start = TypeVar("Start")
Out = TypeVar("Out")
Next = TypeVar("Next")
Item = TypeVar("Item")
ItemResult = TypeVar("ItemResult")

DEFAULT_MAX_CONCURRENCY = 16
DEFAULT_MAX_ITEMS = 1_000


CACHED = ("version", "compensable", "steps")
"""What a changed copy computes anew."""


class TerminalKind(StrEnum):
    """How the last step's value ends an execution."""

    FINISH = "finish"
    CONTINUE_AS_NEW = "continue-as-new"


@dataclass(frozen=True)
class StepNode:
    """A place in a saga at which a step runs."""

    step: Step[Any, Any]
    terminal: TerminalKind | None = None

    @property
    def name(self) -> str:
        """The step's name."""
        return self.step.name

    @property
    def output_type(self) -> Any:
        """What the next node is given."""
        return self.step.output_type


@dataclass(frozen=True)
class MapNode:
    """A place in a saga at which a child saga runs once for each item."""

    name: str
    child: Saga[Any, Any]
    over: Callable[[Any], Sequence[Any]]
    input_type: Any
    max_concurrency: int
    max_items: int

    @property
    def output_type(self) -> Any:
        """What the next node is given: the children's results, by index."""
        return list[self.child.output_type]  # type: ignore[name-defined]


Node = StepNode | MapNode


class ErrorBranch(Generic[In, Out]):
    """What happens after compensation when a step fails with a certain error.

    The first step is given a `Failure` with the saga's input; each next one the result of the
    one before. Without a terminal the execution ends as compensated, with the original error.

    Args:
        error: Errors of this class (and subclasses) take the branch.
    """

    def __init__(self: ErrorBranch[Any, Any], error: type[Exception]) -> None:
        if not inspect.isclass(error) or not issubclass(error, Exception):  # type: ignore[redundant-expr] # callers without a type checker
            raise SagaDefinitionError(f"an error branch needs an exception class, not {error!r}")
        self.error = error
        self.nodes: tuple[StepNode, ...] = ()
        self.compensations: tuple[tuple[Step[Any, Any], Step[Any, Any]], ...] = ()

    @property
    def name(self) -> str:
        """How checkpoints name the branch."""
        return f"{self.error.__module__}.{self.error.__qualname__}"

    def _with(self, **changes: Any) -> Any:
        copy: ErrorBranch[Any, Any] = ErrorBranch(self.error)
        copy.__dict__.update(self.__dict__ | changes)
        return copy

    def _append(self, node: StepNode) -> Any:
        if self.nodes:
            last = self.nodes[-1]
            if last.terminal is not None:
                raise SagaDefinitionError(f"nothing can follow {last.terminal} ({last.name!r})")
            _check_link(last.output_type, node.step.input_type, last.name, node.name)
        return self._with(nodes=(*self.nodes, node))

    def compensate(self, step: Step[Any, Any], undo: Step[Any, Any]) -> ErrorBranch[In, Out]:
        """Undo a completed `step` with `undo` on this error.

        Where the step declares the same compensation itself, it still runs once.
        """
        check_compensation(step, undo)
        branch: ErrorBranch[In, Out] = self._with(compensations=(*self.compensations, (step, undo)))
        return branch

    def then(self, step: Step[Any, Next]) -> ErrorBranch[In, Next]:
        """Run a step."""
        branch: ErrorBranch[In, Next] = self._append(StepNode(step))
        return branch

    def finish(self, step: Step[Any, Next]) -> ErrorBranch[In, Next]:
        """End the execution as succeeded, with this step's result as the saga's."""
        branch: ErrorBranch[In, Next] = self._append(StepNode(step, TerminalKind.FINISH))
        return branch

    def continue_as_new(self, step: Step[Any, Next]) -> ErrorBranch[In, Next]:
        """End this execution and start the next of its line with this step's result as input."""
        branch: ErrorBranch[In, Next] = self._append(StepNode(step, TerminalKind.CONTINUE_AS_NEW))
        return branch


class Saga(Generic[In, Out]):
    """A typed sequence of steps and fan-outs, with compensation and error branches.

    Immutable: every method returns a new saga. Types are checked when it is defined.

    Args:
        name: Stored with every execution.
        input: The input's type; anything that pydantic can turn into JSON.
    """

    def __init__(  # `input` shadows a builtin: it is what the argument is
        self: Saga[Start, Start],
        name: str,
        *,
        input: type[Start],  # noqa: A002
    ) -> None:
        self.name = check_name(name, "saga")
        self.input_type: Any = input
        serde.adapter(input)
        self.nodes: tuple[Node, ...] = ()
        self.branches: tuple[ErrorBranch[Any, Any], ...] = ()

    def _with(self, **changes: Any) -> Any:
        copy: Saga[Any, Any] = Saga(self.name, input=self.input_type)
        copy.__dict__.update({k: v for k, v in self.__dict__.items() if k not in CACHED} | changes)
        return copy

    @property
    def output_type(self) -> Any:
        """The type of the last node's result."""
        return self.nodes[-1].output_type if self.nodes else self.input_type

    @cached_property
    def version(self) -> str:
        """Structural hash: names, order, kinds, types, compensations and branches."""
        return structural_hash(self)

    def _append(self, node: Node, input_type: Any) -> Any:
        if self.nodes:
            last = self.nodes[-1]
            if isinstance(last, StepNode) and last.terminal is not None:
                raise SagaDefinitionError(f"nothing can follow {last.terminal} ({last.name!r})")
        before = self.nodes[-1].name if self.nodes else f"saga {self.name}"
        self._check_new_name(node.name)
        _check_link(self.output_type, input_type, before, node.name)
        return self._with(nodes=(*self.nodes, node))

    def _check_new_name(self, name: str) -> None:
        if any(name == node.name for node in self.all_nodes()):
            raise SagaDefinitionError(
                f"saga {self.name!r} has two steps named {name!r}; give one @step(name=...)",
                saga=self.name,
                step=name,
            )

    def then(self, step: Step[Out, Next]) -> Saga[In, Next]:
        """Run a step on the result so far."""
        saga: Saga[In, Next] = self._append(StepNode(step), step.input_type)
        return saga

    def continue_as_new(self, step: Step[Out, In]) -> Saga[In, In]:
        """End by starting the next execution of this line, with this step's result as input."""
        saga: Saga[In, In] = self._append(
            StepNode(step, TerminalKind.CONTINUE_AS_NEW), step.input_type
        )
        _check_link(step.output_type, self.input_type, step.name, f"saga {self.name}")
        return saga

    def map(
        self,
        child: Saga[Item, ItemResult],
        *,
        over: Callable[[Out], Sequence[Item]],
        name: str,
        max_concurrency: int = DEFAULT_MAX_CONCURRENCY,
        max_items: int = DEFAULT_MAX_ITEMS,
    ) -> Saga[In, list[ItemResult]]:
        """Run a child saga for each item, as a Celery chord with a join in SQL.

        Args:
            child: The saga that each item goes through, as an execution of its own.
            over: Pure function from the result so far to the items.
            name: The node's name.
            max_concurrency: How many children may be under way at once, across the fleet.
            max_items: More items than this fail the step before anything is inserted.
        """
        check_name(name, "step")
        if max_concurrency < 1 or max_items < 1:
            raise SagaDefinitionError(f"{name!r}: max_concurrency and max_items must be 1 or more")
        signature = read_signature(over, f"{name} (over)")
        given = item_type(signature.output_type)
        if given is None:
            raise SagaDefinitionError(
                f"{name!r}: `over` must return a list, not {serde.describe(signature.output_type)}"
            )
        _check_link(given, child.input_type, f"{name} (over)", f"saga {child.name}")
        node = MapNode(name, child, over, signature.input_type, max_concurrency, max_items)
        saga: Saga[In, list[ItemResult]] = self._append(node, signature.input_type)
        return saga

    def on_error(self, branch: ErrorBranch[Any, Any]) -> Saga[In, Out]:
        """Add an error branch; of several that match, the first added is taken.

        Raises:
            SagaDefinitionError: The branch can't be reached, or its types or names don't fit.
        """
        for earlier in self.branches:
            if issubclass(branch.error, earlier.error):
                raise SagaDefinitionError(
                    f"error branch {branch.name} can't be reached: {earlier.name} comes first"
                )
        for node in branch.nodes:
            self._check_new_name(node.name)
        if branch.nodes:
            first = branch.nodes[0]
            declared = Failure[self.input_type]  # type: ignore[name-defined]
            _check_link(declared, first.step.input_type, f"error {branch.name}", first.name)
            self._check_terminal(branch.nodes[-1])
        self._check_branch_compensations(branch)
        saga: Saga[In, Out] = self._with(branches=(*self.branches, branch))
        return saga

    def _check_terminal(self, last: StepNode) -> None:
        match last.terminal:
            case TerminalKind.CONTINUE_AS_NEW:
                _check_link(last.output_type, self.input_type, last.name, f"the next {self.name}")
            case TerminalKind.FINISH:
                _check_link(last.output_type, self.output_type, last.name, f"result of {self.name}")
            case None:
                pass

    def _check_branch_compensations(self, branch: ErrorBranch[Any, Any]) -> None:
        own = {node.step for node in self.nodes if isinstance(node, StepNode)}
        for step, undo in branch.compensations:
            if step not in own:
                raise SagaDefinitionError(
                    f"error branch {branch.name} compensates {step.name!r}, which isn't a step"
                    f" of saga {self.name!r}"
                )
            if step.compensation is not None and step.compensation is not undo:
                raise SagaDefinitionError(
                    f"step {step.name!r} is compensated by {step.compensation.name!r} and, in"
                    f" error branch {branch.name}, by {undo.name!r}: declare one"
                )

    def all_nodes(self) -> Iterator[Node]:
        """The nodes of the main line and of every branch."""
        yield from self.nodes
        for branch in self.branches:
            yield from branch.nodes

    def branch_for(self, error: BaseException) -> ErrorBranch[Any, Any] | None:
        """The error branch that this exception takes."""
        return next((b for b in self.branches if isinstance(error, b.error)), None)

    def branch_named(self, name: str | None) -> ErrorBranch[Any, Any] | None:
        """The error branch that a checkpoint names."""
        return next((b for b in self.branches if b.name == name), None)

    def undo_of(
        self, step: Step[Any, Any], branch: ErrorBranch[Any, Any] | None
    ) -> Step[Any, Any] | None:
        """The compensation of a step, declared on itself or in the branch that was taken."""
        if step.compensation is not None:
            return step.compensation
        declared = branch.compensations if branch is not None else ()
        return next((undo for of, undo in declared if of is step), None)

    @cached_property
    def compensable(self) -> bool:
        """Whether a completed execution has anything that could be undone."""
        return any(
            node.child.compensable if isinstance(node, MapNode) else bool(node.step.compensation)
            for node in self.nodes
        )

    @cached_property
    def steps(self) -> tuple[Step[Any, Any], ...]:
        """Every step that an execution of this saga may run, compensations included."""
        own = [node.step for node in self.all_nodes() if isinstance(node, StepNode)]
        undos = [step.compensation for step in own if step.compensation is not None]
        declared = [undo for branch in self.branches for _, undo in branch.compensations]
        return tuple(dict.fromkeys([*own, *undos, *declared]))

    @property
    def effects(self) -> tuple[Effect[Any, Any], ...]:
        """What its steps may perform."""
        return tuple(effect for step in self.steps for effect in step.effects)

    @property
    def fenced(self) -> bool:
        """Whether a step has an effect at a sink that checks fence tokens."""
        return any(effect.fence is not None for effect in self.effects)

    @property
    def fans_out(self) -> bool:
        """Whether it starts children."""
        return any(isinstance(node, MapNode) for node in self.nodes)

    def descendants(self) -> Iterator[Saga[Any, Any]]:
        """This saga and every child saga, each once."""
        seen: set[int] = set()
        todo: list[Saga[Any, Any]] = [self]
        while todo:
            saga = todo.pop()
            if id(saga) in seen:
                continue
            seen.add(id(saga))
            yield saga
            todo.extend(node.child for node in saga.nodes if isinstance(node, MapNode))

    def __repr__(self) -> str:
        return f"<Saga {self.name} {self.version}: {' -> '.join(n.name for n in self.nodes)}>"


def _check_link(given: Any, wanted: Any, before: str, after: str) -> None:
    if not fits(given, wanted):
        raise SagaDefinitionError(
            f"{after!r} takes {serde.describe(wanted)}, but {before!r} gives"
            f" {serde.describe(given)}",
            before=before,
            after=after,
        )
