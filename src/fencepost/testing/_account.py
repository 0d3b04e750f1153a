"""PostgreSQL refuses to run as root: find another account, and files that it can reach."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path

from fencepost.testing._process import Account, ServerError


def server_account() -> Account | None:
    """An unprivileged account when this process is root, else None (keep the own one)."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_uid, entry.pw_gid)
    raise ServerError("PostgreSQL cannot run as root, and there is no account `nobody` to use")


def reachable(path: Path, account: Account | None) -> bool:
    """Whether the account may enter the folder and every folder above it."""
    if account is None:
        return True
    return all(
        enterable(folder.stat(), account) for folder in (path, *path.parents) if folder.exists()
    )


def enterable(status: os.stat_result, account: Account) -> bool:
    """Whether mode and ownership allow the account to enter; the first class that fits decides."""
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def private_folder(account: Account | None) -> Path:
    """A new temporary folder that belongs to the account and that it can reach.

    Raises:
        ServerError: No folder for temporary files is open to the account.
    """
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108 - the folder is made by mkdtemp
        if Path(base).is_dir() and reachable(Path(base).resolve(), account):
            folder = Path(tempfile.mkdtemp(prefix="fencepost-pg-", dir=base)).resolve()
            if account is not None:
                os.chown(folder, account.uid, account.gid)
            return folder
    raise ServerError("no folder for temporary files is open to the account that runs PostgreSQL")


def copy_programs(package: Path, target: Path) -> Path:
    """Copy PostgreSQL's programs and libraries out of a folder that the account cannot enter.

    The folders keep their places beside each other, because the programs find their libraries
    by relative paths.

    Returns:
        The copied package folder.
    """
    ignored = shutil.ignore_patterns("include", "*.a", "pgxs", "__pycache__")
    copied = target / package.name
    shutil.copytree(package, copied, ignore=ignored, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    return copied
