"""`ErrorBranch`: what happens after compensation when a step fails with a certain error."""

from __future__ import annotations

import inspect
from typing import Any, Generic, TypeVar

from fencepost.errors import SagaDefinitionError
from fencepost.saga.nodes import StepNode, TerminalKind
from fencepost.saga.steps import Step

In = TypeVar("In")
Out = TypeVar("Out")
Next = TypeVar("Next")


class ErrorBranch(Generic[In, Out]):
    """What happens after compensation when a step fails with a certain error.

    The first step is given a `Failure` with the saga's input; each next one the result of the
    one before. Without a terminal the execution ends as compensated, with the original error.
    A branch for `Exception` is the default: put it last. No branch is taken when an execution is
    cancelled, when its deadline passes, or when its parent tells it to undo its work.

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
        return self._with(nodes=(*self.nodes, node))

    def compensate(self, step: Step[Any, Any], undo: Step[Any, Any]) -> ErrorBranch[In, Out]:
        """Undo a completed `step` with `undo` on this error.

        Where the step declares the same compensation itself, it still runs once. Where no branch
        is taken, it runs too.
        """
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
