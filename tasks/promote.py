"""Promote: publish all modules of a release at once, or none.

The files come first, as one directory that appears by a single rename; then the rows commit
together with the checkpoint. Published is what the rows name. See `ledger.publishing` for what
each crash in between leaves, and why this order needs no repair.
"""

from __future__ import annotations

from datetime import timedelta

from fencepost import TransactionalContext, faults, step
from ledger import artifacts, attempts, locks, promotions
from ledger.models import ArtifactStatus, AttemptStatus
from ledger.publishing import PublishStore, file_name, release_digest
from ledger.staging import StagingStore
from ledger.vocabulary import CheckedCandidate, PromotedModule, PromotedRelease


@step(transactional=True, timeout=timedelta(minutes=10))
def promote(ctx: TransactionalContext, candidate: CheckedCandidate) -> PromotedRelease:
    """Publish a candidate that has passed the gate, close its attempt, and free its lock.

    Raises:
        ArtifactDamagedError: A staged file isn't what was checked.
        AlreadyPromotedError: This version is out.
    """
    staged = [module.artifact for module in candidate.modules]
    digest = release_digest(candidate.release, candidate.version, staged)
    published = PublishStore()
    directory = published.directory_for(candidate.release, candidate.version, digest)
    store = StagingStore()
    published.put(directory, {store.locate(artifact.path): artifact for artifact in staged})
    faults.reach("promote.published", release=candidate.release, attempt=candidate.attempt)
    promoted = PromotedRelease(
        release=candidate.release,
        version=candidate.version,
        attempt_id=candidate.attempt_id,
        lineage_id=candidate.lineage_id,
        attempt=candidate.attempt,
        modules=tuple(
            PromotedModule(
                module=artifact.module,
                version=artifact.version,
                path=f"{directory}/{file_name(artifact)}",
                sha256=artifact.sha256,
                size=artifact.size,
            )
            for artifact in staged
        ),
        directory=directory,
        sha256=digest,
    )
    promotions.check_not_promoted(ctx.session, candidate.release, candidate.version)
    sources = {artifact.module: artifact.step_key for artifact in staged}
    promotions.record(ctx.session, ctx.token, promoted, sources)
    for artifact in staged:
        artifacts.mark(ctx.session, artifact.step_key, ArtifactStatus.PROMOTED)
    attempts.close(ctx.session, candidate.attempt_id, AttemptStatus.PROMOTED)
    locks.free(ctx.session, candidate.release, candidate.attempt_id)
    return promoted
