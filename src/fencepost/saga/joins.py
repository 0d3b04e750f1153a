"""How a fan-out's children come together again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

from fencepost.errors import SagaDefinitionError
from fencepost.failure import ErrorInfo

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AllSucceed:
    """Wait for all; fail if one has failed."""


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """Fail as soon as one has failed; the others are stopped and undo what they did."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """Go on as soon as `successes` have succeeded; the others are stopped and undo what they did.

    The result is the list of those that succeeded, by index. Fails as soon as too many have
    failed for that.

    Attributes:
        successes: At least 1.
    """

    successes: int

    def __post_init__(self) -> None:
        if self.successes < 1:
            raise SagaDefinitionError("a quorum needs 1 or more successes")


@dataclass(frozen=True, slots=True)
class Collect:
    """Wait for all, and never fail: the result is a list of `ChildResult`, by index."""


Join = AllSucceed | FirstFailure | Quorum | Collect

ALL_SUCCEED = AllSucceed()


class ChildResult(BaseModel, Generic[T]):
    """How one child of a fan-out ended.

    Attributes:
        value: Its result; None unless it succeeded.
        error: Why it failed; what it had done is undone then.
    """

    succeeded: bool
    value: T | None = None
    error: ErrorInfo | None = None
