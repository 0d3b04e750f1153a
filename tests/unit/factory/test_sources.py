from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledger import sources
from ledger.errors import ModuleFailedError
from ledger.vocabulary import ModuleSpec
from tests.unit.factory.support import write_files


def module(folder: Path) -> ModuleSpec:
    return ModuleSpec(name="m", directory=folder)


def failure(folder: Path) -> str:
    with pytest.raises(ModuleFailedError) as caught:
        sources.scan(module(folder))
    assert caught.value.failure.fix
    return caught.value.failure.code


def test_files_are_sorted_and_described(tmp_path: Path) -> None:
    write_files(tmp_path, {"b.py": "b", "a/z.txt": "zz", "a.py": ""})
    (tmp_path / "b.py").chmod(0o755)
    files = sources.scan(module(tmp_path))
    assert [(f.path, f.size, f.executable) for f in files] == [
        ("a.py", 0, False),
        ("a/z.txt", 2, False),
        ("b.py", 1, True),
    ]


def test_what_is_no_source_is_left_out(tmp_path: Path) -> None:
    rubbish = [
        ".git/config",
        "a/__pycache__/x.pyc",
        ".venv/bin/python",
        "x.pyc",
        ".env",
        ".DS_Store",
    ]
    write_files(tmp_path, dict.fromkeys([*rubbish, "a/x.py"], "secret"))
    assert [f.path for f in sources.scan(module(tmp_path))] == ["a/x.py"]


def test_the_digest_depends_on_paths_contents_and_modes(tmp_path: Path) -> None:
    def digest(name: str, text: str, mode: int = 0o644) -> str:
        folder = tmp_path / f"{name}-{text}-{mode}"
        write_files(folder, {name: text})
        (folder / name).chmod(mode)
        return sources.digest_of(sources.scan(module(folder)))

    assert digest("a", "1") == digest("a", "1", 0o600)
    assert len({digest("a", "1"), digest("b", "1"), digest("a", "2"), digest("a", "1", 0o755)}) == 4


def test_a_link_inside_the_module_is_read(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "text"})
    (tmp_path / "b.py").symlink_to("a.py")
    assert [(f.path, f.size) for f in sources.scan(module(tmp_path))] == [("a.py", 4), ("b.py", 4)]


def test_a_module_that_is_itself_behind_a_link_is_read(tmp_path: Path) -> None:
    write_files(tmp_path / "real", {"a.py": ""})
    (tmp_path / "link").symlink_to("real")
    assert [f.path for f in sources.scan(module(tmp_path / "link"))] == ["a.py"]


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/etc/hostname", "module.link-outside"),
        ("../outside.py", "module.link-outside"),
        ("nowhere", "module.unreadable"),
        ("link", "module.unreadable"),
        ("folder", "module.linked-directory"),
        ("/etc", "module.linked-directory"),
    ],
)
def test_links_that_lead_away_are_refused(tmp_path: Path, target: str, code: str) -> None:
    folder = write_files(tmp_path / "m", {"folder/a.py": ""})
    write_files(tmp_path, {"outside.py": ""})
    (folder / "link").symlink_to(target)
    assert failure(folder) == code


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert failure(tmp_path) == "module.special-file"


def test_missing_and_empty_directories_are_refused(tmp_path: Path) -> None:
    assert failure(tmp_path / "nowhere") == "module.no-directory"
    assert failure(tmp_path) == "module.empty"


def test_names_that_some_file_systems_lack_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a\\b").write_text("")
    assert failure(tmp_path) == "module.bad-path"


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.py")).touch()
    assert failure(tmp_path) == "module.bad-path"


@pytest.mark.parametrize(
    ("limit", "value"), [("MAX_FILES", 1), ("MAX_TOTAL_BYTES", 3), ("MAX_FILE_BYTES", 1)]
)
def test_limits_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    write_files(tmp_path, {"a": "12", "b": "34"})
    monkeypatch.setattr(sources, limit, value)
    assert failure(tmp_path) == "module.too-large"


def test_a_file_that_changed_since_is_noticed(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "1"})
    (file,) = sources.scan(module(tmp_path))
    assert sources.read(module(tmp_path), file) == b"1"
    (tmp_path / "a.py").write_text("2")
    with pytest.raises(ModuleFailedError, match="was changed"):
        sources.read(module(tmp_path), file)
