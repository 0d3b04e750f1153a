from __future__ import annotations

from pathlib import Path

import pytest

from ledger.release_file import ReleaseFileError, load_release
from tests.unit.factory.support import EXAMPLES, write_files

GOOD = """
[release]
name = "shop"
version = "1.0"
flags = ["--opt-level=3"]
[policy]
allowed_flags = ["--abi-compat=*"]
max_attempts = 2
[gate]
check = "check.py"
timeout = 5
[[module]]
name = "a"
path = "a"
[[module]]
name = "b"
path = "b"
requires = ["a"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path, {"check.py": "", "a/x.py": "", "b/y.py": "", "tool": "#!/bin/sh"})


def load(folder: Path, text: str) -> dict[str, tuple[str, str]]:
    """Findings by field; several at one field are joined."""
    path = folder / "release.toml"
    path.write_text(text)
    with pytest.raises(ReleaseFileError) as caught:
        load_release(path)
    found: dict[str, tuple[str, str]] = {}
    for finding in caught.value.findings:
        problem, fix = found.get(finding.field, ("", ""))
        found[finding.field] = (problem + finding.problem, fix + finding.fix)
    return found


def test_paths_are_relative_to_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "release.toml").write_text(GOOD)
    monkeypatch.chdir(folder.parent)
    request = load_release(Path(folder.name) / "release.toml")
    assert [(m.name, m.directory) for m in request.modules] == [
        ("a", folder / "a"),
        ("b", folder / "b"),
    ]
    assert request.modules[1].requires == ("a",)
    assert request.gate.check == folder / "check.py"
    assert request.gate.timeout == 5.0
    assert request.policy.max_attempts == 2
    assert request.attempt == 1


def test_the_example_is_good() -> None:
    request = load_release(EXAMPLES / "release.toml")
    assert [m.name for m in request.modules] == [
        "auth-service",
        "payment-engine",
        "telemetry-collector",
    ]
    assert "--abi-compat=v2" not in request.flags
    assert "--abi-compat=v2" in request.policy.allowed_flags


@pytest.mark.parametrize(
    ("old", "new", "field", "problem"),
    [
        ('name = "shop"', "", "release.name", "is missing"),
        ('name = "shop"', 'name = "../shop"', "release.name", "can't be part of a path"),
        ('name = "shop"', 'name = "a..b"', "release.name", "can't be part of a path"),
        ('version = "1.0"', "version = 1.0", "release.version", "valid string, not 1.0"),
        ('version = "1.0"', 'version = "1/0"', "release.version", "can't be part of a path"),
        ('["--opt-level=3"]', '["-O3"]', "release.flags[0]", "--name or --name=value"),
        ('["--opt-level=3"]', '["--opt-level=4"]', "release.flags[0]", "0 to 3"),
        ('["--opt-level=3"]', '["--x", "--x=1"]', "release.flags", "--x is given more than once"),
        ('"--abi-compat=*"', '"--abi compat"', "policy.allowed_flags[0]", "not a flag"),
        ('"--abi-compat=*"', '"*"', "policy.allowed_flags[0]", "not a flag"),
        ("max_attempts = 2", "max_attempts = 0", "policy.max_attempts", "greater than or equal"),
        ("max_attempts = 2", "max_atempts = 2", "policy.max_atempts", "is not known"),
        ("[policy]", "[polcy]", "polcy", "is not known"),
        ('check = "check.py"', 'check = "no.py"', "gate.check", "there is no file"),
        ('check = "check.py"', 'check = "tool"', "gate.check", "nor executable"),
        ("timeout = 5", "timeout = 0", "gate.timeout", "greater than 0"),
        ('path = "a"', 'path = "c"', "module[0].path", "there is no directory"),
        ('path = "a"', 'path = "check.py"', "module[0].path", "there is no directory"),
        ('name = "b"', 'name = "A"', "module[1].name", "is the name of module[0] too"),
        ('requires = ["a"]', 'requires = ["c"]', "module[1].requires", "'c' is not a module"),
        ('path = "a"', 'path = "a"\nrequires = ["b"]', "module.requires", "a -> b -> a"),
        ('requires = ["a"]', 'requires = ["b"]', "module.requires", "b -> b"),
    ],
)
def test_an_error_names_its_field(
    folder: Path, old: str, new: str, field: str, problem: str
) -> None:
    assert old in GOOD
    found = load(folder, GOOD.replace(old, new, 1))
    assert list(found) == [field]
    assert problem.replace("a -> b -> a", "") in found[field][0]
    assert found[field][1]


def test_a_misspelt_name_is_answered_with_the_right_one(folder: Path) -> None:
    found = load(folder, GOOD.replace("max_attempts", "max_atempts"))
    assert found["policy.max_atempts"][1] == "did you mean 'max_attempts'?"


def test_all_findings_come_at_once(folder: Path) -> None:
    found = load(
        folder,
        GOOD.replace('name = "shop"', 'name = 3\ncolour = "red"')
        .replace('version = "1.0"', 'version = "/"')
        .replace("--opt-level=3", "--opt-level=banana")
        .replace("timeout = 5", 'timeout = "soon"')
        .replace("check.py", "gone.py")
        .replace('path = "b"', "path = 7")
        .replace('requires = ["a"]', 'requires = ["z"]'),
    )
    assert set(found) == {
        "release.name",
        "release.colour",
        "release.version",
        "release.flags[0]",
        "gate.timeout",
        "gate.check",
        "module[1].path",
        "module[1].requires",
    }


@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        ("[release", "file", "is not TOML"),
        ("", "release", "is missing"),
        ("", "gate", "is missing"),
        ("", "module", "needs at least one"),
        ("module = 3", "module", "needs at least one"),
        ("module = [3]", "module[0]", "is not a table"),
        ("release = 3", "release", "is not a table"),
    ],
)
def test_a_file_of_another_shape_is_explained(
    folder: Path, text: str, field: str, problem: str
) -> None:
    assert problem in load(folder, text)[field][0]


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ReleaseFileError, match=r"give the path of a release\.toml") as caught:
        load_release(tmp_path / "release.toml")
    assert caught.value.code == "release.invalid-file"


def test_an_executable_check_of_any_kind_is_fine(folder: Path) -> None:
    (folder / "tool").chmod(0o755)
    (folder / "release.toml").write_text(GOOD.replace("check.py", "tool"))
    assert load_release(folder / "release.toml").gate.check == folder / "tool"
