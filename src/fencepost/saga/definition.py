"""`Saga`: an immutable, typed description of what an execution does. Building one judges nothing.

`fencepost.saga.check` finds what is wrong with a saga, all at once; what has errors can't be
registered, and so never reaches a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Generic, TypeVar, overload

from fencepost.effects.declaration import Effect
from fencepost.errors import SagaDefinitionError
from fencepost.identity import check_name
from fencepost.saga.branches import ErrorBranch
from fencepost.saga.joins import (
    ALL_SUCCEED,
    AllSucceed,
    ChildResult,
    Collect,
    FirstFailure,
    Join,
    Quorum,
)
from fencepost.saga.nodes import (
    BranchNode,
    LoopNode,
    MapNode,
    Node,
    StepNode,
    TerminalKind,
    WaitKind,
    WaitNode,
    case_label,
    flattened,
)
from fencepost.saga.signals import Signal, approval_signal
from fencepost.saga.steps import Step
from fencepost.saga.typecheck import item_type, read_signature
from fencepost.saga.version import structural_hash

In = TypeVar("In")
Start = TypeVar("Start")
Out = TypeVar("Out")
Next = TypeVar("Next")
Item = TypeVar("Item")
ItemResult = TypeVar("ItemResult")
Case = TypeVar("Case")

DEFAULT_MAX_CONCURRENCY = 16
DEFAULT_MAX_ITEMS = 1_000

CACHED = ("version", "compensable", "steps", "effects")
"""What a changed copy computes anew."""


class Saga(Generic[In, Out]):
    """Steps in order, with fan-outs, paths, waits, compensation and error branches.

    Immutable: every method returns a new saga. A saga is also what a branch or a loop takes as a
    path; its steps then run in the execution that comes to it. By `map` and `child` it runs as
    executions of its own.

    Args:
        name: Stored with every execution.
        input: The input's type; anything that pydantic can turn into JSON.
        deadline: From the start of an execution until it is turned back, if it has neither ended
            nor passed its pivot. What continues it as new has what is left of it.
        queue: Where its steps run that don't name a queue themselves; by default where Celery
            routes them.
    """

    def __init__(  # `input` shadows a builtin: it is what the argument is
        self: Saga[Start, Start],
        name: str,
        *,
        input: type[Start],  # noqa: A002
        deadline: timedelta | None = None,
        queue: str | None = None,
    ) -> None:
        self.name = check_name(name, "saga")
        self.input_type: Any = input
        if deadline is not None and deadline <= timedelta(0):
            raise SagaDefinitionError(f"saga {name!r}: deadline must be positive", saga=name)
        self.deadline = deadline
        self.queue = queue
        self.nodes: tuple[Node, ...] = ()
        self.branches: tuple[ErrorBranch[Any, Any], ...] = ()

    def _with(self, **changes: Any) -> Any:
        copy: Saga[Any, Any] = Saga(self.name, input=self.input_type)
        copy.__dict__.update({k: v for k, v in self.__dict__.items() if k not in CACHED} | changes)
        return copy

    def _append(self, node: Node) -> Any:
        return self._with(nodes=(*self.nodes, node))

    @property
    def output_type(self) -> Any:
        """The type of the last node's result."""
        return self.nodes[-1].output_type if self.nodes else self.input_type

    @cached_property
    def version(self) -> str:
        """Structural hash: names, order, kinds, types, compensations and branches."""
        return structural_hash(self)

    # -- building --------------------------------------------------------------------------

    def then(self, step: Step[Out, Next]) -> Saga[In, Next]:
        """Run a step on the result so far."""
        saga: Saga[In, Next] = self._append(StepNode(step))
        return saga

    def pivot(self, step: Step[Out, Next]) -> Saga[In, Next]:
        """Run the step after which there is no way back.

        Should it fail, all before it is undone. Once it is completed nothing is ever undone: what
        comes after it is tried again, and parks where that doesn't help.
        """
        saga: Saga[In, Next] = self._append(StepNode(step, pivot=True))
        return saga

    def continue_as_new(self, step: Step[Out, In]) -> Saga[In, In]:
        """End by starting the next execution of this line, with this step's result as input."""
        saga: Saga[In, In] = self._append(StepNode(step, TerminalKind.CONTINUE_AS_NEW))
        return saga

    @overload
    def map(
        self,
        child: Saga[Item, ItemResult],
        *,
        over: Callable[[Out], Sequence[Item]],
        name: str,
        join: AllSucceed | FirstFailure | Quorum = ...,
        max_concurrency: int = ...,
        max_items: int | None = ...,
    ) -> Saga[In, list[ItemResult]]: ...
    @overload
    def map(
        self,
        child: Saga[Item, ItemResult],
        *,
        over: Callable[[Out], Sequence[Item]],
        name: str,
        join: Collect,
        max_concurrency: int = ...,
        max_items: int | None = ...,
    ) -> Saga[In, list[ChildResult[ItemResult]]]: ...
    def map(
        self,
        child: Saga[Any, Any],
        *,
        over: Callable[[Out], Sequence[Any]],
        name: str,
        join: Join = ALL_SUCCEED,
        max_concurrency: int = DEFAULT_MAX_CONCURRENCY,
        max_items: int | None = DEFAULT_MAX_ITEMS,
    ) -> Any:
        """Run a child saga for each item, as a Celery chord with a join in SQL.

        Args:
            child: The saga that each item goes through, as an execution of its own.
            over: Pure function from the result so far to the items.
            name: The node's name.
            join: What the children's ends mean: `AllSucceed()` (the default), `FirstFailure()`,
                `Quorum(k)` or `Collect()`.
            max_concurrency: How many children may be under way at once, across the fleet.
            max_items: More items than this fail the step before anything is inserted.
        """
        check_name(name, "step")
        if max_concurrency < 1 or (max_items is not None and max_items < 1):
            raise SagaDefinitionError(f"{name!r}: max_concurrency and max_items must be 1 or more")
        signature = read_signature(over, f"{name} (over)")
        return self._append(
            MapNode(
                name,
                child,
                over,
                signature.input_type,
                item_type(signature.output_type),
                join,
                max_concurrency,
                max_items,
            )
        )

    def child(self, child: Saga[Out, Next], *, name: str | None = None) -> Saga[In, Next]:
        """Run a saga as one execution of its own, and go on with its result.

        Args:
            child: It is given the result so far. Should it fail, so does this saga, with a
                `ChildrenFailedError`; should this saga fail later, the child undoes its work.
            name: The node's name; the child's name by default.
        """
        name = check_name(name or child.name, "step")
        node = MapNode(
            name,
            child,
            _only,
            child.input_type,
            child.input_type,
            ALL_SUCCEED,
            max_concurrency=1,
            max_items=1,
            single=True,
        )
        saga: Saga[In, Next] = self._append(node)
        return saga

    def branch(
        self,
        name: str,
        *,
        choose: Callable[[Out], Case],
        cases: Mapping[Case, Saga[Out, Next]],
        default: Saga[Out, Next] | None = None,
    ) -> Saga[In, Next]:
        """Take one of several paths.

        Args:
            name: The node's name. The choice is recorded, and asked for once.
            choose: Pure function from the result so far to a case: a text, an enum's member, a
                number or a truth value.
            cases: The path for each case: a saga that is given the result so far.
            default: The path for every other case.
        """
        check_name(name, "step")
        signature = read_signature(choose, f"{name} (choose)")
        node = BranchNode(
            name,
            choose,
            signature.input_type,
            signature.output_type,
            {case_label(case): path for case, path in cases.items()},
            default,
        )
        saga: Saga[In, Next] = self._append(node)
        return saga

    def loop(
        self,
        name: str,
        body: Saga[Out, Out],
        *,
        again: Callable[[Out], bool],
        max_visits: int,
    ) -> Saga[In, Out]:
        """Run a path, and again while `again` says so; each pass is a new visit of its steps.

        Args:
            name: The node's name.
            body: The path; it is given what the pass before gave.
            again: Pure function from what a pass gave. The answer is recorded.
            max_visits: Passes; wanting more fails the saga with a `LoopBoundError`.
        """
        check_name(name, "step")
        if max_visits < 1:
            raise SagaDefinitionError(f"{name!r}: max_visits must be 1 or more")
        signature = read_signature(again, f"{name} (again)")
        saga: Saga[In, Out] = self._append(
            LoopNode(name, body, again, signature.input_type, max_visits)
        )
        return saga

    def sleep(self, name: str, duration: timedelta | Callable[[Out], timedelta]) -> Saga[In, Out]:
        """Wait for a while, and go on with the result so far.

        Args:
            name: The node's name.
            duration: How long, from when the execution comes here, by the database's clock; or a
                pure function from the result so far that says so.
        """
        check_name(name, "step")
        argument = None
        if callable(duration):
            argument = read_signature(duration, f"{name} (duration)").input_type
        elif duration < timedelta(0):
            raise SagaDefinitionError(f"{name!r}: a sleep can't be negative")
        saga: Saga[In, Out] = self._append(
            WaitNode(
                name,
                WaitKind.SLEEP,
                self.output_type,
                duration=duration,
                argument_type=argument,
            )
        )
        return saga

    def until(self, name: str, at: Callable[[Out], datetime]) -> Saga[In, Out]:
        """Wait for a moment, and go on with the result so far.

        Args:
            name: The node's name.
            at: Pure function from the result so far to a moment with a time zone.
        """
        check_name(name, "step")
        argument = read_signature(at, f"{name} (at)").input_type
        saga: Saga[In, Out] = self._append(
            WaitNode(name, WaitKind.UNTIL, self.output_type, at=at, argument_type=argument)
        )
        return saga

    def wait_for(
        self, signal: Signal[Next], *, timeout: timedelta | None, name: str | None = None
    ) -> Saga[In, Next]:
        """Wait for a signal, and go on with its payload.

        Args:
            signal: Sent with `Fencepost.signal` or `fencepost signal`.
            timeout: After this the saga fails with a `WaitTimeoutError`; None waits for ever.
            name: The node's name; the signal's by default.
        """
        name = check_name(name or signal.name, "step")
        saga: Saga[In, Next] = self._append(
            WaitNode(
                name,
                WaitKind.SIGNAL,
                self.output_type,
                signal=signal,
                timeout=_positive(name, timeout),
            )
        )
        return saga

    def approval(self, name: str, *, timeout: timedelta | None) -> Saga[In, Out]:
        """Wait for a person's yes, and go on with the result so far.

        A no fails the saga with an `ApprovalRejectedError`. Who answered, when and why is in the
        chain.

        Args:
            name: The node's name, and what `fencepost approve` names it by.
            timeout: After this the saga fails with a `WaitTimeoutError`; None waits for ever.
        """
        check_name(name, "step")
        saga: Saga[In, Out] = self._append(
            WaitNode(
                name,
                WaitKind.APPROVAL,
                self.output_type,
                signal=approval_signal(name),
                timeout=_positive(name, timeout),
            )
        )
        return saga

    def on_error(self, branch: ErrorBranch[Any, Any]) -> Saga[In, Out]:
        """Add an error branch; of several that match, the first added is taken."""
        saga: Saga[In, Out] = self._with(branches=(*self.branches, branch))
        return saga

    # -- asking ----------------------------------------------------------------------------

    def all_nodes(self) -> Iterator[Node]:
        """The nodes of the main line, of every path and of every error branch."""
        yield from flattened(self.nodes)
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
        """The compensation of a step: its own, or what the branch that was taken declares.

        Where no branch was taken, what any branch declares.
        """
        if step.compensation is not None:
            return step.compensation
        branches = self.branches if branch is None else (branch,)
        declared = (pair for one in branches for pair in one.compensations)
        return next((undo for of, undo in declared if of is step), None)

    @cached_property
    def compensable(self) -> bool:
        """Whether a completed execution has anything that could be undone."""
        return any(
            node.child.compensable
            if isinstance(node, MapNode)
            else isinstance(node, StepNode) and self.undo_of(node.step, None) is not None
            for node in self.all_nodes()
        )

    @cached_property
    def steps(self) -> tuple[Step[Any, Any], ...]:
        """Every step that an execution of this saga may run, compensations included."""
        own = [node.step for node in self.all_nodes() if isinstance(node, StepNode)]
        undos = [step.compensation for step in own if step.compensation is not None]
        declared = [undo for branch in self.branches for _, undo in branch.compensations]
        return tuple(dict.fromkeys([*own, *undos, *declared]))

    @cached_property
    def effects(self) -> tuple[Effect[Any, Any], ...]:
        """What its steps may perform."""
        return tuple(dict.fromkeys(effect for step in self.steps for effect in step.effects))

    @property
    def fenced(self) -> bool:
        """Whether a step has an effect at a sink that checks fence tokens."""
        return any(effect.fence is not None for effect in self.effects)

    @property
    def fans_out(self) -> bool:
        """Whether it starts children."""
        return any(isinstance(node, MapNode) for node in self.all_nodes())

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
            todo.extend(node.child for node in saga.all_nodes() if isinstance(node, MapNode))

    def __repr__(self) -> str:
        return f"<Saga {self.name} {self.version}: {' -> '.join(n.name for n in self.nodes)}>"


def _only(value: Any) -> list[Any]:
    """The one item of a child that runs once."""
    return [value]


def _positive(name: str, timeout: timedelta | None) -> timedelta | None:
    if timeout is not None and timeout <= timedelta(0):
        raise SagaDefinitionError(f"{name!r}: timeout must be positive")
    return timeout
