"""Prepare: a module's real metadata, read from its directory. Changes nothing."""

from __future__ import annotations

import tomllib
from datetime import timedelta

from pydantic import ValidationError

from fencepost import step
from ledger import sources
from ledger.vocabulary import ModuleTask, PreparedModule, SourceFile

PROJECT_FILE = "pyproject.toml"


@step(timeout=timedelta(minutes=5))
def prepare(task: ModuleTask) -> PreparedModule:
    """List a module's files with their digests, and find out its version.

    Raises:
        ModuleFailedError: The directory can't become an artifact; says what to do.
    """
    files = sources.scan(task.module)
    try:
        return PreparedModule(
            task=task,
            version=_version(task, files),
            files=files,
            source_digest=sources.digest_of(files),
        )
    except ValidationError as problem:
        raise sources.failed(
            task.module,
            "module.bad-version",
            f"its version can't be part of a file's name ({problem.errors()[0]['input']!r})",
            path=PROJECT_FILE,
            fix="use letters, digits, and . _ + - between them",
        ) from problem


def _version(task: ModuleTask, files: tuple[SourceFile, ...]) -> str:
    project = next((file for file in files if file.path == PROJECT_FILE), None)
    if project is None:
        return task.release_version
    try:
        data = tomllib.loads(sources.read(task.module, project).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise sources.failed(
            task.module,
            "module.bad-project-file",
            f"not TOML: {problem}",
            path=PROJECT_FILE,
            fix="correct that line",
        ) from problem
    table = data.get("project")
    version = table.get("version") if isinstance(table, dict) else None
    # A project without a static version is released under the release's own.
    return version if isinstance(version, str) else task.release_version
