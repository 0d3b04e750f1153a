"""The gate: do the staged modules work together?

Three steps, so that each has one kind of effect: `check_candidate` runs the check and changes
nothing; `record_check` commits its evidence together with a checkpoint, under the fence;
`gate` decides from the recorded evidence, and its error rolls nothing back.
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

from fencepost import StepContext, TransactionalContext, step
from ledger import artifacts, database, diagnostics
from ledger.errors import ReleaseGateFailedError
from ledger.staging import StagingStore
from ledger.unpacking import open_archive
from ledger.vocabulary import AttestedModule, CheckedCandidate, CheckReport
from tasks.checking import command_for, run_check
from tasks.inspect import check_digest
from tasks.lock import lock_candidate


@step(timeout=timedelta(minutes=40))
def check_candidate(ctx: StepContext, modules: list[AttestedModule]) -> CheckedCandidate:
    """Unpack all archives beside each other, and run the release's check on them.

    Raises:
        ArtifactDamagedError: An archive isn't what the ledger says.
    """
    candidate = ctx.result_of(lock_candidate)
    request = candidate.request
    _check_against_ledger(modules)
    with tempfile.TemporaryDirectory(prefix="release-check-") as scratch:
        unpacked = Path(scratch) / "modules"
        home = Path(scratch) / "home"
        home.mkdir()
        for module in modules:
            ctx.check()
            _unpack(module, unpacked)
        report = run_check(
            command_for(request.gate.check, unpacked),
            folder=unpacked,
            home=home,
            timeout=request.gate.timeout,
            still_wanted=ctx.check,
        )
    return CheckedCandidate(
        attempt_id=candidate.execution_id,
        lineage_id=candidate.lineage_id,
        release=request.name,
        version=request.version,
        attempt=request.attempt,
        modules=tuple(modules),
        report=report,
        diagnostics_id=diagnostics.diagnostics_id(ctx.step_key),
    )


@step(transactional=True)
def record_check(ctx: TransactionalContext, candidate: CheckedCandidate) -> CheckedCandidate:
    """Keep the evidence. It has no compensation: what happened stays on record."""
    diagnostics.record(ctx.session, ctx.token, candidate)
    return candidate


@step
def gate(candidate: CheckedCandidate) -> CheckedCandidate:
    """Let a candidate pass only if its check did.

    Raises:
        ReleaseGateFailedError: Its fields lead to the diagnostics.
    """
    report = candidate.report
    if report.passed:
        return candidate
    reason = _reason(report)
    raise ReleaseGateFailedError(
        f"{candidate.release} {candidate.version}, attempt {candidate.attempt}: the integration"
        f" check {reason}",
        diagnostics_id=str(candidate.diagnostics_id),
        attempt_id=str(candidate.attempt_id),
        release=candidate.release,
        version=candidate.version,
        attempt=candidate.attempt,
        exit_code=report.exit_code,
        reason=reason,
    )


def _check_against_ledger(modules: list[AttestedModule]) -> None:
    with database.session() as session:
        for module in modules:
            artifacts.check_recorded(session, module.artifact)


def _unpack(module: AttestedModule, unpacked: Path) -> None:
    check_digest(module.artifact)
    folder = unpacked / module.artifact.module
    folder.mkdir(parents=True)
    open_archive(StagingStore().locate(module.artifact.path), into=folder)


def _reason(report: CheckReport) -> str:
    if report.timed_out:
        return f"was stopped at its timeout, after {report.duration_ms} ms"
    if report.exit_code is None:
        return "could not be started"
    if report.exit_code < 0:
        return f"was killed by signal {-report.exit_code}"
    return f"ended with exit code {report.exit_code}"
