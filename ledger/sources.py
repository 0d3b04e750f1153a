"""A module's directory as data: which files it has, and what is in them.

What is left out: version control, caches, virtual environments, `.env` files (they hold secrets).
What is refused: symbolic links that leave the directory or lead to directories, files that are
neither regular nor links, and more than the limits below.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from ledger.errors import ModuleFailedError
from ledger.vocabulary import ModuleFailed, ModuleSpec, SourceFile

MAX_FILES = 5_000
MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_TOTAL_BYTES = 128 * 1024 * 1024
MAX_PATH_CHARACTERS = 200

IGNORED_DIRECTORIES = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".tox", ".nox"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".idea", ".vscode"}
)
IGNORED_FILES = frozenset({".DS_Store", ".env", "Thumbs.db"})
IGNORED_SUFFIXES = frozenset({".pyc", ".pyo", ".swp"})


def scan(module: ModuleSpec) -> tuple[SourceFile, ...]:
    """Read a module's directory; the result is sorted by path.

    Raises:
        ModuleFailedError: The directory is missing or empty, or something in it is refused.
    """
    root = module.directory
    if not root.is_dir():
        raise failed(
            module, "module.no-directory", f"{root} is not a directory", fix="correct its path"
        )
    files: list[SourceFile] = []
    total = 0
    for path in _walk(module, root):
        content = _read(module, root, path)
        total += len(content)
        if len(files) >= MAX_FILES or total > MAX_TOTAL_BYTES:
            raise failed(
                module,
                "module.too-large",
                f"more than {MAX_FILES} files or {MAX_TOTAL_BYTES} bytes",
                fix="point the module's path at its sources alone",
            )
        files.append(describe(path, content, executable=_executable(root / path)))
    if not files:
        raise failed(module, "module.empty", f"{root} has no files", fix="correct its path")
    return tuple(sorted(files, key=lambda file: file.path))


def read(module: ModuleSpec, file: SourceFile) -> bytes:
    """The content of a file that was scanned before.

    Raises:
        ModuleFailedError: It is not what it was.
    """
    content = _read(module, module.directory, file.path)
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise failed(
            module,
            "module.source-changed",
            "the file was changed while the release was under way",
            path=file.path,
            fix="release from a directory that nobody edits, such as a clean checkout",
        )
    return content


def describe(path: str, content: bytes, *, executable: bool = False) -> SourceFile:
    """A file's metadata."""
    digest = hashlib.sha256(content).hexdigest()
    return SourceFile(path=path, size=len(content), sha256=digest, executable=executable)


def digest_of(files: Iterable[SourceFile]) -> str:
    """One digest for paths, modes and contents, whatever the order given."""
    lines = sorted([file.path, file.executable, file.sha256] for file in files)
    return hashlib.sha256(json.dumps(lines, separators=(",", ":")).encode()).hexdigest()


def failed(
    module: ModuleSpec,
    code: str,
    problem: str,
    *,
    fix: str,
    path: str | None = None,
    line: int | None = None,
) -> ModuleFailedError:
    """The error to raise for a module's content."""
    return ModuleFailedError(
        ModuleFailed(module=module.name, code=code, problem=problem, path=path, line=line, fix=fix)
    )


def _walk(module: ModuleSpec, root: Path) -> Iterator[str]:
    def refuse(problem: OSError) -> None:
        raise failed(
            module, "module.unreadable", str(problem), fix="let the worker's user read it"
        ) from problem

    for folder, directories, names in os.walk(root, onerror=refuse):
        here = Path(folder)
        directories[:] = sorted(d for d in directories if d not in IGNORED_DIRECTORIES)
        for name in directories:
            if (here / name).is_symlink():
                raise failed(
                    module,
                    "module.linked-directory",
                    "a symbolic link to a directory isn't followed",
                    path=(here / name).relative_to(root).as_posix(),
                    fix="copy what it links to, or remove the link",
                )
        for name in names:
            if name in IGNORED_FILES or Path(name).suffix in IGNORED_SUFFIXES:
                continue
            yield _usable_path(module, (here / name).relative_to(root).as_posix())


def _usable_path(module: ModuleSpec, path: str) -> str:
    try:
        path.encode()
        usable = path.isprintable() and "\\" not in path and len(path) <= MAX_PATH_CHARACTERS
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise failed(
            module,
            "module.bad-path",
            f"{path!r} can't be archived everywhere",
            fix=f"printable UTF-8, no backslashes, at most {MAX_PATH_CHARACTERS} characters",
        )
    return path


def _read(module: ModuleSpec, root: Path, path: str) -> bytes:
    target = root / path
    try:
        resolved = target.resolve(strict=True)
        if not resolved.is_relative_to(root.resolve()):
            raise failed(
                module,
                "module.link-outside",
                f"the symbolic link leaves the module's directory, to {resolved}",
                path=path,
                fix="copy the file into the module",
            )
        status = resolved.stat()
        if not stat.S_ISREG(status.st_mode):
            raise failed(
                module,
                "module.special-file",
                "neither a regular file nor a link to one",
                path=path,
                fix="remove it from the module",
            )
        with resolved.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, RuntimeError) as problem:
        raise failed(
            module,
            "module.unreadable",
            f"can't be read: {problem}",
            path=path,
            fix="remove it, or let the worker's user read it",
        ) from problem
    if len(content) > MAX_FILE_BYTES:
        raise failed(
            module,
            "module.too-large",
            f"the file is over {MAX_FILE_BYTES} bytes",
            path=path,
            fix="keep it out of the module",
        )
    return content


def _executable(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXUSR)
