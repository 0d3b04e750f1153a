"""The planner on real databases, with what the example's real check says."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

import ledger
from fencepost import Failure, FenceToken, StepContext
from ledger import attempts, database, diagnostics, plans
from ledger.models import AttemptStatus, Base
from ledger.planner_records import ModelCall
from ledger.vocabulary import (
    CheckedCandidate,
    CheckReport,
    GateSpec,
    LockedCandidate,
    ModuleSpec,
    ReleasePolicy,
    ReleaseRequest,
)
from tasks.checking import command_for, run_check
from tasks.planner import client as planner_client
from tasks.planner import plan_recovery
from tasks.planner import step as planner_step

EXAMPLE = Path(__file__).parents[3] / "examples" / "release"
MODULES = ("auth-service", "payment-engine", "telemetry-collector")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A migrated ledger, on each database in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    ledger.migrate(url)
    monkeypatch.setenv("FENCEPOST_DATABASE_URL", url)
    monkeypatch.delenv("FACTORY_PLANNER", raising=False)
    return url


def example_request() -> ReleaseRequest:
    return ReleaseRequest(
        name="storefront",
        version="2026.1",
        modules=tuple(ModuleSpec(name=name, directory=EXAMPLE / name) for name in MODULES),
        flags=("--opt-level=3", "--deterministic"),
        policy=ReleasePolicy(allowed_flags=("--abi-compat=v2", "--opt-level=2"), max_attempts=3),
        gate=GateSpec(check=EXAMPLE / "integration_check.py"),
    )


def failed_check(folder: Path) -> CheckReport:
    """What the example's check says of modules that were built with the default ABI."""
    modules = folder / "modules"
    for name in MODULES:
        shutil.copytree(EXAMPLE / name, modules / name)
    home = folder / "home"
    home.mkdir()
    report = run_check(
        command_for(EXAMPLE / "integration_check.py", modules),
        folder=modules,
        home=home,
        timeout=30,
        still_wanted=lambda: None,
    )
    assert not report.passed
    return report


def made_up_check() -> CheckReport:
    return CheckReport(
        command=("check",),
        exit_code=1,
        timed_out=False,
        duration_ms=1,
        stdout="",
        stderr="expected wire ABI v2, got v1",
        stdout_bytes=0,
        stderr_bytes=28,
    )


def record_failure(report: CheckReport) -> tuple[UUID, Failure[ReleaseRequest]]:
    """Write the failed attempt as the factory's steps do."""
    request, execution_id = example_request(), uuid4()
    candidate = CheckedCandidate(
        attempt_id=execution_id,
        lineage_id=execution_id,
        release=request.name,
        version=request.version,
        attempt=1,
        modules=(),
        report=report,
        diagnostics_id=diagnostics.diagnostics_id(f"{execution_id}:check_candidate:1"),
    )
    with database.session() as session:
        attempts.open_attempt(
            session,
            FenceToken(execution_id, 1, "a", f"{execution_id}:lock_candidate:1"),
            LockedCandidate(execution_id=execution_id, lineage_id=execution_id, request=request),
        )
        token = FenceToken(execution_id, 1, "a", f"{execution_id}:record_check:1")
        diagnostics.record(session, token, candidate)
        attempts.close(session, execution_id, AttemptStatus.COMPENSATED)
    failure = Failure[ReleaseRequest](
        error_type="ledger.errors.ReleaseGateFailedError",
        code="release.gate-failed",
        message="the integration check ended with exit code 1",
        input=request,
        step="gate",
        visit=1,
    )
    return execution_id, failure


def planning(execution_id: UUID, epoch: int = 1) -> StepContext:
    step_key = f"{execution_id}:plan_recovery:1"
    return StepContext(
        execution_id=execution_id,
        lineage_id=execution_id,
        root_id=execution_id,
        parent_id=None,
        step="plan_recovery",
        visit=1,
        attempt=1,
        token=FenceToken(execution_id, epoch, f"worker-{epoch}", step_key),
        saga_input=None,
        results={},
        lease_lost=lambda: False,
    )


def calls_of(execution_id: UUID) -> list[ModelCall]:
    query = sa.select(ModelCall).where(ModelCall.attempt_id == execution_id)
    with database.session() as session:
        return list(session.scalars(query.order_by(ModelCall.seq)))


class OneAnswer(httpx2.BaseTransport):
    """Looks at the diagnostics, then gives the answer that it was made with."""

    def __init__(self, answer: str, before: Callable[[], Any] = lambda: None) -> None:
        self._answer = answer
        self._before = before

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer as a chat completion server."""
        messages = json.loads(request.read())["messages"]
        self._before()
        message: dict[str, Any] = {"role": "assistant", "content": self._answer}
        if messages[-1]["role"] == "user":
            task = json.loads(messages[1]["content"].split("```json\n")[1].split("\n```")[0])
            arguments = json.dumps({"lineage_id": task["lineage_id"], "attempt": task["attempt"]})
            function = {"name": "inspect_failed_attempt", "arguments": arguments}
            call = {"id": "call_1", "type": "function", "function": function}
            message |= {"content": None, "tool_calls": [call]}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "one-answer"}
        content = json.dumps(body | {"choices": [choice], "usage": usage})
        return httpx2.Response(200, text=content, headers={"content-type": "application/json"})


def answer_with(monkeypatch: pytest.MonkeyPatch, transport: Callable[[], OneAnswer]) -> None:
    monkeypatch.setattr(
        planner_step,
        "connect",
        lambda settings: planner_client.connect(settings, transport=transport()),
    )


def test_the_examples_failure_leads_to_the_flag_that_mends_it(url, tmp_path):
    execution_id, failure = record_failure(failed_check(tmp_path))

    planned = plan_recovery(planning(execution_id), failure)

    assert planned.request.flags == ("--opt-level=3", "--deterministic", "--abi-compat=v2")
    assert planned.request.attempt == 2
    with database.session() as session:
        (recorded,) = plans.of_attempt(session, execution_id)
    assert recorded.accepted
    assert recorded.tokens_in > 0 < recorded.tokens_out
    assert [call.kind for call in calls_of(execution_id)] == ["model", "tool", "model"]


def test_two_runs_of_one_step_at_once_agree_on_one_plan(url, monkeypatch):
    execution_id, failure = record_failure(made_up_check())
    barrier = threading.Barrier(2)
    causes = iter(["worker 1 says so", "worker 2 says so"])

    def transport() -> OneAnswer:
        plan = {"root_cause": next(causes), "added_flags": ["--abi-compat=v2"]}
        # Each model call of one run waits for that of the other: both record it at once.
        return OneAnswer(json.dumps(plan), lambda: barrier.wait(timeout=30))

    answer_with(monkeypatch, transport)
    results: dict[int, Any] = {}

    def run(epoch: int) -> None:
        try:
            results[epoch] = plan_recovery(planning(execution_id, epoch), failure)
        except Exception as problem:  # noqa: BLE001 - the test shows it
            results[epoch] = problem
            barrier.abort()

    threads = [threading.Thread(target=run, args=(epoch,)) for epoch in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results[1] == results[2]
    assert results[1].plan.root_cause in {"worker 1 says so", "worker 2 says so"}
    with database.session() as session:
        assert len(plans.of_attempt(session, execution_id)) == 1
    assert [call.seq for call in calls_of(execution_id)] == [1, 2, 3]


def test_text_that_no_database_takes_is_cleaned(url, monkeypatch):
    execution_id, failure = record_failure(made_up_check())
    plan = {"root_cause": "nul: \x00, colour: \x1b[31m", "added_flags": ["--abi-compat=v2"]}
    answer_with(monkeypatch, lambda: OneAnswer(f"\x00\ud800{json.dumps(plan)}"))

    planned = plan_recovery(planning(execution_id), failure)

    assert planned.plan.root_cause == "nul: , colour: [31m"
    with database.session() as session:
        assert plans.of_attempt(session, execution_id)[-1].accepted


def test_the_migrations_make_the_models_tables(url):
    with database.engine_for(url).connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), Base.metadata)

    assert "ledger_model_calls" in Base.metadata.tables
    assert [d for d in differences if "ledger_model_calls" in str(d)] == []
