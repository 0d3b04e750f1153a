"""The publish store: where a promoted release's archives are read from.

The directory `<release>/<version>-<digest>` holds all modules of a release; its name is derived
from their digests. The order is: copy into `<release>/.incoming-...`, sync, rename the whole
directory to its name, then commit the promotion rows. What the rows don't name isn't published:

- crash before the rename: an incomplete directory; the next owner copies again;
- crash between rename and commit: the next owner finds the directory, checks it, and uses it;
- a refused writer leaves at most a directory with the very content that its successor publishes,
  so it must not remove it, and need not;
- crash after the commit: nothing is left to do.

The other order (rows first) would need a repair step: until it ran, the ledger would name files
that aren't there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from sqlalchemy.orm import Session

from ledger import files, promotions
from ledger.errors import ArtifactDamagedError
from ledger.settings import FactorySettings
from ledger.unpacking import digest_of
from ledger.vocabulary import StagedModuleArtifact

INCOMING = ".incoming-"
_NAME_DIGITS = 16


def release_digest(release: str, version: str, modules: Iterable[StagedModuleArtifact]) -> str:
    """The identity of a release: its names and the digests of its archives."""
    parts = sorted([m.module, m.version, m.sha256] for m in modules)
    text = json.dumps([release, version, parts], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def file_name(artifact: StagedModuleArtifact) -> str:
    """The published name of an archive: without the epoch of who staged it."""
    return f"{artifact.module}-{artifact.version}.tar.gz"


class PublishStore:
    """Directories below a root; paths given and returned are relative to it, with slashes.

    Args:
        root: Made when it is first written to. By default that of the settings.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = (root or FactorySettings().publish_dir).resolve()

    def directory_for(self, release: str, version: str, digest: str) -> str:
        """Where a release of this digest is published."""
        return f"{release}/{version}-{digest[:_NAME_DIGITS]}"

    def put(self, directory: str, sources: Mapping[Path, StagedModuleArtifact]) -> None:
        """Make a directory with all archives appear at once. May be repeated, and raced.

        Args:
            directory: From `directory_for`.
            sources: Each staged file with what it must be.

        Raises:
            ArtifactDamagedError: A staged or an already published file has another digest.
        """
        target = self.root / directory
        if target.is_dir():
            self._check(target, sources.values())
            return
        incoming = target.with_name(f"{INCOMING}{target.name}-{uuid4().hex}")
        try:
            incoming.mkdir(parents=True)
            for source, artifact in sources.items():
                _copy(source, incoming / file_name(artifact), artifact)
            files.sync_directory(incoming)
            self._move(incoming, target)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
        self._check(target, sources.values())

    def _move(self, incoming: Path, target: Path) -> None:
        try:
            incoming.rename(target)
        except OSError:
            # Somebody else was first, with the same content: the name says so.
            if not target.is_dir():
                raise
        files.sync_directory(target.parent)
        files.sync_directory(self.root)

    def _check(self, target: Path, artifacts: Iterable[StagedModuleArtifact]) -> None:
        expected = {file_name(artifact): artifact for artifact in artifacts}
        found = {path.name for path in target.iterdir()}
        if found != set(expected):
            raise ArtifactDamagedError(
                f"{target} holds {sorted(found)}, not {sorted(expected)}: move it away",
                path=str(target),
            )
        for name, artifact in expected.items():
            if digest_of(target / name) != (artifact.sha256, artifact.size):
                raise ArtifactDamagedError(
                    f"{target / name} isn't the archive {artifact.sha256}: move its folder away",
                    path=str(target / name),
                    module=artifact.module,
                )

    def orphans(self, session: Session, release: str | None = None) -> list[str]:
        """Directories without promotion rows: prepared and not committed, or not yet.

        Args:
            session: To read which directories must stay.
            release: Only of this one.
        """
        if release is not None:
            names = [release]
        else:
            names = sorted(p.name for p in self.root.iterdir()) if self.root.is_dir() else []
        found = [
            f"{name}/{path.name}"
            for name in names
            if (self.root / name).is_dir()
            for path in sorted((self.root / name).iterdir())
        ]
        published = promotions.published_directories(session)
        return [directory for directory in found if directory not in published]

    def sweep(
        self,
        session: Session,
        *,
        release: str | None = None,
        older_than: timedelta | None = timedelta(hours=1),
    ) -> list[str]:
        """Remove orphans.

        Args:
            session: As for `orphans`.
            release: Only of this one.
            older_than: Younger ones may belong to a promotion at work. None is right where no
                owner can commit any more.

        Returns:
            What was removed.
        """
        removed = []
        for directory in self.orphans(session, release):
            target = self.root / directory
            if files.is_older(target, older_than):
                shutil.rmtree(target, ignore_errors=True)
                files.remove_empty_folders(target.parent, root=self.root)
                removed.append(directory)
        return removed


def _copy(source: Path, target: Path, artifact: StagedModuleArtifact) -> None:
    def copy(stream: BinaryIO) -> None:
        with source.open("rb") as original:
            shutil.copyfileobj(original, stream)

    try:
        files.write_atomically(target, copy)
    except FileNotFoundError as problem:
        raise ArtifactDamagedError(
            f"module {artifact.module}: the staged file {artifact.path} is missing",
            path=artifact.path,
            module=artifact.module,
        ) from problem
    if digest_of(target) != (artifact.sha256, artifact.size):
        raise ArtifactDamagedError(
            f"module {artifact.module}: the staged file {artifact.path} isn't what was staged",
            path=artifact.path,
            module=artifact.module,
        )
