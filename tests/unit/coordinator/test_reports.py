from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from rich.console import Console

from coordinator import tables
from coordinator.claims import Claim
from coordinator.report import latencies
from coordinator.status import AttemptView, ExecutionView, RunView, reasons, run_table
from coordinator.views import GateView, PlanView, TracesView
from fencepost.verify import InvariantReport, Report, Verdict, Violation


def shown(table: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(table)
    return out.getvalue()


def test_latencies_are_summed_up() -> None:
    assert latencies([2.25, 2.0, 2.5004]) == {
        "min": 2.0,
        "median": 2.25,
        "max": 2.5,
        "values": [2.25, 2.0, 2.5],
    }
    assert latencies([1.0, 2.0])["median"] == 1.5


def report(*lines: InvariantReport) -> Report:
    return Report(
        run=None,
        database="sqlite:///x",
        at=datetime.now(UTC),
        waited=0.0,
        executions={},
        invariants=list(lines),
    )


def test_what_is_broken_stands_out_with_what_was_found() -> None:
    violations = [
        Violation(invariant=7, code="staging.orphan", execution_id=uuid4(), message=f"file {n}")
        for n in range(5)
    ]
    table = shown(
        tables.invariants(
            report(
                InvariantReport(number=1, title="One: of many", verdict=Verdict.OK),
                InvariantReport(
                    number=7,
                    title="Nothing is orphaned: at all",
                    verdict=Verdict.VIOLATED,
                    examined={"staged files": 5},
                    violations=violations,
                ),
                InvariantReport(number=9, title="Nine", verdict=Verdict.NOTHING),
            )
        )
    )
    assert "BROKEN" in table
    assert "staging.orphan: file 0" in table
    assert "and 2 more" in table
    assert "5 staged files" in table
    assert "nothing to check" in table


def test_a_claim_that_does_not_hold_is_marked() -> None:
    table = shown(tables.claims([Claim("one", True, "as said"), Claim("two", False, "but this")]))
    assert "✓" in table
    assert "✗" in table
    assert "but this" in table


def view(name: str, **more: Any) -> ExecutionView:
    values: dict[str, Any] = {
        "execution_id": str(uuid4()),
        "name": name,
        "status": "succeeded",
        "phase": "forward",
        "epoch": 1,
        "worker": "worker-a",
        "at": "promote",
        "checkpoints": 8,
        "lease_left": None,
        "reason": None,
    }
    return ExecutionView(**values | more)


PLAN = PlanView(
    root_cause="wire ABI",
    explanation="",
    added_flags=["--abi-compat=v2"],
    removed_flags=["--opt-level=3"],
    model="some-model",
    tokens_in=10,
    tokens_out=2,
    calls=1,
    refused=0,
)


def run(*, lease: float | None = None) -> RunView:
    failed = view("release", status="continued", reason="the gate failed [release.gate-failed]")
    return RunView(
        execution_id=failed.execution_id,
        release="shop",
        version="1",
        status="active",
        attempts=[
            AttemptView(1, ["--opt-level=3"], failed, [], GateView(False, 1, 5, "a\nb"), PLAN),
            AttemptView(2, [], view("release", lease_left=lease), [view("one")], None, None),
        ],
    )


def test_leases_are_shown_while_there_are_any() -> None:
    assert "4.2 s left" in shown(run_table(run(lease=4.2)))
    assert "left" not in shown(run_table(run()))


def test_why_an_attempt_ended_is_told_with_the_plan_that_followed() -> None:
    assert reasons(run()) == [
        "attempt 1: --opt-level=3",
        "  the gate failed [release.gate-failed]",
        "  a",
        "  b",
        "  plan: add --abi-compat=v2, drop --opt-level=3 (some-model)",
        "attempt 2: no flags",
    ]


def test_only_a_release_that_is_out_counts_as_promoted() -> None:
    assert not run().promoted
    assert RunView("x", "shop", "1", "succeeded", []).promoted


def test_what_is_undone_is_not_active() -> None:
    gone = TracesView({"COMPENSATED": 3}, {"COMPENSATED": 3}, files=0, lock=None, promotions=0)
    assert gone.active == 0
    left = TracesView({"STAGED": 1}, {}, files=1, lock=None, promotions=0)
    assert left.active == 2


def test_what_waits_for_a_person_is_told_with_the_command_that_continues_it() -> None:
    parked = view("one", status="parked", reason="the disk is full")
    waiting = view("release", status="waiting")
    attempt = AttemptView(1, [], waiting, [parked], None, None)
    told = reasons(RunView("x", "shop", "1", "waiting", [attempt]))
    assert told[1] == "  one waits for a person: the disk is full"
    assert told[2] == f'  to go on: fencepost retry {parked.execution_id} --why "..."'
