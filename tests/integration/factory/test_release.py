from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.errors import Suspended
from fencepost.records import CheckpointKind, Status
from ledger import artifacts, attempts, diagnostics, locks, promotions
from ledger.models import ArtifactStatus, AttemptStatus, AttestationStatus
from ledger.publishing import PublishStore
from ledger.unpacking import digest_of, open_archive
from ledger.vocabulary import PromotedRelease
from tests.integration.factory.fleet import Fleet, example


def test_a_failed_gate_is_undone_planned_and_promoted(fleet: Fleet) -> None:
    first, second = fleet.run(example())

    assert first.status is Status.CONTINUED
    assert second.status is Status.SUCCEEDED
    assert second.lineage_id == first.execution_id
    promoted = PromotedRelease.model_validate(second.result)
    assert [m.module for m in promoted.modules] == [
        "auth-service",
        "payment-engine",
        "telemetry-collector",
    ]
    failed, succeeded = fleet.attempts(first.execution_id)
    assert failed.status is AttemptStatus.COMPENSATED
    assert succeeded.status is AttemptStatus.PROMOTED
    assert set(succeeded.flags) - set(failed.flags) == {"--abi-compat=v2"}
    with fleet.session() as session:
        assert locks.holder(session, "storefront") is None
        undone = artifacts.of_attempt(session, first.execution_id)
        assert [row.status for row in undone] == [ArtifactStatus.COMPENSATED] * 3
        withdrawn = artifacts.attestations(session, first.execution_id)
        assert [row.status for row in withdrawn] == [AttestationStatus.COMPENSATED] * 3
        kept = artifacts.of_attempt(session, second.execution_id)
        assert [row.status for row in kept] == [ArtifactStatus.PROMOTED] * 3
    staging = Path(fleet.staged_files()[0]).parts[0]
    assert staging == str(first.execution_id)
    assert all(path.startswith(f"{first.execution_id}/2/") for path in fleet.staged_files())
    assert fleet.nothing_is_orphaned()


def test_the_published_files_are_those_of_the_ledger(fleet: Fleet) -> None:
    fleet.run(example())
    store = PublishStore()
    with fleet.session() as session:
        rows = promotions.of_release(session, "storefront", "2026.1")
    assert len(rows) == 3
    for row in rows:
        assert digest_of(store.root / row.path) == (row.sha256, row.size)
        assert open_archive(store.root / row.path).manifest.module == row.module


def test_the_evidence_of_both_checks_stays_on_record(fleet: Fleet) -> None:
    first, second = fleet.run(example())
    with fleet.session() as session:
        (failed,) = diagnostics.of_attempt(session, first.execution_id)
        (passed,) = diagnostics.of_attempt(session, second.execution_id)
    assert (failed.passed, failed.exit_code) == (False, 1)
    assert "wire ABI v1" in failed.stderr
    assert len(failed.artifacts) == 3
    assert (passed.passed, passed.exit_code) == (True, 0)


def test_the_gate_names_its_diagnostics(fleet: Fleet) -> None:
    first = fleet.run(example())[0]
    chain = fleet.engine.executions.chain(first.execution_id)
    (record,) = [c.result for c in chain if c.kind is CheckpointKind.COMPENSATING]
    failure = record["failure"]
    assert (failure["step"], failure["code"]) == ("gate", "release.gate-failed")
    with fleet.session() as session:
        (row,) = diagnostics.of_attempt(session, first.execution_id)
    assert failure["details"]["diagnostics_id"] == str(row.id)


def test_a_module_execution_has_at_least_six_checkpoints(fleet: Fleet) -> None:
    first = fleet.run(example())[0]
    children = fleet.engine.executions.children(first.execution_id, "stage_modules", 1)
    for child in children:
        chain = fleet.engine.executions.chain(child.execution_id)
        forward = [c.step for c in chain if c.kind is CheckpointKind.STEP]
        assert forward == ["prepare", "compile", "stage", "inspect", "attest"]


def test_a_release_whose_flags_are_right_needs_one_attempt(fleet: Fleet) -> None:
    (only,) = fleet.run(example(flags=("--abi-compat=v2",)))
    assert only.status is Status.SUCCEEDED
    assert fleet.nothing_is_orphaned()


def test_the_same_version_is_not_promoted_twice(fleet: Fleet) -> None:
    request = example(flags=("--abi-compat=v2",))
    fleet.run(request)
    (again,) = fleet.run(request)
    assert again.status is not Status.SUCCEEDED
    assert again.error["code"] == "release.already-promoted"
    with fleet.session() as session:
        assert len(promotions.of_release(session, "storefront", "2026.1")) == 3
        assert locks.holder(session, "storefront") is None


def test_a_second_candidate_of_a_release_is_refused(fleet: Fleet) -> None:
    request = example()
    first = fleet.start(request)
    with pytest.raises(Suspended, match="children"):
        fleet.engine.run(fleet.queue.popleft())
    (second,) = fleet.run(request)[:1]
    assert second.error["code"] == "release.candidate-locked"
    assert fleet.line(first)[-1].status is Status.SUCCEEDED


def test_a_module_that_does_not_compile_undoes_the_release(fleet: Fleet, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "app.py").write_text("def f(:\n")
    modules = [*example().model_dump()["modules"], {"name": "broken", "directory": broken}]
    (only,) = fleet.run(example(modules=modules))
    assert only.error["code"] == "saga.children-failed"
    assert "app.py:1" in str(only.error)
    (attempt,) = fleet.attempts(only.execution_id)
    assert attempt.status is AttemptStatus.COMPENSATED
    assert fleet.staged_files() == []
    with fleet.session() as session:
        assert locks.holder(session, "storefront") is None
        candidate = attempts.compensated_candidate(session, only.execution_id)
    assert len(candidate.artifacts) == 3


def test_flags_that_no_plan_can_mend_end_the_line(fleet: Fleet) -> None:
    policy = {"allowed_flags": ("--abi-compat=v2",), "max_attempts": 1}
    (only,) = fleet.run(example(policy=policy))
    assert only.status not in (Status.SUCCEEDED, Status.CONTINUED)
    assert fleet.staged_files() == []
    assert fleet.nothing_is_orphaned()
