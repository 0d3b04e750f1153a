"""How findings come together: all at once, each once, in the right place, and in the registry."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from fencepost import (
    STAYS,
    Collect,
    ErrorBranch,
    Failure,
    Limit,
    Quorum,
    Saga,
    Signal,
    effect,
    step,
)
from fencepost.effects import EffectCall, EffectKind
from fencepost.engine.registry import Registry, leniently
from fencepost.errors import SagaDefinitionError
from fencepost.findings import Severity
from fencepost.saga.checks import check

DAY = timedelta(days=1)


class Order(BaseModel):
    number: int


@effect(kind=EffectKind.IDEMPOTENT, sink="bank")
def charge(call: EffectCall, order: Order) -> str:
    raise NotImplementedError


@step
def unreserve(order: Order) -> None: ...


@step(compensate=unreserve)
def reserve(order: Order) -> Order:
    raise NotImplementedError


@step
def price(order: Order) -> Order:
    raise NotImplementedError


@step
def label(order: Order) -> str:
    raise NotImplementedError


@step(effects=[charge])
def pay(order: Order) -> Order:
    raise NotImplementedError


@step
def shout(text: str) -> str:
    raise NotImplementedError


@step
def sorry(failure: Failure[Order]) -> str:
    raise NotImplementedError


PAID = Signal("paid", Order)


@step
def as_text(order: Order) -> Order:
    raise NotImplementedError


@step
def take_failure(failure: Failure[Order]) -> Order:
    raise NotImplementedError


def limited(name: str) -> Any:
    def body(order: Order) -> Order:
        raise NotImplementedError

    return step(name=name, limit=Limit(name="carrier", concurrency=2))(body)


def orders_of(order: Order) -> list[Order]:
    raise NotImplementedError


def is_large(order: Order) -> bool:
    raise NotImplementedError


def named(text: str) -> str:
    return text


def new(name: str = "s", **options: Any) -> Any:
    return Saga(name, input=Order, **options)


def codes(saga: Saga[Any, Any]) -> list[tuple[str, str]]:
    return [(finding.code, finding.place) for finding in check(saga)]


def test_all_findings_come_at_once() -> None:
    part = new("part").then(shout)
    saga = new().then(label).then(price).map(part, over=orders_of, name="parts", max_items=None)
    assert codes(saga) == [
        ("types.mismatch", "s/price"),
        ("fan-out.unbounded", "s/parts"),
        ("types.mismatch", "part/shout"),
    ]


def test_a_child_saga_is_checked_once() -> None:
    part = new("part").then(shout)
    saga = new().map(part, over=orders_of, name="one").then(step(name="n")(first_of))
    saga = saga.child(part, name="two")
    assert codes(saga).count(("types.mismatch", "part/shout")) == 1


def first_of(texts: list[str]) -> Order:
    raise NotImplementedError


def test_a_place_tells_loops_and_cases_apart() -> None:
    body = new("body").then(label)
    saga = new().branch(
        "size",
        choose=is_large,
        cases={True: new("large").loop("l", body, again=is_large, max_visits=2)},
        default=new("small"),
    )
    assert codes(saga) == [
        ("types.mismatch", "s/size[true]/l (again)"),
        ("types.mismatch", "s/size[true]/l (next pass)"),
    ]


# -- types at every kind of link -----------------------------------------------------------


def takes_text(text: str) -> list[Order]:
    raise NotImplementedError


def text_large(text: str) -> bool:
    raise NotImplementedError


def text_delay(text: str) -> timedelta:
    raise NotImplementedError


def no_delay(order: Order) -> int:
    raise NotImplementedError


def text_moment(text: str) -> Any:
    raise NotImplementedError


WRONG: list[tuple[str, Callable[[], Any]]] = [
    ("s/shout", lambda: new().then(shout)),
    ("s/parts (over)", lambda: new().map(new("p").then(price), over=takes_text, name="parts")),
    (
        "s/parts (saga p)",
        lambda: new().map(Saga("p", input=str).then(shout), over=orders_of, name="parts"),
    ),
    ("s/p", lambda: new().child(Saga("p", input=str).then(shout))),
    (
        "s/c (choose)",
        lambda: new().branch("c", choose=text_large, cases={True: new("a"), False: new("b")}),
    ),
    (
        "s/c[true]",
        lambda: new().branch(
            "c", choose=is_large, cases={True: Saga("a", input=str), False: new("b")}
        ),
    ),
    (
        "s/price",
        lambda: (
            new()
            .branch("c", choose=is_large, cases={True: new("a").then(label), False: new("b")})
            .then(price)
        ),
    ),
    ("s/l (again)", lambda: new().loop("l", new("b").then(price), again=text_large, max_visits=2)),
    ("s/w", lambda: new().sleep("w", text_delay)),
    ("s/w", lambda: new().sleep("w", no_delay)),
    ("s/price", lambda: new().wait_for(Signal("paid", str), timeout=DAY).then(price)),
    ("s (the next)", lambda: new().continue_as_new(label)),
    (
        "s/on ValueError/price",
        lambda: new().then(reserve).on_error(ErrorBranch(ValueError).then(price)),
    ),
    (
        "s/on ValueError (the result)",
        lambda: new().then(reserve).on_error(ErrorBranch(ValueError).finish(sorry)),
    ),
    (
        "s (the next)",
        lambda: new().then(reserve).on_error(ErrorBranch(ValueError).continue_as_new(sorry)),
    ),
]


@pytest.mark.parametrize(("place", "saga"), WRONG, ids=[place for place, _ in WRONG])
def test_types_are_compared_at_every_link(place: str, saga: Callable[[], Any]) -> None:
    assert codes(saga()) == [("types.mismatch", place)]


# -- what is right -------------------------------------------------------------------------

RIGHT: dict[str, Callable[[], Any]] = {
    "a path that does nothing": lambda: new().branch(
        "c", choose=is_large, cases={True: new("a").then(price), False: new("b")}
    ),
    "the same step on paths that exclude each other": lambda: new().branch(
        "c", choose=is_large, cases={True: new("a").then(price), False: new("b").then(price)}
    ),
    "the same step again in an error branch": lambda: (
        new().then(as_text).on_error(ErrorBranch(ValueError).then(take_failure).then(as_text))
    ),
    "a wait without a time-out under a deadline": lambda: new(deadline=DAY).approval(
        "boss", timeout=None
    ),
    "an effect in the last step": lambda: new().then(pay),
    "an effect behind the pivot": lambda: new().pivot(price).then(pay).then(label),
    "an effect in the pivot": lambda: new().then(reserve).pivot(pay).then(label),
    "an undo in the only error branch": lambda: (
        new().then(price).on_error(ErrorBranch(ValueError).compensate(price, unreserve))
    ),
    "a fan-out behind the pivot that collects": lambda: (
        new().pivot(price).map(new("p").then(label), over=orders_of, name="parts", join=Collect())
    ),
    "a child with a pivot that comes last": lambda: (
        new().then(reserve).child(new("paid").pivot(price))
    ),
    "a child with a pivot behind the pivot": lambda: (
        new().pivot(price).map(new("paid").pivot(label), over=orders_of, name="p", join=Collect())
    ),
    "two steps that share a limit": lambda: new().then(limited("one")).then(limited("two")),
    "one signal at two places": lambda: (
        new().wait_for(PAID, timeout=DAY, name="a").wait_for(PAID, timeout=DAY, name="b")
    ),
    "enough items for a quorum": lambda: new().map(
        new("p").then(label), over=orders_of, name="p", join=Quorum(3), max_items=3
    ),
}


@pytest.mark.parametrize("saga", RIGHT.values(), ids=RIGHT)
def test_it_has_no_findings(saga: Callable[[], Any]) -> None:
    assert codes(saga()) == []


# -- severities and reaches ----------------------------------------------------------------


def test_before_a_pivot_an_effect_without_undo_is_an_error() -> None:
    (finding,) = check(new().then(pay).pivot(price).then(label))
    assert (finding.code, finding.severity) == ("effect.not-undoable", Severity.ERROR)


def test_a_childs_last_effect_may_have_to_be_undone() -> None:
    child = new("child").then(pay)
    assert check(child) == []
    assert codes(new().child(child).then(price)) == [("effect.not-undoable", "child/pay")]


def test_stays_says_that_it_is_meant() -> None:
    def body(order: Order) -> Order:
        raise NotImplementedError

    stays = step(name="gives", effects=[charge], compensate=STAYS)(body)
    assert codes(new().then(stays).then(price)) == []


def test_sleeps_that_are_longer_than_the_deadline_are_an_error() -> None:
    saga = new(deadline=DAY).sleep("a", DAY / 2).sleep("b", DAY / 2).then(price)
    (finding,) = check(saga)
    assert (finding.code, finding.severity) == ("deadline.too-short", Severity.ERROR)


def test_behind_the_pivot_the_deadline_holds_no_more() -> None:
    assert codes(new(deadline=DAY).pivot(price).sleep("a", 2 * DAY)) == []


def test_a_loop_and_a_deadline_behind_the_pivot_are_warnings() -> None:
    body = new("body").then(price)
    saga = new().pivot(reserve_not).loop("l", body, again=is_large, max_visits=2)
    (finding,) = check(saga)
    assert (finding.code, finding.severity) == ("pivot.can-fail", Severity.WARNING)


@step
def reserve_not(order: Order) -> Order:
    raise NotImplementedError


def test_siblings_may_fail_after_a_childs_pivot() -> None:
    child = new("paid").pivot(price)
    saga = new().map(child, over=orders_of, name="parts")
    assert codes(saga) == [("pivot.in-child", "s/parts")]


def by_text(order: Order) -> str:
    raise NotImplementedError


def by_choice(order: Order) -> Literal["a"] | None:
    raise NotImplementedError


def test_what_has_no_end_of_cases_needs_a_default() -> None:
    cases = {"a": new("a")}
    assert codes(new().branch("c", choose=by_text, cases=cases)) == [
        ("choice.not-exhaustive", "s/c")
    ]
    assert codes(new().branch("c", choose=by_text, cases=cases, default=new("d"))) == []


def test_none_is_a_case_of_an_optional_choice() -> None:
    assert codes(new().branch("c", choose=by_choice, cases={"a": new("a")})) == [
        ("choice.not-exhaustive", "s/c")
    ]
    both: Any = {"a": new("a"), None: new("b")}
    assert codes(new().branch("c", choose=by_choice, cases=both)) == []


# -- the registry --------------------------------------------------------------------------


def test_errors_keep_a_saga_out_and_are_all_named() -> None:
    saga = new().then(label).then(price).then(shout)
    registry = Registry()
    with pytest.raises(SagaDefinitionError) as caught:
        registry.add(saga)
    assert caught.value.message.count("[types.mismatch]") == 2
    assert [finding["place"] for finding in caught.value.fields["findings"]] == [
        "s/price",
        "s/shout",
    ]
    assert registry.find("s", saga.version) is None


def test_warnings_do_not() -> None:
    saga = new().then(pay).then(price)
    assert [finding.severity for finding in check(saga)] == [Severity.WARNING]
    assert Registry([saga]).find("s", saga.version) is saga


def test_a_saga_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def asks(saga: Any) -> list[Any]:
        asked.append(saga)
        return []

    monkeypatch.setattr("fencepost.engine.registry.check", asks)
    registry, saga = Registry(), new().then(price)
    registry.add(saga)
    registry.add(saga)
    assert asked == [saga]


def test_limits_of_one_name_agree_across_sagas() -> None:
    other = step(name="other", limit=Limit(name="carrier", concurrency=9))(limited("x").function)
    registry = Registry([new("one").then(limited("one"))])
    registry.add(new("same").then(limited("again")))
    with pytest.raises(SagaDefinitionError, match=r"limit\.two-figures"):
        registry.add(new("two").then(other))


def test_a_type_without_a_schema_is_a_finding_and_no_crash() -> None:
    class Foreign: ...

    saga: Any = Saga("s", input=Foreign)
    with pytest.raises(SagaDefinitionError, match=r"types\.not-storable"):
        Registry([saga.then(label)])


def test_leniently_it_is_put_aside() -> None:
    saga = new().then(shout)
    with leniently():
        registry = Registry([saga])
    assert registry.refused == [saga]
    assert list(registry) == []
    with pytest.raises(SagaDefinitionError):
        Registry([saga])
