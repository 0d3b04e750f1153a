"""A small disk for PostgreSQL's tables, which can be filled up.

A `tmpfs` in a mount namespace of this process's own: it is gone when the run is. That needs root
on Linux; elsewhere a run has no full disk, and says so.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from fencepost.testing._account import server_account

SIZE = 256 * 1024 * 1024
CLONE_NEWNS = 0x0002_0000
ENOSPC_SLICE = 64 * 1024


class SmallDisk:
    """A mounted disk of a quarter of a gigabyte.

    Attributes:
        folder: Where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self._mount = folder
        self.folder = folder / "tables"
        self._ballast = folder / "ballast"

    @classmethod
    def make(cls, stack: ExitStack) -> Self | None:
        """Mount one; None where that isn't allowed."""
        if sys.platform != "linux" or os.geteuid() != 0 or not _leave_namespace():
            return None
        folder = Path(tempfile.mkdtemp(prefix="chaos-disk-"))
        stack.callback(folder.rmdir)
        options = f"size={SIZE},mode=711"
        mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            return None
        # Lazily: the server may still have files open.
        stack.callback(
            lambda: subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)
        )
        disk = cls(folder)
        disk.folder.mkdir(mode=0o700)
        account = server_account()
        if account is not None:
            os.chown(disk.folder, account.uid, account.gid)
        return disk

    def fill(self) -> int:
        """Leave no room; returns how many bytes were free."""
        filled = 0
        with self._ballast.open("ab", buffering=0) as ballast:
            try:
                while True:
                    filled += ballast.write(b"\0" * ENOSPC_SLICE)
            except OSError:
                return filled

    def clear(self) -> None:
        """Make room again."""
        self._ballast.unlink(missing_ok=True)


def _leave_namespace() -> bool:
    """Give this process mounts of its own, so that nobody else sees ours."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        return False
    private = ["mount", "--make-rprivate", "/"]
    return subprocess.run(private, capture_output=True, check=False).returncode == 0
