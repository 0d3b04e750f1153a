"""Sagas that together come to every operation of the stores that a worker can come to."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from fencepost import (
    EffectCall,
    EffectKind,
    ErrorBranch,
    Failure,
    FencepostError,
    FenceToken,
    FirstFailure,
    Landed,
    Limit,
    NeedsPerson,
    NotLanded,
    Quorum,
    RetryPolicy,
    Saga,
    Signal,
    Step,
    StepContext,
    TransactionalContext,
    effect,
    step,
)
from fencepost.sinks.sql import SqlSink
from tests.support.apps.sagas import Order, items_of
from tests.support.apps.sink import book, engine_of_process, metadata, note

AGAIN = RetryPolicy(
    attempts=30,
    first_delay=timedelta(seconds=0.05),
    max_delay=timedelta(seconds=0.5),
    retry_on=(Exception,),
)
NAP = timedelta(seconds=0.3)

payments = sa.Table(
    "sweep_payments",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("kind", sa.String(30), nullable=False),
    # The sink that dedupes is one that has this; the other one may be asked, and takes all.
    sa.Column("key", sa.String(255), unique=True),
    sa.Column("reference", sa.String(255), nullable=False),
)


class BrokenError(FencepostError):
    """For good."""

    code = "sweep.broken"


# -- effects ---------------------------------------------------------------------------------


def _pay(kind: str, key: str | None, reference: str) -> int:
    engine = engine_of_process()
    values = {"kind": kind, "key": key, "reference": reference}
    with engine.begin() as connection:
        known = sa.select(payments.c.id).where(payments.c.key == key)
        found = connection.scalar(known) if key is not None else None
        if found is None:
            returned = connection.execute(
                sa.insert(payments).values(values).returning(payments.c.id)
            )
            found = returned.scalar_one()
    return int(found)


@effect(kind=EffectKind.IDEMPOTENT, sink="sweep-bank", retention=timedelta(days=1))
def keyed(call: EffectCall, order: Order) -> int:
    """The sink dedupes by key; in one transaction, or the second is refused and comes again."""
    return _pay("keyed", call.key, str(call.token.execution_id))


def _landed(call: EffectCall, order: Order) -> Landed[int] | NotLanded:
    with engine_of_process().connect() as connection:
        where = (payments.c.kind == "probed") & (
            payments.c.reference == f"{call.token.execution_id}:{call.key}"
        )
        found = connection.scalar(sa.select(payments.c.id).where(where))
    return NotLanded() if found is None else Landed(int(found))


@effect(
    kind=EffectKind.RECONCILABLE,
    sink="sweep-till",
    probe=_landed,
    in_flight=timedelta(seconds=0.5),
)
def probed(call: EffectCall, order: Order) -> int:
    """The sink takes whatever it is sent, and can be asked."""
    return _pay("probed", None, f"{call.token.execution_id}:{call.key}")


def _refuse(call: EffectCall, order: Order) -> int:
    raise BrokenError("declined")


class _Warehouse:
    """The fence-checking sink of this process: the scene's own database."""

    def advance(self, resource: str, token: FenceToken) -> None:
        SqlSink(engine_of_process()).advance(resource, token)


@effect(kind=EffectKind.FENCED, sink="sweep-warehouse", fence=_Warehouse())
def fenced(call: EffectCall, order: Order) -> int:
    """The sink checks the fence, writes and remembers the key in one transaction."""
    row = {"kind": "fenced", "reference": str(call.token.execution_id)}
    insert = sa.insert(payments).values(row).returning(payments.c.id)
    sink = SqlSink(engine_of_process())
    return int(sink.apply(call, lambda session: session.execute(insert).scalar_one()).result)


@effect(kind=EffectKind.TRANSACTIONAL, sink="ledger")
def booked(call: EffectCall, order: Order) -> int:
    """In the step's own transaction."""
    row = {"kind": "booked", "reference": str(call.token.execution_id)}
    insert = sa.insert(payments).values(row).returning(payments.c.id)
    return int(call.session.execute(insert).scalar_one())


declined = effect(
    kind=EffectKind.IDEMPOTENT,
    sink="sweep-bank",
    retention=timedelta(days=1),
    refused=(BrokenError,),
    name="declined",
)(_refuse)


# -- steps -----------------------------------------------------------------------------------


def _run(ctx: StepContext, order: Order) -> Order:
    note(ctx)
    return order


def _undo(ctx: StepContext, order: Order) -> None:
    note(ctx, "undone")


def _fail(ctx: StepContext, order: Order) -> Order:
    raise BrokenError("for good")


def doing(name: str, **how: Any) -> Step[Order, Order]:
    """A step that can be undone."""
    undo = Step[Order, None](_undo, name=f"un-{name}", retry=AGAIN)
    return Step(_run, name=name, compensate=undo, retry=AGAIN, **how)


@step(effects=[keyed, probed, fenced], retry=AGAIN)
def pay(ctx: StepContext, order: Order) -> Order:
    for one in (keyed, probed, fenced):
        ctx.perform(one, order)
    return order


@step(effects=[declined], retry=RetryPolicy(attempts=1))
def beg(ctx: StepContext, order: Order) -> Order:
    ctx.perform(declined, order)
    return order


@step(transactional=True, effects=[booked], retry=AGAIN)
def record(ctx: TransactionalContext, order: Order) -> Order:
    book(ctx)
    ctx.perform(booked, order)
    return order


@step(retry=AGAIN)
def ask(ctx: StepContext, order: Order) -> Order:
    """Parks once; who comes again has been answered."""
    if note_once(ctx, "asked"):
        raise NeedsPerson(f"is {order.label} right?")
    return order


@step(retry=AGAIN)
def dawdle(ctx: StepContext, order: Order) -> Order:
    """Long enough for a renewal; or longer, if the order says so."""
    time.sleep(max(0.7, order.seconds))
    return order


@step(retry=AGAIN)
def flaky(ctx: StepContext, order: Order) -> Order:
    if ctx.attempt < 2:
        raise ConnectionError("once")
    return order


@step(retry=AGAIN)
def sort(ctx: StepContext, item: Order) -> int:
    if item.index in item.failing:
        raise BrokenError(f"item {item.index}")
    return item.index


sort_once = Step[Order, int](sort.function, name="sort", retry=RetryPolicy(attempts=1))
fail = Step[Order, Order](_fail, name="fail", retry=RetryPolicy(attempts=1))


@step(retry=AGAIN)
def gather(ctx: StepContext, indexes: list[int]) -> int:
    return len(indexes)


@step(retry=AGAIN)
def told(ctx: StepContext, failure: Failure[Order]) -> Order:
    return failure.input


def note_once(ctx: StepContext, what: str) -> bool:
    """Whether this is the first time."""
    reference = f"{ctx.step_key}:{what}"
    row = {"kind": what, "key": reference, "reference": reference}
    try:
        with engine_of_process().begin() as connection:
            connection.execute(sa.insert(payments), row)
    except sa.exc.IntegrityError:
        return False
    return True


# -- sagas -----------------------------------------------------------------------------------

ONE_AT_A_TIME = Limit(name="sweep-turns", concurrency=1)
READY = Signal("ready", Order)

straight = (
    Saga("straight", input=Order)
    .then(doing("reserve"))
    .then(record)
    .then(pay)
    .then(dawdle)
    .then(flaky)
)
turned = (
    Saga("turned", input=Order)
    .then(doing("reserve"))
    .then(beg)
    .on_error(ErrorBranch(Exception).finish(told))
)
piece = Saga("piece", input=Order).then(doing("pick")).then(sort_once)
spread = (
    Saga("spread", input=Order)
    .then(doing("split"))
    .map(piece, over=items_of, name="items", max_concurrency=2)
    .then(gather)
)
stopped = Saga("stopped", input=Order).map(
    piece, over=items_of, name="items", join=FirstFailure(), max_concurrency=3
)
enough = Saga("enough", input=Order).map(
    piece, over=items_of, name="items", join=Quorum(1), max_concurrency=2
)
waits = (
    Saga("waits", input=Order)
    .sleep("nap", NAP)
    .wait_for(READY, timeout=timedelta(minutes=5))
    .then(doing("take", limit=ONE_AT_A_TIME))
)


def for_long(order: Order) -> timedelta:
    return timedelta(minutes=5)


hurried = (
    Saga("hurried", input=Order, deadline=timedelta(seconds=1))
    .then(doing("hold"))
    .sleep("long", for_long)
)

asks = Saga("asks", input=Order).then(ask)

ALL: list[Saga[Order, Any]] = [straight, turned, spread, stopped, enough, waits, hurried, asks]
