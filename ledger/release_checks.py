"""What can be wrong with a release beyond the shape of its file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from ledger import flags as build_flags
from ledger.vocabulary import SAFE_NAME_PATTERN

MAX_MODULES = 256

_SAFE_NAME = re.compile(SAFE_NAME_PATTERN)
_NAME_FIX = "use 1 to 64 letters, digits, and . _ + - between them"


class ModuleRow(NamedTuple):
    """A module as far as it could be read: position in the file (from 0), and its fields."""

    number: int
    name: str | None
    path: str | None
    requires: Sequence[str]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        field: Where, as `module[0].path`.
        problem: What is wrong, to be read after the field.
        fix: What to do.
    """

    field: str
    problem: str
    fix: str


def check_name(field: str, name: str) -> Iterator[Finding]:
    """Names become parts of paths."""
    if not _SAFE_NAME.fullmatch(name) or ".." in name:
        yield Finding(field, f"{name!r} can't be part of a path", _NAME_FIX)


def check_flags(field: str, flags: Sequence[str]) -> Iterator[Finding]:
    """Flags must be usable, and given once."""
    for number, flag in enumerate(flags):
        problem = build_flags.problem_with(flag)
        if problem:
            yield Finding(f"{field}[{number}]", problem, "write it as --name or --name=value")
    for name in build_flags.conflicts(flags):
        yield Finding(field, f"{name} is given more than once", "keep one of them")


def check_allowed(field: str, allowed: Sequence[str]) -> Iterator[Finding]:
    """Entries of a policy are flags, or `--name=*`."""
    for number, entry in enumerate(allowed):
        concrete = entry.removesuffix("=*")
        problem = None if concrete != entry else build_flags.problem_with(entry)
        if problem or not concrete.startswith("--"):
            yield Finding(
                f"{field}[{number}]",
                problem or f"{entry!r} is not a flag",
                "write an exact flag, or --name=* for any value",
            )


def check_script(script: Path) -> Iterator[Finding]:
    """The check must be there, and be a program."""
    if not script.is_file():
        yield Finding("gate.check", f"there is no file {script}", "correct the path")
    elif script.suffix != ".py" and not os.access(script, os.X_OK):
        yield Finding(
            "gate.check",
            f"{script} is neither a .py file nor executable",
            f"run `chmod +x {script.name}`",
        )


def check_modules(folder: Path, modules: Sequence[ModuleRow]) -> Iterator[Finding]:
    """Names, directories, and what the modules require of each other."""
    if len(modules) > MAX_MODULES:
        yield Finding("module", f"{len(modules)} are too many", f"keep to {MAX_MODULES}")
    yield from _check_module_names(modules)
    known = ", ".join(row.name for row in modules if row.name is not None)
    for row in modules:
        if row.path is not None and not (folder / row.path).is_dir():
            problem = f"there is no directory {(folder / row.path).resolve()}"
            yield Finding(f"module[{row.number}].path", problem, "correct the path")
        for required in row.requires:
            if all(required != other.name for other in modules):
                problem = f"{required!r} is not a module of this release"
                yield Finding(f"module[{row.number}].requires", problem, f"name one of: {known}")
    yield from _check_cycles(modules)


def _check_module_names(modules: Sequence[ModuleRow]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for row in modules:
        if row.name is None:
            continue
        yield from check_name(f"module[{row.number}].name", row.name)
        earlier = first.setdefault(row.name.casefold(), row.number)
        if earlier != row.number:
            yield Finding(
                f"module[{row.number}].name",
                f"{row.name!r} is the name of module[{earlier}] too (without regard to case)",
                "rename one of them",
            )


def _check_cycles(modules: Sequence[ModuleRow]) -> Iterator[Finding]:
    graph = {row.name: set(row.requires) for row in modules if row.name is not None}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as problem:
        cycle = " -> ".join(reversed(problem.args[1]))
        fix = "remove one of these from a module's requires"
        yield Finding("module.requires", f"the modules require each other: {cycle}", fix)
