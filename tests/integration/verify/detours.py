"""Ways to break the journeys, each with the one invariant that it violates, and the rule's code.

Every change is as small as the breach allows: what else it would disturb is put right.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from tests.integration.verify.copies import (
    CHECKPOINTS,
    EVENTS,
    EXECUTIONS,
    SIGNALS,
    Break,
    Copy,
    Row,
)

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
LATER = datetime(2999, 1, 1, tzinfo=UTC)

DETOURS: list[tuple[int, str, Break]] = []


def breaks(invariant: int, code: str) -> Callable[[Break], Break]:
    def add(function: Break) -> Break:
        DETOURS.append((invariant, code, function))
        return function

    return add


def child(copy: Copy, of: str, step: str, index: int = 0) -> UUID:
    where = {"parent_id": copy.started[of], "parent_step": step, "child_index": index}
    found: UUID = copy.row(EXECUTIONS, **where)["execution_id"]
    return found


def entry(copy: Copy, of: str, kind: str, step: str, visit: int = 1) -> Row:
    return copy.checkpoint(copy.started[of], kind, step, visit)


def rename(copy: Copy, changed: Row, step: str, visit: int) -> None:
    key = f"{changed['execution_id']}:{step}:{visit}"
    copy.change(changed, step=step, visit=visit, step_key=key)


def failing(copy: Copy, changed: Row, **values: Any) -> None:
    """Change why a checkpoint turned back."""
    result = changed["result"]
    copy.change(changed, result=result | {"failure": result["failure"] | values})


# -- 1: forks ------------------------------------------------------------------------------


@breaks(1, "identity.inherited")
def a_fork_has_another_result_on_record_than_the_original(copy: Copy) -> None:
    copy.change(entry(copy, "fork", "step", "wrap"), result={"name": "another"})


@breaks(1, "identity.inherited")
def a_fork_took_another_way_than_the_original(copy: Copy) -> None:
    copy.change(entry(copy, "fork", "decision", "weight"), result={"case": "true"})


@breaks(1, "identity.fork")
def a_fork_has_inherited_more_than_is_on_record(copy: Copy) -> None:
    event = copy.row(EVENTS, execution_id=copy.started["fork"], name="execution.forked")
    details = event["details"] | {"seq": event["details"]["seq"] - 1}
    copy.update(EVENTS, {"event_id": event["event_id"]}, details=details)


# -- 3: visits, joins, waits, decisions ----------------------------------------------------


@breaks(3, "chain.visit")
def a_visit_is_left_out(copy: Copy) -> None:
    rename(copy, entry(copy, "whole", "step", "wrap", 2), "wrap", 3)


@breaks(3, "join.without-fan-out")
def a_join_is_of_another_fan_out(copy: Copy) -> None:
    rename(copy, entry(copy, "whole", "join", "checks"), "bids", 2)


@breaks(3, "join.passed-over")
def it_went_on_without_a_join(copy: Copy) -> None:
    copy.change(entry(copy, "whole", "join", "signing"), kind="decision", result={"case": "x"})


@breaks(3, "join.before-child")
def a_child_was_still_writing_when_it_was_joined(copy: Copy) -> None:
    last = copy.rows(CHECKPOINTS, execution_id=child(copy, "whole", "signing"))[-1]
    copy.change(last, created_at=LATER)


@breaks(3, "join.before-child")
def a_joined_child_never_ended(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": child(copy, "whole", "bids", 2)}, ended_at=None)


@breaks(3, "join.result")
def a_quorum_has_its_results_in_another_order(copy: Copy) -> None:
    join = entry(copy, "whole", "join", "bids")
    copy.change(join, result=list(reversed(join["result"])))


@breaks(3, "join.result")
def a_quorum_has_the_result_of_one_that_was_stopped(copy: Copy) -> None:
    join = entry(copy, "whole", "join", "bids")
    copy.change(join, result=[*join["result"], 1])


@breaks(3, "join.result")
def a_collected_child_failed_and_is_said_to_have_succeeded(copy: Copy) -> None:
    join = entry(copy, "whole", "join", "checks")
    good, bad = join["result"]
    copy.change(join, result=[good, bad | {"succeeded": True, "error": None}])


@breaks(3, "join.result")
def a_collected_child_failed_with_another_error(copy: Copy) -> None:
    join = entry(copy, "whole", "join", "checks")
    good, bad = join["result"]
    copy.change(join, result=[good, bad | {"error": bad["error"] | {"code": "another"}}])


@breaks(3, "join.result")
def the_only_childs_result_is_another(copy: Copy) -> None:
    join = entry(copy, "whole", "join", "signing")
    copy.change(join, result=join["result"] | {"size": 99})


@breaks(3, "join.stopped-too-early")
def children_were_stopped_before_any_had_succeeded(copy: Copy) -> None:
    copy.change(entry(copy, "whole", "stop", "bids"), created_at=LONG_AGO)


@breaks(3, "wait.without-wait")
def a_wait_ended_that_had_not_begun(copy: Copy) -> None:
    copy.change(entry(copy, "whole", "wait", "rest"), kind="decision", result={"case": "x"})


@breaks(3, "wait.passed-over")
def it_went_on_before_its_wait_was_over(copy: Copy) -> None:
    woken = entry(copy, "whole", "woken", "rest")
    copy.change(woken, kind="decision", result={"case": "x"})


@breaks(3, "wait.early")
def it_was_woken_early(copy: Copy) -> None:
    began = entry(copy, "whole", "wait", "rest")["created_at"]
    copy.change(entry(copy, "whole", "woken", "rest"), created_at=began)


@breaks(3, "wait.early")
def it_was_woken_before_the_moment_that_it_waited_for(copy: Copy) -> None:
    until = {"seconds": None, "until": LATER.isoformat(), "signal": None}
    copy.change(entry(copy, "whole", "wait", "rest"), result=until)


@breaks(3, "wait.by-nothing")
def a_wait_for_a_signal_was_ended_by_the_time(copy: Copy) -> None:
    woken = entry(copy, "whole", "woken", "price")
    copy.change(woken, result=woken["result"] | {"by": "time"})


@breaks(3, "wait.signal-unknown")
def the_signal_that_woke_it_was_never_sent(copy: Copy) -> None:
    copy.delete(SIGNALS, execution_id=copy.started["whole"])


@breaks(3, "wait.signal-of-another")
def the_signal_that_woke_it_was_taken_by_another(copy: Copy) -> None:
    whole = copy.started["whole"]
    copy.update(SIGNALS, {"execution_id": whole}, consumed_by=f"{whole}:price:2")


@breaks(3, "wait.signal-differs")
def another_signal_is_on_record_than_was_sent(copy: Copy) -> None:
    copy.update(SIGNALS, {"execution_id": copy.started["whole"]}, payload={"price": 8})


@breaks(3, "wait.signal-taken")
def a_rejected_signal_was_taken(copy: Copy) -> None:
    copy.update(SIGNALS, {"execution_id": copy.started["whole"]}, rejected="no such price")


@breaks(3, "wait.signal-taken")
def a_signal_was_taken_and_nothing_came_of_it(copy: Copy) -> None:
    refused = copy.started["refused"]
    copy.update(SIGNALS, {"execution_id": refused}, consumed_by=f"{refused}:manager:1")


@breaks(3, "wait.signal-taken")
def a_signal_may_be_taken_once_more(copy: Copy) -> None:
    copy.update(SIGNALS, {"execution_id": copy.started["whole"]}, consumed_by=None)


@breaks(3, "decision.unreadable")
def nobody_knows_which_way_it_went(copy: Copy) -> None:
    copy.change(entry(copy, "whole", "decision", "weight"), result={"case": None})


@breaks(3, "decision.not-followed")
def it_ended_in_the_middle_of_a_loop(copy: Copy) -> None:
    last = entry(copy, "whole", "step", "deliver")
    copy.change(last, kind="decision", result={"again": True})


# -- 6: turning back -----------------------------------------------------------------------


@breaks(6, "compensation.inherited")
def a_fork_undid_what_it_had_inherited(copy: Copy) -> None:
    fork = copy.started["fork"]
    like = copy.checkpoint(fork, "undo", "signing")
    copy.append(fork, like, step="wrap", visit=2, step_key=f"{fork}:wrap:2")


@breaks(6, "compensation.undone-twice")
def what_was_undone_before_it_turned_back_again_was_undone_again(copy: Copy) -> None:
    rename(copy, entry(copy, "twice", "undo", "pack"), "wrap", 1)


@breaks(6, "compensation.order")
def the_first_visit_was_undone_before_the_second(copy: Copy) -> None:
    second = entry(copy, "unwound", "undo", "wrap", 2)
    rename(copy, entry(copy, "unwound", "undo", "wrap", 1), "wrap", 2)
    rename(copy, second, "wrap", 1)


@breaks(6, "compensation.not-undone")
def one_visit_of_two_is_not_undone(copy: Copy) -> None:
    rename(copy, entry(copy, "unwound", "undo", "wrap", 1), "pad", 1)


@breaks(6, "compensation.not-undone")
def what_its_error_branch_had_done_is_not_undone(copy: Copy) -> None:
    copy.cut(child(copy, "saved", "keep"))


@breaks(6, "compensation.not-fenced")
def a_child_was_not_fenced_out_when_its_parent_began_to_undo(copy: Copy) -> None:
    unwound = copy.started["unwound"]
    raised = [
        event
        for event in copy.rows(
            EVENTS, execution_id=child(copy, "unwound", "bids"), name="execution.epoch-raised"
        )
        if event["details"]["by"] == str(unwound)
    ]
    assert len(raised) == 2  # when it was cancelled, and when it began
    details = raised[1]["details"] | {"by": str(uuid4())}
    copy.update(EVENTS, {"event_id": raised[1]["event_id"]}, details=details)


@breaks(6, "compensation.forward-write")
def one_that_was_cancelled_went_on(copy: Copy) -> None:
    undo = entry(copy, "cancelled", "undo", "pack")
    copy.change(undo, kind="step")
    rename(copy, undo, "deliver", 1)


@breaks(6, "compensation.branch-taken")
def one_that_was_cancelled_took_an_error_branch(copy: Copy) -> None:
    turned = entry(copy, "cancelled", "compensating", "compensation")
    copy.change(turned, result=turned["result"] | {"branch": "NoSpaceError"})


@breaks(6, "compensation.turned-twice")
def it_turned_back_again_and_nobody_had_told_it_to(copy: Copy) -> None:
    failing(copy, entry(copy, "twice", "compensating", "compensation", 2), code="step.failed")


@breaks(6, "compensation.off-record")
def nobody_knows_who_cancelled_it(copy: Copy) -> None:
    copy.delete(EVENTS, execution_id=copy.started["cancelled"], name="execution.cancelled")


@breaks(6, "compensation.reopened")
def nobody_knows_who_had_it_go_on(copy: Copy) -> None:
    copy.delete(EVENTS, execution_id=copy.started["reopened"], name="execution.reopened")


@breaks(6, "compensation.reopened")
def one_that_had_not_failed_was_reopened(copy: Copy) -> None:
    turned = entry(copy, "reopened", "compensating", "compensation")
    copy.change(turned, kind="branch-failed")


@breaks(6, "compensation.reopened")
def one_whose_work_was_undone_was_reopened(copy: Copy) -> None:
    skipped = copy.started["skipped"]
    like = entry(copy, "reopened", "reopened", "reopened") | {"execution_id": skipped}
    copy.append(skipped, like, step_key=f"{skipped}:reopened:1")
    copy.update(EVENTS, {"execution_id": skipped, "name": "execution.unparked"}, name="-")
    event = copy.row(EVENTS, execution_id=skipped, name="-")
    copy.update(EVENTS, {"event_id": event["event_id"]}, name="execution.reopened")


@breaks(6, "compensation.not-turned-back")
def one_that_was_cancelled_went_on_before_it_turned_back(copy: Copy) -> None:
    copy.change(entry(copy, "twice", "compensating", "compensation", 2), kind="branch-failed")


@breaks(6, "compensation.not-turned-back")
def a_task_that_was_cancelled_succeeded(copy: Copy) -> None:
    copy.change(entry(copy, "task", "task-failed", "return"), kind="step")
    copy.update(EXECUTIONS, {"execution_id": copy.started["task"]}, status="succeeded")


@breaks(6, "compensation.not-turned-back")
def a_task_that_was_cancelled_ended_without_a_word(copy: Copy) -> None:
    copy.cut(copy.started["task"])


@breaks(6, "compensation.not-turned-back")
def it_is_forgotten_that_it_was_cancelled(copy: Copy) -> None:
    task = copy.started["task"]
    copy.cut(task)
    copy.update(EXECUTIONS, {"execution_id": task}, status="active", due_at=LATER)


@breaks(6, "compensation.past-pivot")
def it_failed_after_its_pivot(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.started["whole"]}, status="failed")


@breaks(6, "compensation.past-pivot")
def it_turned_back_after_its_pivot(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.started["cancelled"]}, phase="past-pivot")


@breaks(6, "compensation.phase")
def its_row_goes_forward_and_its_chain_goes_back(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.started["cancelled"]}, phase="forward")


@breaks(6, "compensation.phase")
def it_undoes_its_work_and_nobody_knows_why(copy: Copy) -> None:
    asking = {"execution_id": copy.started["asking"]}
    copy.update(EXECUTIONS, asking, phase="compensating", status="parked")


@breaks(6, "compensation.never-stopped")
def a_child_was_stopped_by_nobody(copy: Copy) -> None:
    broken = child(copy, "whole", "checks", 1)
    turned = copy.checkpoint(broken, "compensating", "compensation")
    failing(copy, turned, code="saga.stopped")
    copy.update(EXECUTIONS, {"execution_id": broken}, status="compensated")


@breaks(6, "compensation.status")
def one_that_was_told_by_its_parent_is_called_failed(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": child(copy, "halted", "bids")}, status="failed")


# -- 7: orphans ----------------------------------------------------------------------------


def _live(copy: Copy, of: str, **values: Any) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.started[of]}, **values)


@breaks(7, "orphan.forgotten")
def it_waits_for_an_answer_that_nobody_can_give(copy: Copy) -> None:
    _live(copy, "asking", waits_for=None)


@breaks(7, "orphan.forgotten")
def its_answer_is_there_and_nobody_will_look(copy: Copy) -> None:
    like = copy.row(SIGNALS, execution_id=copy.started["refused"])
    mine = {"execution_id": copy.started["asking"], "signal_id": uuid4(), "consumed_by": None}
    copy.insert(SIGNALS, like | mine | {"number": 99})


@breaks(7, "orphan.forgotten")
def nobody_will_look_whether_its_time_has_come(copy: Copy) -> None:
    _live(copy, "resting", due_at=None)


@breaks(7, "orphan.forgotten")
def nobody_will_look_whether_its_children_have_ended(copy: Copy) -> None:
    _live(copy, "bidding", due_at=None)


@breaks(7, "orphan.forgotten")
def it_waits_and_has_come_to_no_wait(copy: Copy) -> None:
    bidder = child(copy, "bidding", "bids")
    copy.update(EXECUTIONS, {"execution_id": bidder}, status="waiting", due_at=LATER)


@breaks(7, "orphan.forgotten")
def it_waits_for_its_parent_to_turn_back_which_goes_forward(copy: Copy) -> None:
    bidder = child(copy, "bidding", "bids")
    told = {"turned_back": {"code": "saga.parent-failed"}, "phase": "compensating"}
    copy.update(EXECUTIONS, {"execution_id": bidder}, status="waiting", **told)


@breaks(7, "orphan.queued")
def it_waits_for_a_place_under_a_parent_that_was_cancelled(copy: Copy) -> None:
    bidder = child(copy, "bidding", "bids")
    copy.update(EXECUTIONS, {"execution_id": bidder}, status="queued")
    told = {"turned_back": {"code": "execution.cancelled"}, "phase": "compensating"}
    _live(copy, "bidding", status="active", **told)
