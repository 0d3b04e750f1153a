"""What the check sees in the code of steps and tasks."""

from __future__ import annotations

import types
from typing import Any

import pytest

from fencepost import STAYS, Saga, StepContext, TaskContext, step, task
from fencepost.effects import Effect, EffectCall, EffectKind, effect
from fencepost.findings import Finding, Severity
from fencepost.saga.checks import check


@effect(kind=EffectKind.IDEMPOTENT, sink="bank")
def charge(call: EffectCall, cents: int) -> str:
    raise NotImplementedError


@effect(kind=EffectKind.TRANSACTIONAL, sink="ledger")
def book(call: EffectCall, cents: int) -> str:
    raise NotImplementedError


payments = types.ModuleType("payments")
payments.charge = charge  # type: ignore[attr-defined]


class Gateway:
    charge = charge


gateway = Gateway()


def pays(ctx: StepContext, cents: int) -> str:
    return ctx.perform(charge, cents)


def pays_by_helper(ctx: StepContext, cents: int) -> str:
    return pays(ctx, cents)


def by_name(ctx: StepContext, cents: int) -> str:
    return ctx.perform(charge, cents)


def by_module(ctx: StepContext, cents: int) -> str:
    return str(ctx.perform(payments.charge, cents))


def by_class(ctx: StepContext, cents: int) -> str:
    return ctx.perform(Gateway.charge, cents)


def by_instance(ctx: StepContext, cents: int) -> str:
    return ctx.perform(gateway.charge, cents)


def in_a_lambda(ctx: StepContext, cents: int) -> str:
    return next(map(lambda one: ctx.perform(charge, one), [cents]))  # noqa: C417


def in_a_comprehension(ctx: StepContext, cents: int) -> str:
    return "".join(ctx.perform(charge, one) for one in range(cents))


async def in_a_coroutine(ctx: StepContext, cents: int) -> str:
    return ctx.perform(charge, cents)


def in_a_closure() -> Any:
    mine = charge

    def body(ctx: StepContext, cents: int) -> str:
        return ctx.perform(mine, cents)

    return body


def of(body: Any, **options: Any) -> list[Finding]:
    return check(Saga("s", input=int).then(step(**options)(body)))


@pytest.mark.parametrize(
    "body",
    [
        by_name,
        by_module,
        by_class,
        by_instance,
        in_a_lambda,
        in_a_comprehension,
        in_a_coroutine,
        in_a_closure(),
    ],
)
def test_an_undeclared_effect_is_found_however_it_is_named(body: Any) -> None:
    (finding,) = of(body)
    assert (finding.code, finding.severity) == ("effect.undeclared", Severity.ERROR)
    assert "'charge'" in finding.message
    assert finding.source is not None
    assert finding.source.file == __file__
    assert finding.source.line > 1
    assert of(body, effects=[charge]) == []


def test_what_a_helper_performs_is_a_warning() -> None:
    (finding,) = of(pays_by_helper)
    assert (finding.code, finding.severity) == ("effect.undeclared", Severity.WARNING)
    assert "'pays'" in finding.message
    assert of(pays_by_helper, effects=[charge]) == []


def looks_at(ctx: StepContext, cents: int) -> str:
    return f"{charge.sink} {charge.name} {charge.function}"


def calls_other_things(ctx: StepContext, cents: int) -> str:
    return str(max(cents, len(types.__name__)))


@pytest.mark.parametrize("body", [looks_at, calls_other_things])
def test_what_performs_nothing_has_no_findings(body: Any) -> None:
    assert of(body) == []


def test_a_name_that_is_not_there_yet_is_no_matter() -> None:
    def body(ctx: StepContext, cents: int) -> str:
        return str(ctx.perform(not_yet, cents))  # type: ignore[name-defined] # noqa: F821

    assert of(body) == []


def test_a_property_is_not_run() -> None:
    class Trap:
        @property
        def charge(self) -> Effect[int, str]:
            raise AssertionError("the check has run the user's code")

    trap = Trap()

    def body(ctx: StepContext, cents: int) -> str:
        return ctx.perform(trap.charge, cents)

    assert of(body) == []


# -- compensations and tasks ---------------------------------------------------------------


def test_compensations_are_looked_at_too() -> None:
    @step
    def pay_back(ctx: StepContext, receipt: str) -> None:
        ctx.perform(charge, -1)

    (finding,) = of(pays, effects=[charge], compensate=pay_back)
    assert (finding.code, finding.place) == ("effect.undeclared", "s/pay_back")


@step(effects=[book], compensate=STAYS)
def wrong(cents: int) -> str:
    raise NotImplementedError


@step
def object_of(cents: int) -> type[int]:
    raise NotImplementedError


@task
def tidy(ctx: TaskContext, cents: int) -> str:
    return ctx.perform(charge, cents)


@task(effects=(charge,))
def declared(ctx: TaskContext, cents: int) -> str:
    return ctx.perform(charge, cents)


@task
def with_steps(ctx: TaskContext, cents: int) -> str:
    ctx.run(object_of, cents)
    return ctx.run(wrong, cents)


def test_the_body_of_a_task_is_looked_at() -> None:
    (finding,) = check(tidy)
    assert (finding.code, finding.place) == ("effect.undeclared", "tidy")
    assert check(declared) == []


def test_so_are_the_steps_that_it_names() -> None:
    found = {(finding.code, finding.place) for finding in check(with_steps)}
    assert found == {
        ("effect.wrong-step", "with_steps/wrong"),
        ("types.not-storable", "with_steps/object_of"),
    }
