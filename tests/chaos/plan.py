"""What a nemesis does and when: drawn from the seed alone, before anything runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FIRST = 3.0
"""Seconds until the first action."""

BETWEEN = (1.0, 3.0)
"""Seconds between two actions, at the least and at the most."""

OPENING = ("freeze-group", "freeze-child", "freeze-group", "freeze-child")
"""What comes first: zombies in a fleet that is otherwise well, and so takes their work over at
once. It is what a fence is there for, so a run without one fails early."""

OPENING_LASTS = (5.5, 7.0)
OPENING_APART = 3.5
"""Seconds between two actions of the opening."""


@dataclass(frozen=True)
class Kind:
    """A kind of action.

    Attributes:
        name: In the history.
        aim: `worker`, `link` (a worker's way to a server), `redis`, `postgres`, `database`,
            `messages` or `fleet`.
        lasts: Seconds from doing it to undoing it, at the least and at the most.
        weight: How often it is in a deck.
        databases: Where it makes sense.
    """

    name: str
    aim: str
    lasts: tuple[float, float] = (0.0, 0.0)
    weight: int = 1
    databases: tuple[str, ...] = ("postgres", "sqlite")


PAST_LEASE = (4.0, 7.0)
"""Longer than the lease and the takeover: the frozen one comes back as a zombie."""

ON_POSTGRES = ("postgres",)

KINDS: tuple[Kind, ...] = (
    Kind("kill-group", "worker", weight=2),
    Kind("kill-child", "worker", weight=2),
    Kind("kill-parent", "worker"),
    Kind("freeze-group", "worker", PAST_LEASE, weight=6),
    Kind("freeze-child", "worker", PAST_LEASE, weight=6),
    Kind("freeze-parent", "worker", PAST_LEASE),
    Kind("terminate", "worker"),
    Kind("step-clock", "worker", (2.0, 8.0)),
    Kind("cut", "link", (0.5, 5.0), weight=3),
    Kind("silence", "link", (0.5, 5.0), weight=2),
    Kind("lose-answers", "link", (1.0, 3.0), weight=3, databases=ON_POSTGRES),
    Kind("rolling-restart", "fleet"),
    Kind("flush", "redis", weight=2),
    Kind("kill-redis", "redis", (0.0, 3.0)),
    Kind("kill-clients", "redis"),
    Kind("demote", "redis", (1.0, 4.0)),
    Kind("fill-memory", "redis", (1.0, 4.0)),
    Kind("restart-postgres", "postgres", (0.0, 2.0), databases=ON_POSTGRES),
    Kind("end-sessions", "postgres", weight=2, databases=ON_POSTGRES),
    Kind("hold-lock", "database", (1.0, 4.0)),
    Kind("fill-disk", "postgres", (1.0, 4.0), databases=ON_POSTGRES),
    Kind("double", "messages", weight=2),
    Kind("delay", "messages", (1.0, 6.0)),
    Kind("shuffle", "messages"),
    Kind("drop", "messages", weight=2),
    Kind("forget-unacked", "messages"),
)

SERVERS = {"postgres": ("redis", "postgres", "bank"), "sqlite": ("redis", "bank")}


@dataclass(frozen=True)
class Planned:
    """One action of a plan.

    Attributes:
        at: Seconds after the nemesis has begun.
        kind: Its kind's name.
        aim: As its kind's.
        target: A worker's slot, a link, or a server.
        lasts: Seconds until it is undone.
        draw: From 0 to 1, for whatever else it has to choose.
    """

    at: float
    kind: str
    aim: str
    target: str
    lasts: float
    draw: float


def plan(seed: int, database: str, workers: Sequence[str]) -> Iterator[Planned]:
    """The actions of a seed, without end.

    Kinds come from a shuffled deck, so that each has come before any comes more often than its
    weight says. Freezes, which make zombies, are spread evenly over it, and come first.

    Args:
        seed: Drawn from.
        database: `postgres` or `sqlite`.
        workers: The slots' names.
    """
    draw = random.Random(seed)
    at = FIRST
    kinds = [kind for kind in KINDS if database in kind.databases]
    order = draw.sample(list(workers), len(workers))
    for number, name in enumerate(OPENING):
        lasts = draw.uniform(*OPENING_LASTS)
        worker = order[number % len(order)]
        yield Planned(round(at, 2), name, "worker", worker, round(lasts, 2), draw.random())
        at += OPENING_APART
    while True:
        for kind in _deck(draw, kinds):
            lasts = draw.uniform(*kind.lasts)
            target = _target(draw, kind, database, workers)
            yield Planned(round(at, 2), kind.name, kind.aim, target, round(lasts, 2), draw.random())
            at += draw.uniform(*BETWEEN)


def _deck(draw: random.Random, kinds: Sequence[Kind]) -> list[Kind]:
    cards = [kind for kind in kinds for _ in range(kind.weight)]
    freezes = [card for card in cards if card.lasts == PAST_LEASE]
    others = [card for card in cards if card.lasts != PAST_LEASE]
    draw.shuffle(freezes)
    draw.shuffle(others)
    apart = len(cards) / len(freezes)
    places = {int(number * apart): freeze for number, freeze in enumerate(freezes)}
    left = iter(others)
    return [places.get(place) or next(left) for place in range(len(cards))]


def _target(draw: random.Random, kind: Kind, database: str, workers: Sequence[str]) -> str:
    worker, server = draw.choice(workers), draw.choice(SERVERS[database])
    match kind.aim:
        case "worker":
            return worker
        case "link":
            # An answer to a commit can only be lost on the way from the database.
            return f"{worker}-{'postgres' if kind.name == 'lose-answers' else server}"
        case _:
            return kind.aim
