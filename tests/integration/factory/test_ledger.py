"""The ledger's functions on both databases. Each joins its caller's transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost import FencepostError, FenceToken
from ledger import artifacts, attempts, database, diagnostics, locks, plans, promotions
from ledger.errors import (
    AlreadyPromotedError,
    ArtifactDamagedError,
    AttemptNotFoundError,
    CandidateLockedError,
)
from ledger.models import ArtifactStatus, AttemptStatus, AttestationStatus
from ledger.policy import Violation
from ledger.vocabulary import (
    AttestedModule,
    CheckedCandidate,
    CheckReport,
    GateSpec,
    LockedCandidate,
    ModuleSpec,
    PromotedModule,
    PromotedRelease,
    ReleaseRequest,
    StagedModuleArtifact,
)

DIGEST = "0" * 64


@pytest.fixture
def session(ledger_url: str) -> Iterator[Session]:
    with Session(database.engine_for(ledger_url)) as opened:
        yield opened


def token(step: str = "lock", execution_id: UUID | None = None, epoch: int = 1) -> FenceToken:
    identity = execution_id or uuid4()
    return FenceToken(identity, epoch, "owner", f"{identity}:{step}:1")


def candidate(number: int = 1, lineage_id: UUID | None = None, *flags: str) -> LockedCandidate:
    execution_id = uuid4()
    return LockedCandidate(
        execution_id=execution_id,
        lineage_id=lineage_id or execution_id,
        request=ReleaseRequest(
            name="shop",
            version="1.0",
            modules=(ModuleSpec(name="a", directory=Path("/a")),),
            gate=GateSpec(check=Path("/check.py")),
            attempt=number,
            flags=flags,
        ),
    )


def opened(session: Session, *arguments: object) -> LockedCandidate:
    made = candidate(*arguments)  # type: ignore[arg-type]
    attempts.open_attempt(session, token(execution_id=made.execution_id), made)
    return made


def staged(of: LockedCandidate, module: str = "a", epoch: int = 1) -> StagedModuleArtifact:
    execution_id = uuid4()
    return StagedModuleArtifact(
        attempt_id=of.execution_id,
        lineage_id=of.lineage_id,
        attempt=of.request.attempt,
        module=module,
        version="2.0",
        requires=(),
        flags=of.request.flags,
        execution_id=execution_id,
        step_key=f"{execution_id}:stage:1",
        epoch=epoch,
        path=f"{of.lineage_id}/1/{module}/{module}-2.0.e{epoch}.tar.gz",
        sha256=DIGEST,
        size=7,
        build_digest=DIGEST,
    )


def test_an_attempt_is_opened_and_closed(session: Session) -> None:
    made = opened(session, 1, None, "--opt-level=3")
    session.commit()
    row = attempts.get(session, made.execution_id)
    assert (row.status, row.flags, row.closed_at) == (AttemptStatus.ACTIVE, ["--opt-level=3"], None)
    assert row.opened_at.tzinfo == UTC
    assert attempts.request_of(session, made.execution_id) == made.request

    attempts.close(session, made.execution_id, AttemptStatus.COMPENSATED)
    session.refresh(row)
    first_end = row.closed_at
    attempts.close(session, made.execution_id, AttemptStatus.COMPENSATED)
    session.refresh(row)
    assert (row.status, row.closed_at) == (AttemptStatus.COMPENSATED, first_end)


def test_functions_join_their_callers_transaction(session: Session) -> None:
    made = opened(session)
    locks.acquire(session, token(execution_id=made.execution_id), "shop", made.lineage_id)
    artifacts.record(session, staged(made))
    session.rollback()
    assert locks.holder(session, "shop") is None
    with pytest.raises(AttemptNotFoundError):
        attempts.get(session, made.execution_id)


def test_attempts_of_a_line_are_numbered_once(session: Session) -> None:
    first = opened(session)
    second = opened(session, 2, first.lineage_id)
    assert [a.execution_id for a in attempts.of_lineage(session, first.lineage_id)] == [
        first.execution_id,
        second.execution_id,
    ]
    assert len(attempts.of_release(session, "shop")) == 2
    with pytest.raises(sa.exc.IntegrityError):
        opened(session, 2, first.lineage_id)


def test_a_compensated_candidate_tells_what_was_tried(session: Session) -> None:
    first = opened(session, 1, None, "--opt-level=3")
    second = opened(session, 2, first.lineage_id, "--opt-level=2")
    artifact = staged(second)
    artifacts.record(session, artifact)
    with pytest.raises(AttemptNotFoundError, match="is ACTIVE"):
        attempts.compensated_candidate(session, second.execution_id)
    attempts.close(session, second.execution_id, AttemptStatus.COMPENSATED)
    session.expire_all()
    undone = attempts.compensated_candidate(session, second.execution_id)
    assert undone.tried_flags == (("--opt-level=3",), ("--opt-level=2",))
    assert undone.artifacts == (artifact,)


def test_a_step_stages_once(session: Session) -> None:
    made = opened(session)
    artifact = staged(made)
    artifacts.record(session, artifact)
    session.flush()
    artifacts.record(session, artifact.model_copy(update={"epoch": 2, "path": "other"}))
    with pytest.raises(sa.exc.IntegrityError):
        session.flush()


def test_an_artifact_must_be_what_the_ledger_has(session: Session) -> None:
    artifact = staged(opened(session))
    with pytest.raises(ArtifactDamagedError, match="nothing"):
        artifacts.check_recorded(session, artifact)
    artifacts.record(session, artifact)
    artifacts.check_recorded(session, artifact)
    for change in ({"sha256": "1" * 64}, {"size": 8}, {"path": "elsewhere"}):
        with pytest.raises(ArtifactDamagedError):
            artifacts.check_recorded(session, artifact.model_copy(update=change))
    assert artifacts.active_paths(session) == {artifact.path}
    artifacts.mark(session, artifact.step_key, ArtifactStatus.COMPENSATED)
    artifacts.mark(session, artifact.step_key, ArtifactStatus.COMPENSATED)
    session.expire_all()
    assert artifacts.active_paths(session) == set()
    with pytest.raises(ArtifactDamagedError, match="COMPENSATED"):
        artifacts.check_recorded(session, artifact)


def test_an_attestation_is_withdrawn_and_kept(session: Session) -> None:
    artifact = staged(opened(session))
    artifacts.record(session, artifact)
    by = token("attest", artifact.execution_id)
    artifacts.attest(session, by, artifact, {"made": "well"}, DIGEST)
    for _ in range(2):
        artifacts.withdraw(session, by.step_key)
    session.expire_all()
    (row,) = artifacts.attestations(session, artifact.attempt_id)
    assert (row.statement, row.status) == ({"made": "well"}, AttestationStatus.COMPENSATED)


def test_the_lock_is_held_by_one_line(session: Session) -> None:
    mine = token()
    locks.acquire(session, mine, "shop", mine.execution_id)
    locks.acquire(session, replace(mine, epoch=2), "shop", mine.execution_id)
    session.commit()
    with pytest.raises(CandidateLockedError, match=str(mine.execution_id)):
        locks.acquire(session, token(), "shop", uuid4())
    locks.free(session, "shop", uuid4())
    held = locks.holder(session, "shop")
    assert held is not None
    assert (held.execution_id, held.epoch) == (mine.execution_id, 2)
    for _ in range(2):
        locks.free(session, "shop", mine.execution_id)
    session.expire_all()
    assert locks.holder(session, "shop") is None


def test_the_next_attempt_of_a_line_takes_the_lock_over(session: Session) -> None:
    first, second = token(), token()
    locks.acquire(session, first, "shop", first.execution_id)
    locks.acquire(session, second, "shop", first.execution_id)
    held = locks.holder(session, "shop")
    assert held is not None
    assert held.execution_id == second.execution_id


def test_of_many_that_want_the_lock_at_once_one_gets_it(ledger_url: str) -> None:
    wanting = 6
    barrier = threading.Barrier(wanting)

    def want(_: int) -> bool:
        mine = token()
        barrier.wait(timeout=30)
        try:
            with database.session(ledger_url) as own:
                locks.acquire(own, mine, "shop", mine.execution_id)
        except CandidateLockedError:
            return False
        return True

    with ThreadPoolExecutor(wanting) as threads:
        assert sum(threads.map(want, range(wanting))) == 1


def test_evidence_is_recorded_with_what_it_is_about(session: Session) -> None:
    made = opened(session)
    artifact = staged(made)
    by = token("record_check", made.execution_id)
    checked = CheckedCandidate(
        attempt_id=made.execution_id,
        lineage_id=made.lineage_id,
        release="shop",
        version="1.0",
        attempt=1,
        modules=(
            AttestedModule(artifact=artifact, statement_step_key="k", statement_sha256=DIGEST),
        ),
        report=CheckReport(
            command=("python", "check.py"),
            exit_code=None,
            timed_out=True,
            duration_ms=5,
            stdout="",
            stderr="wire ABI\ufffd",
            stdout_bytes=0,
            stderr_bytes=1 << 40,
        ),
        diagnostics_id=diagnostics.diagnostics_id("some step"),
    )
    diagnostics.record(session, by, checked)
    session.commit()
    (row,) = diagnostics.of_attempt(session, made.execution_id)
    assert row is diagnostics.get(session, diagnostics.diagnostics_id("some step"))
    assert (row.passed, row.exit_code, row.timed_out, row.stderr) == (
        False,
        None,
        True,
        "wire ABI\ufffd",
    )
    assert row.artifacts[0]["sha256"] == DIGEST
    session.expunge_all()
    diagnostics.record(session, by, checked)
    with pytest.raises(sa.exc.IntegrityError):
        session.flush()


def test_answers_of_the_planner_are_kept_by_turn(session: Session) -> None:
    made = opened(session)
    by = token("plan_recovery", made.execution_id)
    refusal = Violation("plan.no-op", "added_flags", "the plan changes nothing")
    for turn, violations in ((1, [refusal]), (2, [])):
        plans.record(
            session,
            by,
            attempt_id=made.execution_id,
            turn=turn,
            model="offline",
            answer={"root_cause": "abi"},
            violations=violations,
            tokens_in=10,
            tokens_out=3,
        )
    refused, accepted = plans.of_attempt(session, made.execution_id)
    assert (refused.accepted, accepted.accepted) == (False, True)
    assert refused.violations[0]["code"] == "plan.no-op"


def test_a_version_is_promoted_once(session: Session) -> None:
    made = opened(session)
    promoted = PromotedRelease(
        release="shop",
        version="1.0",
        attempt_id=made.execution_id,
        lineage_id=made.lineage_id,
        attempt=1,
        modules=tuple(
            PromotedModule(
                module=name, version="2", path=f"shop/1.0-00/{name}.gz", sha256=DIGEST, size=1
            )
            for name in "ab"
        ),
        directory="shop/1.0-00",
        sha256=DIGEST,
    )
    by = token("promote", made.execution_id)
    promotions.check_not_promoted(session, "shop", "1.0")
    promotions.record(session, by, promoted, {"a": "x", "b": "y"})
    session.commit()
    assert promotions.published_directories(session) == {"shop/1.0-00"}
    assert [row.module for row in promotions.of_release(session, "shop", "1.0")] == ["a", "b"]
    promotions.check_not_promoted(session, "shop", "1.1")
    with pytest.raises(AlreadyPromotedError, match=str(made.execution_id)):
        promotions.check_not_promoted(session, "shop", "1.0")
    with pytest.raises(sa.exc.IntegrityError):
        promotions.record(session, by, promoted, {"a": "x", "b": "y"})


def test_an_artifact_needs_its_attempt(session: Session) -> None:
    artifacts.record(session, staged(candidate()))
    with pytest.raises(sa.exc.IntegrityError):
        session.flush()


def test_a_status_that_does_not_exist_is_refused_by_the_schema(session: Session) -> None:
    made = opened(session)
    with pytest.raises(sa.exc.IntegrityError):
        session.execute(
            sa.text("UPDATE ledger_attempts SET status = 'LOST' WHERE release = :name"),
            {"name": made.request.name},
        )


def test_a_session_of_its_own_commits_or_rolls_back(ledger_url: str) -> None:
    mine = token()
    with database.session() as own:
        locks.acquire(own, mine, "shop", mine.execution_id)

    def fail() -> None:
        with database.session() as own:
            locks.free(own, "shop", mine.execution_id)
            raise FencepostError("no")

    with pytest.raises(FencepostError, match="no"):
        fail()
    with database.session(ledger_url) as own:
        assert locks.holder(own, "shop") is not None
