"""One attempt at a release; a failed gate leads, by compensation and a plan, to the next."""

from __future__ import annotations

from fencepost import ErrorBranch, Saga, step
from ledger.errors import ReleaseGateFailedError
from ledger.release_checks import MAX_MODULES
from ledger.vocabulary import LockedCandidate, ModuleTask, ReleaseRequest
from saga.module import module
from tasks.gate import check_candidate, gate, record_check
from tasks.lock import lock_candidate
from tasks.planner import next_attempt, plan_recovery
from tasks.promote import promote

MODULES_AT_ONCE = 16


def module_tasks(candidate: LockedCandidate) -> list[ModuleTask]:
    """One task for each module, in the order of the release file."""
    request = candidate.request
    return [
        ModuleTask(
            attempt_id=candidate.execution_id,
            lineage_id=candidate.lineage_id,
            release=request.name,
            release_version=request.version,
            attempt=request.attempt,
            module=spec,
            flags=request.flags,
        )
        for spec in request.modules
    ]


release = (
    Saga("release", input=ReleaseRequest)
    .then(lock_candidate)
    .map(
        module,
        over=module_tasks,
        name="stage_modules",
        max_concurrency=MODULES_AT_ONCE,
        max_items=MAX_MODULES,
    )
    .then(check_candidate)
    .then(record_check)
    .then(gate)
    .pivot(promote)
    .on_error(
        ErrorBranch(ReleaseGateFailedError).then(plan_recovery).continue_as_new(step(next_attempt))
    )
)
