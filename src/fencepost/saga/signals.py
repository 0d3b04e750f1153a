"""`Signal`: what an execution can be told from outside while it waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from fencepost.identity import check_name

T = TypeVar("T")

APPROVAL = "approval."
"""What the signals that answer an approval begin with."""


@dataclass(frozen=True, slots=True)
class Signal(Generic[T]):
    """A named, typed message to an execution.

    It is kept until a wait takes it, so it may come before the execution waits.

    Attributes:
        name: What senders name it by.
        payload: Its payload's type; anything that pydantic can turn into JSON.
    """

    name: str
    payload: type[T] = field(repr=False)

    def __post_init__(self) -> None:
        check_name(self.name, "signal")


class Approval(BaseModel):
    """A person's answer.

    Attributes:
        by: Who.
        why: In their words.
        at: When, by the clock of the process that took the answer down; UTC.
    """

    approved: bool
    by: str
    why: str
    at: datetime


def approval_signal(name: str) -> Signal[Any]:
    """The signal that answers the approval of that name."""
    return Signal(f"{APPROVAL}{name}", Approval)
