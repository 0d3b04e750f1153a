"""Reading `release.toml`: everything that is wrong at once, each with its field and the fix."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fencepost import FencepostError
from ledger import release_checks
from ledger.release_checks import Finding, ModuleRow
from ledger.vocabulary import GateSpec, ModuleSpec, ReleasePolicy, ReleaseRequest

EXAMPLE = '[release]\nname = "shop"\nversion = "1.0"'


class ReleaseFileError(FencepostError):
    """A release file that can't be used. Nothing was written.

    Attributes:
        findings: All that is wrong. The field `findings` has them as JSON.
    """

    code = "release.invalid-file"

    def __init__(self, path: Path, findings: list[Finding]) -> None:
        lines = "".join(f"\n  {f.field}: {f.problem}\n    fix: {f.fix}" for f in findings)
        super().__init__(
            f"{path} can't be used:{lines}",
            path=str(path),
            findings=[{"field": f.field, "problem": f.problem, "fix": f.fix} for f in findings],
        )
        self.findings = findings


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ReleaseTable(_Table):
    """`[release]`."""

    name: str
    version: str
    flags: list[str] = []


class PolicyTable(_Table):
    """`[policy]`."""

    allowed_flags: list[str] = []
    max_attempts: Annotated[int, Field(ge=1, le=20)] = 3


class GateTable(_Table):
    """`[gate]`."""

    check: str
    timeout: Annotated[float, Field(gt=0, le=1800)] = 30.0


class ModuleTable(_Table):
    """`[[module]]`."""

    name: str
    path: str
    requires: list[str] = []


T = TypeVar("T", bound=_Table)


@dataclass
class Draft:
    """A file as far as it could be read.

    A table with wrong fields is still there, without those: what is left of it gets checked too.
    """

    folder: Path
    release: ReleaseTable | None
    policy: PolicyTable | None
    gate: GateTable | None
    modules: list[tuple[int, ModuleTable]]


def load_release(path: Path) -> ReleaseRequest:
    """Read a release file; relative paths in it are relative to its folder.

    Raises:
        ReleaseFileError: Lists all that is wrong.
    """
    path = path.resolve()
    data = _parse(path)
    findings = list(_unknown_tables(data))
    draft = Draft(
        folder=path.parent,
        release=_table(data, "release", ReleaseTable, findings),
        policy=_table({"policy": {}} | data, "policy", PolicyTable, findings),
        gate=_table(data, "gate", GateTable, findings),
        modules=_modules(data, findings),
    )
    findings += _check(draft)
    if findings or draft.release is None or draft.policy is None or draft.gate is None:
        raise ReleaseFileError(path, findings)
    return _request(draft, draft.release, draft.policy, draft.gate)


def _check(draft: Draft) -> Iterator[Finding]:
    # getattr: a field that was wrong is missing from its table.
    for field in ("name", "version"):
        value = getattr(draft.release, field, None)
        if value is not None:
            yield from release_checks.check_name(f"release.{field}", value)
    yield from release_checks.check_flags("release.flags", getattr(draft.release, "flags", []))
    allowed = getattr(draft.policy, "allowed_flags", [])
    yield from release_checks.check_allowed("policy.allowed_flags", allowed)
    script = getattr(draft.gate, "check", None)
    if script is not None:
        yield from release_checks.check_script(draft.folder / script)
    rows = [
        ModuleRow(
            number,
            getattr(module, "name", None),
            getattr(module, "path", None),
            getattr(module, "requires", []),
        )
        for number, module in draft.modules
    ]
    yield from release_checks.check_modules(draft.folder, rows)


def _request(
    draft: Draft, release: ReleaseTable, policy: PolicyTable, gate: GateTable
) -> ReleaseRequest:
    return ReleaseRequest(
        name=release.name,
        version=release.version,
        flags=tuple(release.flags),
        modules=tuple(
            ModuleSpec(
                name=module.name,
                directory=(draft.folder / module.path).resolve(),
                requires=tuple(module.requires),
            )
            for _, module in draft.modules
        ),
        policy=ReleasePolicy(
            allowed_flags=tuple(policy.allowed_flags), max_attempts=policy.max_attempts
        ),
        gate=GateSpec(check=(draft.folder / gate.check).resolve(), timeout=gate.timeout),
    )


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise ReleaseFileError(
            path, [Finding("file", f"can't be read: {problem}", "give the path of a release.toml")]
        ) from problem
    except tomllib.TOMLDecodeError as problem:
        raise ReleaseFileError(
            path, [Finding("file", f"is not TOML: {problem}", "correct that line")]
        ) from problem


def _unknown_tables(data: dict[str, Any]) -> Iterator[Finding]:
    known = ["release", "policy", "gate", "module"]
    for name in data:
        if name not in known:
            yield Finding(name, "is not known here", _did_you_mean(name, known))


def _table(data: dict[str, Any], name: str, model: type[T], findings: list[Finding]) -> T | None:
    if name not in data:
        example = EXAMPLE if name == "release" else '[gate]\ncheck = "integration_check.py"'
        findings.append(Finding(name, "is missing", f"add {example!r}"))
        return None
    return _validate(data[name], name, model, findings)


def _modules(data: dict[str, Any], findings: list[Finding]) -> list[tuple[int, ModuleTable]]:
    tables = data.get("module", [])
    if not isinstance(tables, list) or not tables:
        fix = 'add [[module]] (with two brackets), with name = "..." and path = "..."'
        findings.append(Finding("module", "a release needs at least one", fix))
        return []
    read = [
        (number, _validate(table, f"module[{number}]", ModuleTable, findings))
        for number, table in enumerate(tables)
    ]
    return [(number, table) for number, table in read if table is not None]


def _validate(table: Any, where: str, model: type[T], findings: list[Finding]) -> T | None:
    if not isinstance(table, dict):
        header = where.partition("[")[0]
        findings.append(Finding(where, "is not a table", f"write it as [{header}]"))
        return None
    try:
        return model.model_validate(table)
    except ValidationError as problem:
        errors = problem.errors(include_url=False)
    for error in errors:
        field = ".".join([where, *(str(part) for part in error["loc"])])
        findings.append(Finding(field, *_explain(error, model)))
    wrong = {error["loc"][0] for error in errors}
    rest = {name: value for name, value in table.items() if name not in wrong}
    return cast(T, model.model_construct(**rest))


def _explain(error: Any, model: type[BaseModel]) -> tuple[str, str]:
    name = str(error["loc"][-1])
    match error["type"]:
        case "missing":
            return "is missing", f"add {name} = ..."
        case "extra_forbidden":
            return "is not known here", _did_you_mean(name, list(model.model_fields))
        case _:
            return f"{error['msg']}, not {error['input']!r}", "correct the value"


def _did_you_mean(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"remove it; known are {', '.join(known)}"
