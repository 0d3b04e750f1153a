"""The next command, from nothing but the saga and the chain."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fencepost import Collect, ErrorBranch, Failure, Saga, Signal, Status, step
from fencepost.commands import Finish, JoinChildren, RunStep
from fencepost.decide import (
    CANCELLED,
    DEADLINE_PASSED,
    PARENT_FAILED,
    STOPPED,
    decide,
    misfit,
)
from fencepost.errors import CheckpointForkError
from fencepost.records import CheckpointKind as K
from fencepost.records import Phase
from tests.unit.decide.chains import Line


def made(name: str, *, undone: bool = False, **options: Any) -> Any:
    def body(number: int) -> int:
        return number

    undo = step(name=f"un{name}")(lambda_of(int)) if undone else None
    return step(name=name, compensate=undo, **options)(body)


def lambda_of(_kind: type) -> Any:
    def undo(number: int) -> None: ...

    return undo


def positive(number: int) -> bool:
    return number > 0


def size(number: int) -> str:
    return "large" if number > 9 else "small"


def items(number: int) -> list[int]:
    return list(range(number))


A, B, C = made("a", undone=True), made("b", undone=True), made("c")


def path(name: str, *steps: Any) -> Any:
    saga: Any = Saga(name, input=int)
    for one in steps:
        saga = saga.then(one)
    return saga


def finish(line: Line) -> Finish:
    command = line.next()
    assert isinstance(command, Finish), command
    return command


def test_one_step_after_the_other() -> None:
    line = Line(path("s", A, B, C))
    assert line.does_all(1, 2, 3) == [("a", 1), ("b", 1), ("c", 1)]
    assert (finish(line).status, finish(line).outcome) == (Status.SUCCEEDED, 3)


def test_each_step_is_given_the_result_before_it() -> None:
    line = Line(path("s", A, B), value=7)
    assert isinstance(line.next(), RunStep)
    assert line.next().value == 7  # type: ignore[union-attr]
    line.does(8)
    assert line.next().value == 8  # type: ignore[union-attr]


def test_a_branch_is_asked_once_and_followed() -> None:
    saga = (
        Saga("s", input=int)
        .branch("size", choose=size, cases={"small": path("p", A), "large": path("q", B, C)})
        .then(made("d"))
    )
    line = Line(saga)
    assert line.does({"case": "large"}) == ("size", 1)
    assert line.does_all(2, 3, 4) == [("b", 1), ("c", 1), ("d", 1)]
    assert finish(line).outcome == 4


def test_the_default_path_is_taken_where_no_case_fits() -> None:
    saga: Any = Saga("s", input=int).branch(
        "size", choose=size, cases={"small": path("p", A)}, default=path("q", B)
    )
    line = Line(saga)
    line.does({"case": "huge"})
    assert line.does(1) == ("b", 1)


def test_a_path_that_is_gone_is_a_fork() -> None:
    saga: Any = Saga("s", input=int).branch("size", choose=size, cases={"small": path("p", A)})
    line = Line(saga)
    line.does({"case": "huge"})
    with pytest.raises(CheckpointForkError, match="huge"):
        line.next()


def test_each_pass_of_a_loop_is_a_new_visit() -> None:
    saga = Saga("s", input=int).loop("l", path("p", A, B), again=positive, max_visits=3).then(C)
    line = Line(saga)
    assert line.does_all(1, 2, {"again": True}) == [("a", 1), ("b", 1), ("l", 1)]
    assert line.does_all(3, 4, {"again": False}) == [("a", 2), ("b", 2), ("l", 2)]
    assert line.next().value == 4  # type: ignore[union-attr]
    assert line.does(5) == ("c", 1)


def test_a_pass_is_told_how_many_there_were() -> None:
    saga: Any = Saga("s", input=int).loop("l", path("p", A), again=positive, max_visits=3)
    line = Line(saga)
    line.does_all(1, {"again": True}, 1)
    assert line.next().passes == 2  # type: ignore[union-attr]


def test_a_loop_in_a_loop_counts_its_visits_on() -> None:
    inner: Any = Saga("i", input=int).loop("in", path("p", A), again=positive, max_visits=2)
    saga: Any = Saga("s", input=int).loop("out", inner, again=positive, max_visits=2)
    line = Line(saga)
    line.does_all(1, {"again": True}, 1, {"again": False}, {"again": True})
    assert line.does(1) == ("a", 3)
    assert line.does({"again": False}) == ("in", 3)
    assert line.does({"again": False}) == ("out", 2)
    assert finish(line).outcome == 1


def test_a_timer_gives_on_what_came_in_and_a_signal_its_payload() -> None:
    saga = (
        Saga("s", input=int)
        .then(A)
        .sleep("nap", timedelta(seconds=1))
        .then(B)
        .wait_for(Signal("paid", int), timeout=None)
        .then(C)
    )
    line = Line(saga)
    line.does(1)
    assert line.does_all({}, {"payload": None}) == [("nap", 1), ("nap", 1)]
    assert line.next().value == 1  # type: ignore[union-attr]
    line.does_all(2, {}, {"payload": 99})
    assert line.next().value == 99  # type: ignore[union-attr]


def test_an_approval_gives_on_what_came_in() -> None:
    line = Line(Saga("s", input=int).approval("boss", timeout=None).then(A), value=5)
    line.does_all({}, {"payload": {"approved": True}})
    assert line.next().value == 5  # type: ignore[union-attr]


def test_children_that_are_told_to_stop_are_waited_for() -> None:
    saga: Any = Saga("s", input=int).map(path("p", A), over=items, name="m")
    line = Line(saga)
    line.does({"children": 3})
    line.append(K.STOP, "m", 1, None)
    command = line.next()
    assert isinstance(command, JoinChildren)
    assert command.stopped


def test_what_was_done_is_undone_newest_first_across_visits() -> None:
    saga = Saga("s", input=int).loop("l", path("p", A, B), again=positive, max_visits=3).then(C)
    line = Line(saga)
    line.does_all(1, 2, {"again": True}, 3, 4, {"again": False})
    line.fails()
    assert line.does_all(None, None, None, None) == [
        ("undo b", 2),
        ("undo a", 2),
        ("undo b", 1),
        ("undo a", 1),
    ]
    assert finish(line).status is Status.COMPENSATED


def test_with_nothing_to_undo_it_has_failed() -> None:
    line = Line(path("s", C, made("d")))
    line.does(1)
    line.fails()
    assert finish(line).status is Status.FAILED


@pytest.mark.parametrize("code", [PARENT_FAILED, STOPPED])
def test_one_that_its_parent_told_is_compensated_whatever_it_had_done(code: str) -> None:
    line = Line(path("s", C))
    line.turned_back(code)
    assert finish(line).status is Status.COMPENSATED


def test_children_that_were_never_joined_are_stopped_even_with_nothing_to_undo() -> None:
    saga: Any = Saga("s", input=int).map(path("p", C), over=items, name="m").then(made("d"))
    line = Line(saga)
    line.does({"children": 2})
    line.turned_back(CANCELLED)
    assert line.does(None) == ("m", 1)
    assert line.does(None) == ("undo m", 1)
    assert finish(line).status is Status.COMPENSATED


@pytest.mark.parametrize("children", [0, 2])
def test_joined_children_with_nothing_to_undo_are_left_alone(children: int) -> None:
    saga: Any = Saga("s", input=int).map(path("p", C), over=items, name="m").then(made("d"))
    line = Line(saga)
    line.does_all({"children": children}, [])
    line.fails()
    assert finish(line).status is Status.FAILED


def plan(failure: Failure[int]) -> int:
    return failure.input


class GateError(Exception):
    pass


RESCUE = step(name="rescue", compensate=step(name="unrescue")(lambda_of(int)))(plan)
BRANCH = ErrorBranch(GateError).finish(RESCUE)


def test_an_error_branch_follows_the_undoing() -> None:
    line = Line(path("s", A, C).on_error(BRANCH))
    line.does(1)
    line.fails(branch=BRANCH.name)
    assert line.does_all(None, 7) == [("undo a", 1), ("rescue", 1)]
    assert (finish(line).status, finish(line).outcome) == (Status.SUCCEEDED, 7)


@pytest.mark.parametrize("code", [CANCELLED, DEADLINE_PASSED, PARENT_FAILED])
def test_turned_back_in_an_error_branch_it_undoes_that_too_and_takes_no_branch(code: str) -> None:
    line = Line(path("s", A, C).on_error(BRANCH))
    line.does(1)
    line.fails(branch=BRANCH.name)
    line.does_all(None, 7)
    line.turned_back(code)
    assert line.does(None) == ("undo rescue", 1)
    assert finish(line).status is Status.COMPENSATED


def test_turned_back_while_it_compensates_it_undoes_nothing_twice() -> None:
    line = Line(path("s", A, B, C).on_error(BRANCH))
    line.does_all(1, 2)
    line.fails(branch=BRANCH.name)
    assert line.does() == ("undo b", 1)
    line.turned_back(CANCELLED)
    assert line.does() == ("undo a", 1)
    assert finish(line).status is Status.COMPENSATED


def test_what_a_branch_declares_is_undone_where_no_branch_is_taken() -> None:
    branch: Any = ErrorBranch(GateError).compensate(C, made("unc"))
    line = Line(path("s", C, made("d")).on_error(branch))
    line.does(1)
    line.turned_back(CANCELLED)
    assert line.does() == ("undo c", 1)


def test_a_reopened_execution_goes_on_from_the_step_that_failed() -> None:
    line = Line(path("s", C, made("d")))
    line.does(1)
    line.fails()
    line.reopens()
    assert line.does(2) == ("d", 1)
    assert finish(line).status is Status.SUCCEEDED


def test_reopened_it_may_fail_again_and_take_its_branch_again() -> None:
    line = Line(path("s", C, made("d")).on_error(ErrorBranch(GateError).then(step(plan))))
    name = line.saga.branches[0].name
    line.does(1)
    line.fails(branch=name)
    assert line.does(None) == ("plan", 1)
    line.reopens()
    line.fails(branch=name)
    assert line.does(None) == ("plan", 2)
    line.reopens()
    assert line.does(2) == ("d", 1)


def test_a_fork_does_not_undo_what_it_inherits() -> None:
    line = Line(path("s", A, B, C))
    line.append(K.STEP, "a", 1, 1, epoch=0)
    assert line.does(2) == ("b", 1)
    line.fails()
    assert line.does() == ("undo b", 1)
    assert finish(line).status is Status.COMPENSATED


def test_a_chain_that_compensates_and_never_turned_back_is_a_fork() -> None:
    line = Line(path("s", A))
    with pytest.raises(CheckpointForkError):
        decide(line.saga, Phase.COMPENSATING, line.chain)


def test_collected_failures_have_a_type() -> None:
    saga: Any = Saga("s", input=int).map(path("p", A), over=items, name="m", join=Collect())
    assert "ChildResult" in str(saga.output_type)


def test_a_longer_version_can_continue_a_chain() -> None:
    line = Line(path("s", A, B))
    line.does(1)
    assert misfit(path("s", A, B, C), Phase.FORWARD, line.chain) is None


def test_a_version_that_does_not_come_past_what_is_on_record_can_not() -> None:
    line = Line(path("s", A, B))
    line.does_all(1, 2)
    assert misfit(path("s", A, C), Phase.FORWARD, line.chain) is not None
    assert misfit(path("s", B, A, C), Phase.FORWARD, line.chain[:2]) is not None
    assert misfit(path("s", A, B), Phase.FORWARD, line.chain) == "nothing would be left to do"
    assert misfit(path("s", A, B, C), Phase.COMPENSATING, line.chain) == "it undoes its work"


def test_a_version_without_the_path_that_was_taken_can_not() -> None:
    cases = {"small": path("p", A), "large": path("q", B)}
    old: Any = Saga("s", input=int).branch("size", choose=size, cases=cases)
    line = Line(old)
    line.does({"case": "large"})
    new: Any = Saga("s", input=int).branch("size", choose=size, cases={"small": path("p", A)})
    assert misfit(old, Phase.FORWARD, line.chain) is None
    assert "isn't there" in (misfit(new, Phase.FORWARD, line.chain) or "")


def test_the_same_chain_always_decides_the_same() -> None:
    saga = Saga("s", input=int).loop("l", path("p", A, B), again=positive, max_visits=3).then(C)
    line = Line(saga)
    line.does_all(1, 2, {"again": True}, 3)
    copied = [replace(entry) for entry in line.chain]
    assert decide(saga, line.phase, copied) == line.next()
