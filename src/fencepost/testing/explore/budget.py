"""What may happen in one run, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from fencepost.errors import PayloadError


class Fault(StrEnum):
    """What can happen to a fleet."""

    KILL = "kill"
    """A worker, or a reaper, dies before an operation."""
    FREEZE = "freeze"
    """It stands still, its heart too, until it is thawed."""
    RESTART = "restart"
    """Everything that runs dies at once."""
    LOSE_ANSWER = "lose-answer"
    """A write is done, and whoever asked for it hears of a failure."""
    LOSE_REQUEST = "lose-request"
    """A write is not done, and whoever asked for it hears of a failure."""
    FORGET = "forget"
    """Redis loses everything."""
    DOUBLE = "double"
    """A message is delivered twice."""
    DROP = "drop"
    """A message is never delivered."""
    DELAY = "delay"
    """A message comes when time has gone by."""
    SLOW = "slow"
    """Time goes by while a worker runs, and its heart beats."""
    BREATHLESS = "breathless"
    """Time goes by while a worker runs, and no renewal gets through until its lease is gone."""


ALL = frozenset(Fault)


@dataclass(frozen=True)
class Budget:
    """How much may happen in one run.

    Attributes:
        preemptions: How often a task that could go on is made to wait for another. Who moves when
            a task has come to its end, or stands still, is free.
        faults: How many faults, in all.
        kinds: Which ones.
    """

    preemptions: int = 1
    faults: int = 1
    kinds: frozenset[Fault] = ALL

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `preemptions,faults` or `preemptions,faults:kind+kind`, as printed.

        Raises:
            PayloadError: It isn't that.
        """
        bounds, _, kinds = text.partition(":")
        try:
            preemptions, faults = (int(part) for part in bounds.split(","))
            some = frozenset(Fault(kind) for kind in kinds.split("+")) if kinds else ALL
        except ValueError:
            known = "+".join(Fault)
            raise PayloadError(
                f"a budget is PREEMPTIONS,FAULTS, like 1,2, perhaps with :KIND+KIND of {known};"
                f" not {text!r}"
            ) from None
        return cls(preemptions, faults, some)

    def __str__(self) -> str:
        kinds = "" if self.kinds == ALL else ":" + "+".join(sorted(self.kinds))
        return f"{self.preemptions},{self.faults}{kinds}"
