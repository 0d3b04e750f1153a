"""The staging store: a folder that all workers share.

A file is written under a name that carries its writer's epoch, and is visible by its ledger row
alone. Two owners of one step can't touch each other's file, so each may remove its own at any
time; a file without an active row is rubbish, whoever left it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeVar
from uuid import UUID

from sqlalchemy.orm import Session

from ledger import artifacts, files
from ledger.settings import FactorySettings

T = TypeVar("T")


class StagingStore:
    """Files below a root; all paths given and returned are relative to it, with slashes.

    Args:
        root: Made when it is first written to. By default that of the settings.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = (root or FactorySettings().staging_dir).resolve()

    def path_for(
        self, *, lineage_id: UUID, attempt: int, module: str, version: str, epoch: int
    ) -> str:
        """Where the owner with this epoch stages a module."""
        return f"{self.folder_for(lineage_id, attempt)}/{module}/{module}-{version}.e{epoch}.tar.gz"

    def folder_for(self, lineage_id: UUID, attempt: int) -> str:
        """The folder of all that one attempt stages."""
        return f"{lineage_id}/{attempt}"

    def locate(self, path: str) -> Path:
        """The absolute path of a file.

        Raises:
            ValueError: It would be outside of the root.
        """
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts or not parts.parts:
            raise ValueError(f"{path!r} is not a path inside the staging folder")
        return self.root / parts

    def write(self, path: str, write: Callable[[BinaryIO], T]) -> T:
        """Put a file there, whole and durable; returns what `write` returned."""
        return files.write_atomically(self.locate(path), write)

    def remove(self, path: str) -> bool:
        """Remove a file and the folders that this leaves empty. May be repeated.

        Returns:
            Whether it was there.
        """
        return files.remove(self.locate(path), root=self.root)

    def remove_older_epochs(self, path: str, epoch: int) -> list[str]:
        """Remove what owners before `epoch` left of the same file, unfinished ones included.

        They can't make it visible any more: the ledger refuses their epoch.
        """
        target = self.locate(path)
        stem, _, _ = target.name.rpartition(f".e{epoch}.")
        removed = []
        for old in range(1, epoch):
            for pattern in (f"{stem}.e{old}.tar.gz", f".{stem}.e{old}.tar.gz.*"):
                for found in target.parent.glob(pattern):
                    relative = found.relative_to(self.root).as_posix()
                    if self.remove(relative):
                        removed.append(relative)
        return removed

    def files(self, folder: str = "") -> Iterator[str]:
        """All files, unfinished ones included, below a folder."""
        start = self.locate(folder) if folder else self.root
        for found in files.walk(start):
            yield found.relative_to(self.root).as_posix()

    def orphans(self, session: Session, folder: str = "") -> list[str]:
        """Files without an active row: of failed writers, or of writers at work right now."""
        found = sorted(self.files(folder))
        active = artifacts.active_paths(session)
        return [path for path in found if path not in active]

    def sweep(
        self,
        session: Session,
        *,
        folder: str = "",
        older_than: timedelta | None = timedelta(hours=1),
    ) -> list[str]:
        """Remove orphans.

        Args:
            session: To read which files must stay.
            folder: Only below this one.
            older_than: Younger files may belong to a writer at work. None is right where no
                owner can commit any more.

        Returns:
            What was removed.
        """
        return [
            path
            for path in self.orphans(session, folder)
            if files.is_older(self.locate(path), older_than) and self.remove(path)
        ]
