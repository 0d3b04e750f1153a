"""Where the scheduler's choices come from: a record, an enumeration, or chance.

A choice is a number below the count of its options; 0 is always the option that changes nothing,
so that a schedule of zeros is the run in which nothing happens to anybody.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Chooser(Protocol):
    """Picks one of several options."""

    def choose(self, options: int, free: int) -> int:
        """A number below `options`, which is 2 or more.

        Args:
            options: How many there are.
            free: How many of them, from 0 on, take nothing from the budget.
        """
        ...


@dataclass
class Replay:
    """What is on record, and zeros after its end.

    Attributes:
        record: Numbers; one that is too large counts as the last option.
    """

    record: Sequence[int]
    _next: int = 0

    def choose(self, options: int, free: int) -> int:  # noqa: ARG002 - by the protocol
        """See `Chooser.choose`."""
        place, self._next = self._next, self._next + 1
        return min(self.record[place], options - 1) if place < len(self.record) else 0


@dataclass
class Walk:
    """Chance, from a seed: mostly what is free, sometimes anything.

    How often is for the seed to say too, so that trouble comes early in some runs and late in
    others.
    """

    seed: int
    _random: random.Random = field(init=False)
    _restlessness: float = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._restlessness = self._random.choice((0.02, 0.05, 0.1, 0.2))

    def choose(self, options: int, free: int) -> int:
        """See `Chooser.choose`."""
        if free and self._random.random() >= self._restlessness:
            return self._random.randrange(free)
        return self._random.randrange(options)


@dataclass
class Recorder:
    """Remembers what another chooser has picked.

    Attributes:
        picked: Pairs of the choice and the count of its options.
    """

    chooser: Chooser
    picked: list[tuple[int, int]] = field(default_factory=list)

    def choose(self, options: int, free: int) -> int:
        """See `Chooser.choose`."""
        if options == 1:
            return 0
        choice = self.chooser.choose(options, free)
        self.picked.append((choice, options))
        return choice

    @property
    def record(self) -> list[int]:
        """The choices, without the zeros at their end."""
        choices = [choice for choice, _ in self.picked]
        while choices and choices[-1] == 0:
            choices.pop()
        return choices


def following(picked: Sequence[tuple[int, int]]) -> list[int] | None:
    """The next schedule of a depth-first enumeration, or None after the last one."""
    rest = list(picked)
    while rest:
        choice, options = rest.pop()
        if choice + 1 < options:
            return [*(c for c, _ in rest), choice + 1]
    return None
