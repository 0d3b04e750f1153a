from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import archive, unpacking
from ledger.errors import ArtifactDamagedError, UnsafeArchiveError
from ledger.unpacking import open_archive
from tasks.stage import _write_archive
from tests.unit.factory.support import compiled, task_for, write_files

FILES = {"pyproject.toml": '[project]\nversion = "2.1"\n', "src/p/__init__.py": "", "run.sh": "#!"}


def pack(folder: Path, *flags: str) -> bytes:
    target = io.BytesIO()
    _write_archive(target, compiled(task_for(folder, *flags)))
    return target.getvalue()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = write_files(tmp_path / "source", FILES)
    (folder / "run.sh").chmod(0o755)
    return folder


@pytest.fixture
def packed(tmp_path: Path, source: Path) -> Path:
    path = tmp_path / "packed.tar.gz"
    path.write_bytes(pack(source, "--opt-level=1"))
    return path


def test_the_same_input_makes_the_same_bytes(tmp_path: Path, source: Path) -> None:
    again = write_files(tmp_path / "elsewhere" / "copy", dict(reversed(FILES.items())))
    (again / "run.sh").chmod(0o700)
    os.utime(again / "run.sh", (1, 1))
    assert pack(source) == pack(again)


def test_flags_make_other_bytes(source: Path) -> None:
    assert pack(source) != pack(source, "--abi-compat=v2")


def test_nothing_of_the_machine_is_in_the_archive(packed: Path) -> None:
    _, method, flags, mtime = struct.unpack("<2sBBI", packed.read_bytes()[:8])
    assert (method, flags, mtime) == (8, 0, 0)
    with tarfile.open(packed) as tar:
        members = tar.getmembers()
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}
    assert {m.name.removeprefix("module-2.1/"): m.mode for m in members} == {
        "MANIFEST.json": 0o644,
        "pyproject.toml": 0o644,
        "run.sh": 0o755,
        "src/p/__init__.py": 0o644,
        "src/p/_build.py": 0o644,
    }


def test_unpacking_gives_the_sources_and_what_was_generated(packed: Path, tmp_path: Path) -> None:
    opened = open_archive(packed, into=tmp_path / "out")
    assert opened.manifest.flags == ("--opt-level=1",)
    assert (tmp_path / "out" / "run.sh").read_text() == "#!"
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o100
    assert "OPT_LEVEL = 1" in (tmp_path / "out" / "src" / "p" / "_build.py").read_text()
    assert not (tmp_path / "out" / "MANIFEST.json").exists()
    assert opened.size == sum(file.size for file in opened.manifest.files)


def rebuilt(packed: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]) -> Path:
    """An archive made by somebody else, from the members of ours."""
    with tarfile.open(packed) as tar:
        members = [(m, tar.extractfile(m).read()) for m in tar]  # type: ignore[union-attr]
    change(members)
    with tarfile.open(packed, "w:gz") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return packed


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "extra",
    [
        member("../evil"),
        member("module-2.1/../../evil"),
        member("/etc/evil"),
        member("other/evil"),
        member("module-2.1/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("module-2.1/link", tarfile.LNKTYPE, "module-2.1/run.sh"),
        member("module-2.1/device", tarfile.CHRTYPE),
        member("module-2.1/pipe", tarfile.FIFOTYPE),
        member("module-2.1/folder", tarfile.DIRTYPE),
    ],
)
def test_dangerous_members_are_refused(
    packed: Path, tmp_path: Path, extra: tarfile.TarInfo
) -> None:
    path = rebuilt(packed, lambda members: members.append((extra, b"")))
    with pytest.raises(UnsafeArchiveError):
        open_archive(path, into=tmp_path / "out" / "deep")
    assert not list(tmp_path.rglob("evil"))
    assert not list(tmp_path.rglob("link"))


def test_changed_missing_and_added_files_are_noticed(packed: Path) -> None:
    original = packed.read_bytes()

    def changed(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        members[-1] = (members[-1][0], b"x" * len(members[-1][1]))

    def missing(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        members.pop()

    def added(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        members.append((member("module-2.1/more"), b""))

    def doubled(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        members.append(members[-1])

    def headless(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        members.pop(0)

    for change in (changed, missing, added, doubled, headless):
        packed.write_bytes(original)
        with pytest.raises(ArtifactDamagedError):
            open_archive(rebuilt(packed, change))


@pytest.mark.parametrize("keep", [0, 5, 100, -20])
def test_an_archive_that_was_cut_is_noticed(packed: Path, keep: int) -> None:
    packed.write_bytes(packed.read_bytes()[:keep])
    with pytest.raises(ArtifactDamagedError):
        open_archive(packed)


def test_a_missing_archive_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(ArtifactDamagedError, match="is missing"):
        open_archive(tmp_path / "none.tar.gz")


def test_a_bomb_is_refused_before_it_is_read(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_TOTAL_BYTES", 100)
    with pytest.raises(UnsafeArchiveError, match="over the limits"):
        open_archive(packed)


def test_a_header_that_lies_about_its_size_is_refused(packed: Path) -> None:
    info = member("module-2.1/huge")
    info.size = 1 << 50
    plain = gzip.decompress(packed.read_bytes())
    packed.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + plain))
    with pytest.raises(UnsafeArchiveError, match="over the limits"):
        open_archive(packed)


def test_nothing_may_follow_the_archives_end(packed: Path) -> None:
    plain = gzip.decompress(packed.read_bytes())
    packed.write_bytes(gzip.compress(plain + b"more"))
    with pytest.raises(ArtifactDamagedError, match="follows the archive's end"):
        open_archive(packed)


def test_contents_must_be_the_manifests(source: Path) -> None:
    ready = compiled(task_for(source))
    manifest = archive.Manifest(
        module="module",
        version="2.1",
        requires=(),
        flags=(),
        source_digest=ready.prepared.source_digest,
        build_digest=ready.build_digest,
        files=ready.prepared.files,
    )
    with pytest.raises(ValueError, match="aren't the manifest's"):
        archive.write(io.BytesIO(), manifest, [])
