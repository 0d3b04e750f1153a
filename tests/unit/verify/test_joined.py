"""What can have come of a fan-out's children, and where in a join each child's result is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from fencepost.verify import CheckpointFact, ExecutionFact, Facts
from fencepost.verify.joined import UNKNOWN, fits, outcomes, values_of

AT = datetime(2026, 1, 1, tzinfo=UTC)
PARENT = uuid4()


def entry(of: UUID, kind: str, step: str, result: Any = None, seq: int = 1) -> CheckpointFact:
    return CheckpointFact(
        checkpoint_id=uuid4(),
        execution_id=of,
        seq=seq,
        parent_checkpoint_id=UUID(int=0),
        kind=kind,
        step=step,
        visit=1,
        step_key=f"{of}:{step}:1",
        epoch=1,
        owner="a",
        result=result,
        created_at=AT,
    )


def child(index: int, status: str, result: Any = None, **more: Any) -> ExecutionFact:
    child_id = uuid4()
    return ExecutionFact(
        execution_id=child_id,
        saga="child",
        version="1",
        business_key=None,
        lineage_id=child_id,
        root_id=PARENT,
        parent_id=PARENT,
        parent_step="parts",
        parent_visit=1,
        child_index=index,
        status=status,
        phase="forward",
        epoch=1,
        owner=None,
        head=uuid4(),
        head_seq=1,
        input=None,
        result=result,
        scheduled=False,
        ended_at=AT,
        **more,
    )


FAN_OUT = entry(PARENT, "fan-out", "parts")
FAILURE = {"code": "step.failed", "message": "it failed"}


def facts(*children: ExecutionFact, **chains: CheckpointFact) -> Facts:
    return Facts(
        executions={one.execution_id: one for one in children},
        chains={one.execution_id: (one,) for one in chains.values()},
        events={},
        effects={},
        leases={},
        messages={},
    )


ONE = child(0, "succeeded", 1)
TWO = child(1, "succeeded", 2)
BAD = child(1, "failed", error=FAILURE)
LAST = child(2, "succeeded", 3)


def item(value: Any, error: Any = None) -> dict[str, Any]:
    return {"succeeded": error is None, "value": value, "error": error}


@pytest.mark.parametrize(
    ("children", "result"),
    [
        ((), []),
        ((ONE,), 1),
        ((ONE,), [1]),
        ((ONE, TWO, LAST), [1, 2, 3]),
        ((ONE, BAD, LAST), [1, 3]),
        ((ONE, BAD), [item(1), item(None, FAILURE)]),
    ],
    ids=["none", "single", "one", "all", "quorum", "collect"],
)
def test_each_way_to_join_fits(children, result):
    assert fits(result, outcomes(facts(*children), FAN_OUT))


@pytest.mark.parametrize(
    ("children", "result"),
    [
        ((), [1]),
        ((), None),
        ((ONE,), 2),
        ((ONE, TWO), 1),
        ((ONE, TWO), [2, 1]),
        ((ONE, TWO), [1]),
        ((ONE, BAD, LAST), [1, None, 3]),
        ((ONE, BAD), [item(1), item(None)]),
        ((ONE, BAD), [item(2), item(None, FAILURE)]),
        ((ONE, BAD), [item(1), item(5, FAILURE)]),
        ((ONE, BAD), [item(1), item(None, FAILURE | {"code": "another"})]),
        ((BAD,), None),
    ],
)
def test_nothing_else_does(children, result):
    assert not fits(result, outcomes(facts(*children), FAN_OUT))


def test_what_a_child_gave_before_it_undid_its_work_is_not_known():
    undone = replace(TWO, status="compensated", phase="compensating", result=None)
    told = {"failure": {"code": "saga.parent-failed"}}
    known = facts(ONE, undone, told=entry(undone.execution_id, "compensating", "-", told))
    first, second = outcomes(known, FAN_OUT)
    assert (first.succeeded, first.value) == (True, 1)
    assert (second.succeeded, second.value) == (True, UNKNOWN)
    assert fits([1, "anything"], [first, second])
    assert not fits([2, "anything"], [first, second])
    assert repr(UNKNOWN) == "unknown"


def test_of_a_line_the_last_one_counts():
    first = replace(TWO, execution_id=uuid4(), status="continued", result={"continued_as": "-"})
    known = facts(ONE, first, TWO)
    assert [outcome.value for outcome in outcomes(known, FAN_OUT)] == [1, 2]


@pytest.mark.parametrize(
    ("children", "result", "index", "values"),
    [
        ((ONE,), 7, 0, [7]),
        ((ONE,), [7], 0, [[7], 7]),
        ((ONE, TWO), [7, 8], 1, [8]),
        ((ONE, BAD, LAST), [7, 8], 2, [8]),
        ((ONE, BAD, LAST), [7, 8], 1, []),
        ((ONE, BAD), [item(7), item(None, FAILURE)], 0, [item(7), 7]),
        ((ONE, TWO), None, 1, []),
    ],
)
def test_where_a_childs_result_is(children, result, index, values):
    join = entry(PARENT, "join", "parts", result, seq=2)
    assert values_of(facts(*children), FAN_OUT, join, index) == values
