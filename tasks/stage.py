"""Stage: a module's archive in the staging store, made visible by its ledger row alone.

The archive is written before the first SQL statement, under a name that carries the epoch; row
and checkpoint then commit together, if the epoch is still the owner's. A writer that is refused
removes the file that it wrote: nobody else's has that name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import BinaryIO

import sqlalchemy as sa

from fencepost import FencepostError, TransactionalContext, faults, step
from ledger import archive, artifacts, database, sources
from ledger.models import ArtifactStatus
from ledger.staging import StagingStore
from ledger.vocabulary import CompiledModule, SourceFile, StagedModuleArtifact


@step(transactional=True)
def unstage(ctx: TransactionalContext, staged: StagedModuleArtifact) -> None:
    """Undo `stage`: remove the file, and mark the row. May be repeated.

    In this order: if it breaks off in between, the row still leads the next run to the file.
    """
    StagingStore().remove(staged.path)
    artifacts.mark(ctx.session, staged.step_key, ArtifactStatus.COMPENSATED)


@step(transactional=True, compensate=unstage, timeout=timedelta(minutes=10))
def stage(ctx: TransactionalContext, compiled: CompiledModule) -> StagedModuleArtifact:
    """Build the archive, and record it.

    Raises:
        ModuleFailedError: A source isn't what it was when it was prepared.
    """
    task = compiled.prepared.task
    store = StagingStore()
    path = store.path_for(
        lineage_id=task.lineage_id,
        attempt=task.attempt,
        module=task.module.name,
        version=compiled.prepared.version,
        epoch=ctx.epoch,
    )
    with _removed_if_refused(ctx, store, path):
        sha256, size = store.write(path, lambda stream: _write_archive(stream, compiled))
        faults.reach("stage.archive-written", module=task.module.name, attempt=task.attempt)
        staged = StagedModuleArtifact(
            attempt_id=task.attempt_id,
            lineage_id=task.lineage_id,
            attempt=task.attempt,
            module=task.module.name,
            version=compiled.prepared.version,
            requires=task.module.requires,
            flags=task.flags,
            execution_id=ctx.execution_id,
            step_key=ctx.step_key,
            epoch=ctx.epoch,
            path=path,
            sha256=sha256,
            size=size,
            build_digest=compiled.build_digest,
        )
        artifacts.record(ctx.session, staged)
    # An owner before this one may have died with its file written.
    store.remove_older_epochs(path, ctx.epoch)
    return staged


def _write_archive(stream: BinaryIO, compiled: CompiledModule) -> tuple[str, int]:
    task = compiled.prepared.task
    files = _files(compiled)
    manifest = archive.Manifest(
        module=task.module.name,
        version=compiled.prepared.version,
        requires=task.module.requires,
        flags=task.flags,
        source_digest=compiled.prepared.source_digest,
        build_digest=compiled.build_digest,
        files=tuple(file for file, _ in files),
    )
    contents = (
        (file, sources.read(task.module, file) if text is None else text.encode())
        for file, text in files
    )
    return archive.write(stream, manifest, contents)


def _files(compiled: CompiledModule) -> list[tuple[SourceFile, str | None]]:
    found: list[tuple[SourceFile, str | None]] = [
        (sources.describe(made.path, made.text.encode()), made.text) for made in compiled.generated
    ]
    found += [(file, None) for file in compiled.prepared.files]
    return sorted(found, key=lambda pair: pair[0].path)


@contextmanager
def _removed_if_refused(
    ctx: TransactionalContext, store: StagingStore, path: str
) -> Iterator[None]:
    # Once a commit was sent, its outcome may be unknown: the file then stays for the sweep.
    sent = False

    def commit_sent(_session: object) -> None:
        nonlocal sent
        sent = True

    def rolled_back(_session: object) -> None:
        if not sent:
            _discard(store, path)

    sa.event.listen(ctx.session, "before_commit", commit_sent)
    sa.event.listen(ctx.session, "after_rollback", rolled_back)
    try:
        yield
    except BaseException:
        _discard(store, path)
        raise


def _discard(store: StagingStore, path: str) -> None:
    # An earlier try of this very owner may have been committed without its knowing.
    try:
        with database.session() as session:
            recorded = path in artifacts.active_paths(session)
    except (FencepostError, sa.exc.SQLAlchemyError):
        return
    if not recorded:
        store.remove(path)
