"""Lock: one candidate of a release at a time. The first step, so the last to be undone."""

from __future__ import annotations

from fencepost import TransactionalContext, step
from ledger import attempts, locks, promotions
from ledger.models import AttemptStatus
from ledger.publishing import PublishStore
from ledger.staging import StagingStore
from ledger.vocabulary import LockedCandidate, ReleaseRequest


@step(transactional=True)
def release_candidate_lock(ctx: TransactionalContext, candidate: LockedCandidate) -> None:
    """Undo `lock_candidate`: close the attempt, free the lock. May be repeated.

    Everything else is undone by now, and no earlier owner can commit any more, so what still
    lies in the attempt's folders was left by workers that died.
    """
    request = candidate.request
    store = StagingStore()
    folder = store.folder_for(candidate.lineage_id, request.attempt)
    store.sweep(ctx.session, folder=folder, older_than=None)
    PublishStore().sweep(ctx.session, release=request.name, older_than=None)
    attempts.close(ctx.session, candidate.execution_id, AttemptStatus.COMPENSATED)
    locks.free(ctx.session, request.name, candidate.execution_id)


@step(transactional=True, compensate=release_candidate_lock)
def lock_candidate(ctx: TransactionalContext, request: ReleaseRequest) -> LockedCandidate:
    """Take the release's lock, and open the attempt.

    Raises:
        CandidateLockedError: Another candidate of this release is under way.
        AlreadyPromotedError: This version is out.
    """
    candidate = LockedCandidate(
        execution_id=ctx.execution_id, lineage_id=ctx.lineage_id, request=request
    )
    locks.acquire(ctx.session, ctx.token, request.name, ctx.lineage_id)
    promotions.check_not_promoted(ctx.session, request.name, request.version)
    attempts.open_attempt(ctx.session, ctx.token, candidate)
    return candidate
