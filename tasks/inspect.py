"""Inspect: open what was staged, and compare it with the ledger and with its own manifest."""

from __future__ import annotations

from datetime import timedelta

from fencepost import StepContext, step
from ledger import artifacts, database
from ledger.errors import ArtifactDamagedError
from ledger.staging import StagingStore
from ledger.unpacking import digest_of, open_archive
from ledger.vocabulary import InspectedArtifact, StagedModuleArtifact


@step(name="inspect", timeout=timedelta(minutes=5))
def inspect_artifact(ctx: StepContext, staged: StagedModuleArtifact) -> InspectedArtifact:
    """Check a staged archive as its readers will see it. Changes nothing.

    Raises:
        ArtifactDamagedError: File, ledger and manifest don't agree.
    """
    with database.session() as session:
        artifacts.check_recorded(session, staged)
    path = StagingStore().locate(staged.path)
    check_digest(staged)
    ctx.check()
    opened = open_archive(path)
    manifest = opened.manifest
    said = (manifest.module, manifest.version, manifest.flags, manifest.build_digest)
    if said != (staged.module, staged.version, staged.flags, staged.build_digest):
        raise ArtifactDamagedError(
            f"module {staged.module}: the manifest in {staged.path} is about something else",
            module=staged.module,
            path=staged.path,
        )
    return InspectedArtifact(
        artifact=staged,
        files=len(manifest.files),
        unpacked_size=opened.size,
        manifest_sha256=opened.manifest_sha256,
    )


def check_digest(staged: StagedModuleArtifact) -> None:
    """Compare a staged file's bytes with what was recorded.

    Raises:
        ArtifactDamagedError: It is missing, or has other bytes.
    """
    try:
        found = digest_of(StagingStore().locate(staged.path))
    except FileNotFoundError as problem:
        raise ArtifactDamagedError(
            f"module {staged.module}: the staged file {staged.path} is missing",
            module=staged.module,
            path=staged.path,
        ) from problem
    if found != (staged.sha256, staged.size):
        raise ArtifactDamagedError(
            f"module {staged.module}: {staged.path} has SHA-256 {found[0]} and {found[1]} bytes,"
            f" {staged.sha256} and {staged.size} were staged",
            module=staged.module,
            path=staged.path,
        )
