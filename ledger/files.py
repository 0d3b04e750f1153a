"""Files that are whole or absent, also after a power cut."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, TypeVar

T = TypeVar("T")

PARTIAL_SUFFIX = ".part"
_MKDIR_RACES = 5


def write_atomically(target: Path, write: Callable[[BinaryIO], T]) -> T:
    """Write a file under a temporary name beside its own, sync it, and rename it into place.

    Args:
        target: Replaced if it exists. Its folder is made.
        write: Is given the open file.

    Returns:
        What `write` returned.
    """
    partial = target.with_name(f".{target.name}.{secrets.token_hex(6)}{PARTIAL_SUFFIX}")
    try:
        with _open_new(partial) as stream:
            result = write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_directory(target.parent)
    return result


def sync_directory(folder: Path) -> None:
    """Make renames and removals in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(target: Path, *, root: Path) -> bool:
    """Remove a file, and the folders up to `root` that this leaves empty.

    Returns:
        Whether the file was there.
    """
    try:
        target.unlink()
        removed = True
    except (FileNotFoundError, NotADirectoryError):
        removed = False
    remove_empty_folders(target.parent, root=root)
    return removed


def remove_empty_folders(folder: Path, *, root: Path) -> None:
    """Remove a folder and those above it, below `root`, as long as they are empty."""
    while folder != root and folder.is_relative_to(root):
        with suppress(FileNotFoundError):
            try:
                folder.rmdir()
            except OSError:
                return
        folder = folder.parent


def is_older(path: Path, age: timedelta | None) -> bool:
    """Whether a file or folder was last changed that long ago; None: however young it is.

    What isn't there (any more) isn't older.
    """
    try:
        changed = path.stat().st_mtime
    except FileNotFoundError:
        return False
    return age is None or changed <= time.time() - age.total_seconds()


def walk(folder: Path) -> Iterator[Path]:
    """All files below a folder; what vanishes meanwhile is left out."""
    for path, _, names in os.walk(folder):
        yield from (Path(path) / name for name in sorted(names))


def _open_new(path: Path) -> BinaryIO:
    for _ in range(_MKDIR_RACES):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another worker that cleans up may remove the empty folder before the file is there.
        with suppress(FileNotFoundError):
            return path.open("xb")
    raise FileNotFoundError(f"{path.parent} is removed as often as it is made")
