from __future__ import annotations

from pathlib import Path

import pytest

from ledger.errors import ModuleFailedError
from tasks.compile import package_folders
from tasks.prepare import prepare
from tests.unit.factory.support import compiled, task_for, write_files


def test_the_version_is_the_projects_own(tmp_path: Path) -> None:
    write_files(tmp_path, {"pyproject.toml": '[project]\nversion = "3.1.4"\n'})
    assert prepare(task_for(tmp_path)).version == "3.1.4"


@pytest.mark.parametrize("text", [None, "", '[project]\ndynamic = ["version"]\n', "project = 3"])
def test_without_one_it_is_the_releases(tmp_path: Path, text: str | None) -> None:
    write_files(tmp_path, {"a.txt": ""} | ({} if text is None else {"pyproject.toml": text}))
    assert prepare(task_for(tmp_path)).version == "1.0"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[project", "module.bad-project-file"),
        ('[project]\nversion = "../1"', "module.bad-version"),
    ],
)
def test_a_version_that_cannot_be_used_is_explained(tmp_path: Path, text: str, code: str) -> None:
    write_files(tmp_path, {"pyproject.toml": text})
    with pytest.raises(ModuleFailedError) as caught:
        prepare(task_for(tmp_path))
    assert (caught.value.failure.code, caught.value.failure.path) == (code, "pyproject.toml")


def test_each_top_level_package_gets_its_build_options(tmp_path: Path) -> None:
    names = ["src/a/__init__.py", "src/a/sub/__init__.py", "b/__init__.py", "c/no_package.py"]
    write_files(tmp_path, dict.fromkeys(names, ""))
    result = compiled(task_for(tmp_path, "--opt-level=3", "--abi-compat=v2"))
    assert [made.path for made in result.generated] == ["b/_build.py", "src/a/_build.py"]
    values: dict[str, object] = {}
    exec(result.generated[0].text, values)
    assert (values["OPT_LEVEL"], values["DETERMINISTIC"], values["ABI"]) == (3, False, "v2")
    assert values["FLAGS"] == ("--opt-level=3", "--abi-compat=v2")
    assert result.compiled_files == 6


def test_a_directory_may_be_a_package_itself_or_none(tmp_path: Path) -> None:
    write_files(tmp_path / "p", {"__init__.py": "", "sub/__init__.py": ""})
    assert package_folders(prepare(task_for(tmp_path / "p")).files) == ["."]
    assert [g.path for g in compiled(task_for(tmp_path / "p")).generated] == ["_build.py"]
    write_files(tmp_path / "n", {"index.html": ""})
    assert compiled(task_for(tmp_path / "n")).generated == ()


@pytest.mark.parametrize(
    ("source", "line"), [("x = 1\ndef f(:\n", 2), ("return 1", 1), ("\ufeffx = 'ö\n", 1)]
)
def test_a_file_that_does_not_compile_is_named(tmp_path: Path, source: str, line: int) -> None:
    write_files(tmp_path, {"src/bad.py": source})
    with pytest.raises(ModuleFailedError) as caught:
        compiled(task_for(tmp_path))
    failure = caught.value.failure
    assert (failure.code, failure.path, failure.line) == ("module.syntax-error", "src/bad.py", line)


def test_bytes_that_are_no_source_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_bytes(b"x = 1\0")
    with pytest.raises(ModuleFailedError) as caught:
        compiled(task_for(tmp_path))
    assert caught.value.failure.path == "bad.py"


@pytest.mark.parametrize("path", ["p/_build.py", "MANIFEST.json"])
def test_generated_files_overwrite_nothing(tmp_path: Path, path: str) -> None:
    write_files(tmp_path, {"p/__init__.py": "", path: ""})
    with pytest.raises(ModuleFailedError) as caught:
        compiled(task_for(tmp_path))
    assert (caught.value.failure.code, caught.value.failure.path) == ("module.reserved-file", path)


def test_the_build_digest_depends_on_sources_and_flags(tmp_path: Path) -> None:
    write_files(tmp_path, {"p/__init__.py": "1"})
    first = compiled(task_for(tmp_path)).build_digest
    assert compiled(task_for(tmp_path)).build_digest == first
    assert compiled(task_for(tmp_path, "--deterministic")).build_digest != first
    write_files(tmp_path, {"p/__init__.py": "2"})
    assert compiled(task_for(tmp_path)).build_digest != first
