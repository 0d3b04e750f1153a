"""Module directories, and the values that go through the module saga."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID, uuid4

from fencepost import FenceToken, StepContext
from ledger.vocabulary import CompiledModule, ModuleSpec, ModuleTask, PreparedModule
from tasks.compile import compile_module
from tasks.prepare import prepare

EXAMPLES = Path(__file__).parents[3] / "examples" / "release"


def context(step: str = "step", *, epoch: int = 1, execution_id: UUID | None = None) -> StepContext:
    """The context of a step whose lease holds."""
    identity = execution_id or uuid4()
    return StepContext(
        execution_id=identity,
        lineage_id=identity,
        root_id=identity,
        parent_id=None,
        step=step,
        visit=1,
        attempt=1,
        token=FenceToken(identity, epoch, "owner", f"{identity}:{step}:1"),
        saga_input=None,
        results={},
        lease_lost=lambda: False,
    )


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    """Files below a folder, by relative path."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return folder


def task_for(directory: Path, *flags: str, name: str = "module") -> ModuleTask:
    """A module saga's input."""
    attempt = uuid4()
    return ModuleTask(
        attempt_id=attempt,
        lineage_id=attempt,
        release="shop",
        release_version="1.0",
        attempt=1,
        module=ModuleSpec(name=name, directory=directory),
        flags=flags,
    )


def compiled(task: ModuleTask) -> CompiledModule:
    """Through the first two steps."""
    prepared: PreparedModule = prepare(task)
    result: CompiledModule = compile_module(context("compile"), prepared)
    return result
