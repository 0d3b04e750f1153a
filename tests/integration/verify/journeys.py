"""Runs that branch, loop, wait, join, turn back twice, go on by a person's word, and are forked.

A parcel goes all the way, past its pivot. Others are turned back: one is cancelled while it undoes
its work, two are told to by their parents after their error branch had saved them, one is refused
by a person, one is a durable task. A person has one go on that had failed, and another one without
the undo that can't be made. One is forked, and some still wait when it is over.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from fencepost import (
    ChildResult,
    Collect,
    ErrorBranch,
    Failure,
    Quorum,
    Saga,
    Signal,
    StepContext,
    TaskContext,
    step,
    task,
)
from fencepost.celery.operating import Operating
from fencepost.engine import Engine
from fencepost.errors import NeedsPerson
from tests.support.inline import Inline
from tests.support.waiting import wait_for

PATIENCE = 20.0
REST = timedelta(milliseconds=300)


class Parcel(BaseModel):
    name: str
    size: int = 0
    heavy: bool = False


class Answer(BaseModel):
    price: int


class NoSpaceError(Exception):
    pass


class Trouble(set[str]):
    """The steps that don't work at the moment."""

    def meets(self, name: str) -> None:
        if f"{name}?" in self:
            raise NeedsPerson(f"{name} needs somebody")
        if name in self:
            raise NoSpaceError(f"{name} has no space")


TROUBLE = Trouble()

price = Signal("price", Answer)


@step
def unpack(parcel: Parcel) -> None:
    TROUBLE.meets("unpack")


@step(compensate=unpack)
def pack(parcel: Parcel) -> Parcel:
    return parcel


@step
def unwrap(parcel: Parcel) -> None: ...


@step(compensate=unwrap)
def wrap(parcel: Parcel) -> Parcel:
    return parcel.model_copy(update={"size": parcel.size + 1})


@step
def pad(parcel: Parcel) -> Parcel:
    return parcel


@step
def stack(parcel: Parcel) -> Parcel:
    TROUBLE.meets("stack")
    return parcel


@step
def book(answer: Answer) -> Parcel:
    return Parcel(name=f"booked for {answer.price}", size=3)


@step
def offer(parcel: Parcel) -> int:
    TROUBLE.meets("offer")
    TROUBLE.meets(parcel.name)
    return parcel.size


@step
def cheapest(ctx: StepContext, offers: list[int]) -> Parcel:
    return ctx.input_as(Parcel).model_copy(update={"size": min(offers)})


@step
def count(checked: list[ChildResult[int]]) -> Parcel:
    return Parcel(name="counted", size=sum(one.succeeded for one in checked))


@step
def sign(parcel: Parcel) -> Parcel:
    return parcel


@step
def deliver(parcel: Parcel) -> str:
    TROUBLE.meets("deliver")
    return f"{parcel.name} is there"


@step
def store(failure: Failure[Parcel]) -> Parcel:
    return failure.input


@step(compensate=unpack)
def shelve(parcel: Parcel) -> Parcel:
    return parcel


def is_heavy(parcel: Parcel) -> bool:
    return parcel.heavy


def is_thin(parcel: Parcel) -> bool:
    return parcel.size < 2


def carriers(parcel: Parcel) -> list[Parcel]:
    return [Parcel(name=name, size=size) for size, name in enumerate(("quick", "slow", "late"))]


def checks(parcel: Parcel) -> list[Parcel]:
    return [Parcel(name="light", size=1), Parcel(name="broken")]


def path() -> Saga[Parcel, Parcel]:
    return Saga("path", input=Parcel)


bid = Saga("bid", input=Parcel).then(pack).then(offer)
test = Saga("test", input=Parcel).then(offer)
signing = Saga("signing", input=Parcel).then(pack).then(sign)

parcel = (
    Saga("parcel", input=Parcel)
    .then(pack)
    .branch("weight", choose=is_heavy, cases={True: path().then(stack), False: path().then(pad)})
    .loop("thick", path().then(wrap), again=is_thin, max_visits=3)
    .sleep("rest", REST)
    .map(bid, over=carriers, name="bids", join=Quorum(1), max_concurrency=1)
    .then(cheapest)
    .map(test, over=checks, name="checks", join=Collect())
    .then(count)
    .child(signing)
    .wait_for(price, timeout=timedelta(hours=1))
    .pivot(book)
    .then(deliver)
)

plain = Saga("plain", input=Parcel).then(pack).then(wrap).then(stack)
bare = Saga("bare", input=Parcel).then(pad).then(stack).then(deliver)
resting = Saga("resting", input=Parcel).then(pad).sleep("rest", timedelta(hours=1)).then(deliver)
asked = Saga("asked", input=Parcel).then(pack).approval("manager", timeout=None).then(deliver)

kept = (
    Saga("kept", input=Parcel)
    .then(pack)
    .then(stack)
    .on_error(ErrorBranch(NoSpaceError).then(store).finish(shelve))
)
keeping = Saga("keeping", input=Parcel).then(wrap).child(kept, name="keep").then(deliver)


@task
def errand(ctx: TaskContext, parcel: Parcel) -> str:
    return ctx.run(deliver, ctx.run(pad, parcel))


SAGAS: list[Any] = [parcel, plain, bare, resting, asked, keeping, errand]

WHO: dict[str, str] = {"by": "ann", "why": "it has to be"}


class Office(Operating):
    """What people do, over an inline fleet."""

    def __init__(self, fleet: Inline) -> None:
        self._engine = fleet.engine
        self.registry = fleet.engine.registry

    @property
    def engine(self) -> Engine:
        return self._engine


class Journeys:
    """Makes them, one after the other."""

    def __init__(self, fleet: Inline) -> None:
        self.fleet = fleet
        self.office = Office(fleet)
        TROUBLE.clear()

    def all(self) -> dict[str, UUID]:
        """The executions that were started, by the journey's name."""
        made = {
            "whole": self.whole(),
            "twice": self.twice(),
            "skipped": self.skipped(),
            "saved": self.saved(),
            "also saved": self.saved(),
            "reopened": self.reopened(),
            "refused": self.refused(),
            "cancelled": self.cancelled(),
            "unwound": self.unwound(),
            "halted": self.halted(),
            "task": self.task(),
        }
        made["origin"] = self.whole()
        made["fork"] = self.fork(made["origin"])
        return made | {
            "asking": self._run(asked, Parcel(name="asking")),
            "resting": self._run(resting, Parcel(name="resting")),
            "bidding": self.bidding(),
        }

    def _run(self, saga: Any, value: Parcel, *trouble: str) -> UUID:
        TROUBLE.update(trouble)
        execution_id = self.fleet.run(saga, value)
        TROUBLE.clear()
        return execution_id

    def _until(self, execution_id: UUID, head: str, *trouble: str) -> UUID:
        """Carry an execution on, until its last checkpoint is of that step."""

        def is_there() -> bool:
            self.fleet.drain()
            return self.fleet.store.chain(execution_id)[-1].step == head

        TROUBLE.update(trouble)
        wait_for(is_there, PATIENCE, f"the execution to come to {head}")
        TROUBLE.clear()
        return execution_id

    def _until_it_asks(self, value: Parcel) -> UUID:
        """A parcel up to its price: one offer is not made in time, one check finds it broken."""
        execution_id = self.fleet.start(parcel, value)
        return self._until(execution_id, "price", "slow?", "broken")

    def whole(self) -> UUID:
        """Everything that there is, and the pivot; the price comes while it waits for it."""
        execution_id = self._until_it_asks(Parcel(name="whole"))
        self.office.signal(execution_id, price, Answer(price=7), by="bob")
        self.fleet.drain()
        return execution_id

    def twice(self) -> UUID:
        """It is cancelled while it undoes its work, between the two undos."""
        execution_id = self._run(plain, Parcel(name="twice"), "stack", "unpack?")
        self.office.cancel(execution_id, **WHO)
        self.fleet.drain()
        return execution_id

    def skipped(self) -> UUID:
        """One undo can't be made, and a person leaves it at that."""
        execution_id = self._run(plain, Parcel(name="skipped"), "stack", "unpack?")
        self.office.skip(execution_id, **WHO)
        self.fleet.drain()
        return execution_id

    def saved(self) -> UUID:
        """A child's branch saves it; then its parent fails, and undoes what the branch did."""
        return self._run(keeping, Parcel(name="saved"), "stack", "deliver")

    def reopened(self) -> UUID:
        """It fails with nothing to undo; a person has it go on."""
        execution_id = self._run(bare, Parcel(name="reopened"), "stack")
        self.office.retry(execution_id, **WHO)
        self.fleet.drain()
        return execution_id

    def refused(self) -> UUID:
        """A person says no."""
        execution_id = self._run(asked, Parcel(name="refused"))
        self.office.reject(execution_id, "manager", **WHO)
        self.fleet.drain()
        return execution_id

    def cancelled(self) -> UUID:
        """It is cancelled while it waits for a person."""
        execution_id = self._run(asked, Parcel(name="cancelled"))
        self.office.cancel(execution_id, **WHO)
        self.fleet.drain()
        return execution_id

    def unwound(self) -> UUID:
        """It is cancelled when it has come far."""
        execution_id = self._until_it_asks(Parcel(name="unwound"))
        self.office.cancel(execution_id, **WHO)
        self.fleet.drain()
        return execution_id

    def halted(self) -> UUID:
        """It is cancelled before any of its children has begun."""
        execution_id = self.fleet.start(parcel, Parcel(name="halted"))

        def fanned_out() -> bool:
            self.fleet.deliver(execution_id)
            return self.fleet.store.chain(execution_id)[-1].step == "bids"

        wait_for(fanned_out, PATIENCE, "the fan-out")
        self.fleet.queue.clear()
        self.office.cancel(execution_id, **WHO)
        self.fleet.drain()
        return execution_id

    def bidding(self) -> UUID:
        """No offer is made, and none is refused."""
        return self._until(self.fleet.start(parcel, Parcel(name="bidding")), "bids", "offer?")

    def task(self) -> UUID:
        """A durable task is cancelled while it is parked."""
        execution_id = self._run(errand, Parcel(name="task"), "deliver?")
        self.office.cancel(execution_id, **WHO)
        self.fleet.drain()
        return execution_id

    def fork(self, original: UUID) -> UUID:
        """It goes on from the join of the offers, and is refused later: it undoes only its own."""
        chain = self.fleet.store.chain(original)
        at = next(c.seq for c in chain if c.kind == "join" and c.step == "bids")
        forked = self.office.fork(original, at=at, **WHO).execution_id
        self._until(forked, "price", "broken")
        self.office.cancel(forked, **WHO)
        self.fleet.drain()
        return forked
