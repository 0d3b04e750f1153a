"""The verifier and the exploration as assertions: what they say when something is wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest

from fencepost import EffectCall, EffectKind, Saga, Step, StepContext, effect, step
from fencepost.testing import assert_explored, assert_verified
from fencepost.testing.databases import clean_sqlite, copy_ledger
from fencepost.testing.explore import Budget, Scenario, World
from tests.support.inline import Inline


@step
def one(x: int) -> int:
    return x + 1


@step
def two(x: int) -> int:
    return x * 2


sums = Saga("sums", input=int).then(one).then(two)
paid: list[str] = []


@effect(kind=EffectKind.IDEMPOTENT, sink="bank")
def careful(call: EffectCall, cents: int) -> int:
    if call.key not in paid:
        paid.append(call.key)
    return cents


@effect(kind=EffectKind.IDEMPOTENT, sink="bank")
def careless(_call: EffectCall, cents: int) -> int:
    paid.append("a key of its own")
    return cents


@step(effects=[careful])
def pay(ctx: StepContext, cents: int) -> int:
    return ctx.perform(careful, cents)


@step(effects=[careless])
def pay_carelessly(ctx: StepContext, cents: int) -> int:
    return ctx.perform(careless, cents)


class Payments(Scenario):
    name = "payments"

    def __init__(self, paying: Step[int, int]) -> None:
        self.saga = Saga("payments", input=int).then(paying).then(two)
        self.sagas = (self.saga,)

    def begin(self, world: World) -> None:
        paid.clear()
        world.start(self.saga, 100)

    def judge(self, world: World) -> Iterable[str]:
        if len(paid) != 1:
            yield f"paid {len(paid)} times"


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """A ledger with two sums that have succeeded."""
    url = clean_sqlite(tmp_path / "ledger.sqlite3")
    inline = Inline(url, [sums])
    for number in (1, 2):
        inline.run(sums, number)
    inline.close()
    return url


def test_a_sound_ledger_is_verified(database_url: str) -> None:
    report = assert_verified(database_url)
    assert report.executions == {"succeeded": 2}


def test_every_violation_is_listed_with_its_facts(database_url: str) -> None:
    with sqlite3.connect(database_url.removeprefix("sqlite:///")) as ledger:
        ledger.execute("PRAGMA ignore_check_constraints = ON")
        ledger.execute("UPDATE fencepost_checkpoints SET epoch = epoch + 5 WHERE seq = 1")
        ids = [row[0] for row in ledger.execute("SELECT execution_id FROM fencepost_executions")]
    with pytest.raises(AssertionError) as failed:
        assert_verified(database_url, settle=0)
    message = str(failed.value)
    count = int(message.split(maxsplit=1)[0])
    assert count >= len(ids) == 2
    listed = [line for line in message.splitlines() if line.startswith("    [")]
    assert len(listed) == count
    for execution_id in ids:
        assert any(execution_id.replace("-", "") in line.replace("-", "") for line in listed)
    assert "invariant 3, " in message
    assert '"epoch' in message


def test_an_empty_ledger_proves_nothing(tmp_path: Path) -> None:
    url = clean_sqlite(tmp_path / "empty.sqlite3")
    with pytest.raises(AssertionError, match="has 0 executions, and 1 were expected"):
        assert_verified(url)
    assert_verified(url, at_least=0)


def test_a_copy_of_a_ledger_says_the_same(database_url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite3"
    copy_ledger(database_url, copy)
    assert assert_verified(f"sqlite:///{copy}").executions == {"succeeded": 2}


def test_a_copy_of_a_ledger_on_postgres(postgres_url: str, tmp_path: Path) -> None:
    inline = Inline(postgres_url, [sums])
    inline.run(sums, 1)
    inline.close()
    copy_ledger(postgres_url, tmp_path / "copy.sqlite3")
    report = assert_verified(f"sqlite:///{tmp_path / 'copy.sqlite3'}")
    assert report.executions == {"succeeded": 1}
    assert report.line(3).examined == assert_verified(postgres_url).line(3).examined


def test_cleaning_reaches_who_has_the_file_open(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    clean_sqlite(path)
    opened = sqlite3.connect(path)
    opened.execute("CREATE TABLE stock (pieces INTEGER)")
    opened.commit()
    clean_sqlite(path)
    tables = [name for (name,) in opened.execute("SELECT name FROM sqlite_master")]
    assert "fencepost_executions" in tables
    assert "stock" not in tables
    opened.close()


def test_a_careful_payment_holds_in_every_order() -> None:
    [explored] = assert_explored(Payments(pay), Budget(1, 1))
    assert explored.complete
    assert explored.schedules > 100


def test_a_careless_payment_is_found_and_told() -> None:
    with pytest.raises(AssertionError) as failed:
        assert_explored(Payments(pay_carelessly), Budget(1, 1))
    message = str(failed.value)
    assert "breaks a rule" in message
    assert "BROKEN  the scenario's rule: paid 2 times" in message
    assert "replay(scenario, [" in message


def test_to_explore_nothing_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="no schedule was run"):
        assert_explored(Payments(pay), Budget(1, 1), most=0)
