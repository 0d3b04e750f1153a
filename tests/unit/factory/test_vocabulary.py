from __future__ import annotations

import pickle
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import ValidationError

from ledger.errors import (
    AlreadyPromotedError,
    CandidateLockedError,
    ModuleFailedError,
    ReleaseGateFailedError,
)
from ledger.flags import BuildOptions, allows, parse
from ledger.vocabulary import GateSpec, ModuleFailed, ModuleSpec, ReleaseRequest


def test_a_request_survives_json() -> None:
    request = ReleaseRequest(
        name="shop",
        version="1.0+local",
        modules=(ModuleSpec(name="a", directory=Path("/a")),),
        flags=("--opt-level=3",),
        gate=GateSpec(check=Path("/c.py")),
    )
    assert ReleaseRequest.model_validate_json(request.model_dump_json()) == request


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "a\n", "a ", "x" * 65, "ü"])
def test_names_that_are_no_path_component_are_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        ModuleSpec(name=name, directory=Path("/a"))


def test_a_release_has_modules() -> None:
    with pytest.raises(ValidationError, match="at least 1 item"):
        ReleaseRequest(name="a", version="1", modules=(), gate=GateSpec(check=Path("/c")))


@pytest.mark.parametrize(
    "error",
    [
        ReleaseGateFailedError("the check failed", diagnostics_id=str(uuid4()), exit_code=1),
        ModuleFailedError(
            ModuleFailed(module="a", code="c", problem="bad", path="x.py", line=3, fix="mend it")
        ),
        AlreadyPromotedError("shop", "1.0", uuid4()),
        CandidateLockedError("locked", release="shop", holder="x"),
    ],
)
def test_errors_survive_pickling(error: ReleaseGateFailedError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.fields) == (type(error), str(error), error.fields)
    assert copy.code.startswith("release.")


def test_a_failed_module_names_place_and_fix() -> None:
    failure = ModuleFailed(module="a", code="c", problem="bad", path="x.py", line=3, fix="mend it")
    assert str(ModuleFailedError(failure)) == "module a: bad (x.py:3); mend it"


def test_flags_have_defaults_and_meanings() -> None:
    assert parse([]) == BuildOptions(opt_level=0, deterministic=False, abi="v1")
    flags = ["--opt-level=2", "--deterministic", "--abi-compat=v2", "--colour=red"]
    assert parse(flags) == BuildOptions(opt_level=2, deterministic=True, abi="v2")


@pytest.mark.parametrize(
    "flag", ["--opt-level=9", "--opt-level", "--deterministic=1", "--abi-compat=2"]
)
def test_known_flags_take_known_values(flag: str) -> None:
    with pytest.raises(ValueError, match=flag):
        parse([flag])


def test_a_wildcard_needs_a_value() -> None:
    assert allows(["--abi-compat=*"], "--abi-compat=v7")
    assert not allows(["--abi-compat=*"], "--abi-compat")
    assert not allows(["--abi-compat=v2"], "--abi-compat=v3")
    assert not allows(["--abi=*"], "--abi-compat=v3")
