"""What a step is given beside its input."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from fencepost import serde
from fencepost.errors import EffectOutsideStepError, LeaseDeadlineError, PayloadError
from fencepost.fence import FenceToken

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from fencepost.effects.declaration import Effect
    from fencepost.saga.steps import Step

Req = TypeVar("Req")
Res = TypeVar("Res")
T = TypeVar("T")


def _performs_nothing(effect: Effect[Any, Any], _request: Any, _key: str | None) -> Any:
    raise EffectOutsideStepError(
        f"effect {effect.name!r} can't be performed: this context wasn't made by a worker",
        effect=effect.name,
    )


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """Identity of the work in hand, and the earlier results of its execution.

    Attributes:
        execution_id: The same on every worker and after every takeover.
        lineage_id: The first execution of a continue-as-new line.
        root_id: The execution that was started by a user, for a child of any depth.
        parent_id: The execution that fanned this one out, if any.
        step: The step's name in its saga.
        visit: The n-th time the execution comes to this step, from 1.
        attempt: Tries of this visit, from 1; failed tries are recorded.
        token: The fence token, captured when the step began.
    """

    execution_id: UUID
    lineage_id: UUID
    root_id: UUID
    parent_id: UUID | None
    step: str
    visit: int
    attempt: int
    token: FenceToken
    saga_input: Any = field(repr=False)
    results: Mapping[str, Any] = field(repr=False)
    lease_lost: Callable[[], bool] = field(repr=False)
    performer: Callable[[Effect[Any, Any], Any, str | None], Any] = field(
        repr=False, default=_performs_nothing
    )

    @property
    def step_key(self) -> str:
        """`"{execution_id}:{step}:{visit}"`, the default idempotency key."""
        return self.token.step_key

    @property
    def epoch(self) -> int:
        """The owner's epoch, from 1."""
        return self.token.epoch

    @property
    def logger(self) -> logging.Logger:
        """A logger named after the step."""
        return logging.getLogger(f"fencepost.step.{self.step}")

    def check(self) -> None:
        """Stop here if the lease can't be trusted any more. Costs no I/O.

        Raises:
            LeaseDeadlineError: The local deadline has passed.
        """
        if self.lease_lost():
            raise LeaseDeadlineError(
                self.execution_id,
                held=self.token.epoch,
                current=self.token.epoch,
                step_key=self.step_key,
            )

    def perform(self, effect: Effect[Req, Res], request: Req, *, key: str | None = None) -> Res:
        """Make an effect happen once, and return its recorded result.

        Args:
            effect: Declared by this step with `@step(effects=[...])`.
            request: What the sink is asked for. The same key with another request is refused.
            key: A business key, such as `order:42`, of at most 255 characters. By default the
                step key with the effect's name and the number of its performance in this step.

        Raises:
            EffectRefusedError: The sink said no; nothing has landed.
            EffectKeyConflictError: The key was used with another request.
            EffectOutsideStepError: The step doesn't declare the effect, or is of the wrong kind.
            LeaseDeadlineError: The lease can't be trusted any more; nothing was called.
        """
        result: Res = self.performer(effect, request, key)
        return result

    def input_as(self, declared: type[T]) -> T:
        """The saga's own input.

        Args:
            declared: The saga's input type.
        """
        value: T = serde.load(self.saga_input, declared, what="saga input")
        return value

    def result_of(self, step: Step[Any, T]) -> T:
        """The recorded result of an earlier step of this execution.

        Raises:
            PayloadError: That step has not been completed.
        """
        if step.name not in self.results:
            raise PayloadError(f"step {step.name!r} has no recorded result yet", step=step.name)
        value: T = serde.load(
            self.results[step.name], step.output_type, what=f"result of step {step.name!r}"
        )
        return value


@dataclass(frozen=True, kw_only=True)
class TransactionalContext(StepContext):
    """The context of a step whose effect and checkpoint are one transaction.

    Attributes:
        session: On the ledger's own database; begins at its first statement. The body must
            neither commit nor roll back.
    """

    session: Session = field(repr=False)
