"""Opening archives without trusting them: bounded, regular files only, every digest checked."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from ledger.archive import MANIFEST, Manifest
from ledger.errors import ArtifactDamagedError, UnsafeArchiveError
from ledger.sources import MAX_FILE_BYTES, MAX_FILES, MAX_TOTAL_BYTES
from ledger.vocabulary import Word

# The builder adds a file for each package, and the manifest.
_MAX_MEMBERS = 2 * MAX_FILES + 1
_CHUNK = 1 << 20
_MAX_PADDING = 10 * tarfile.RECORDSIZE


class Opened(Word):
    """A whole archive; `size` is the bytes of its files without the manifest."""

    manifest: Manifest
    manifest_sha256: str
    size: int


def digest_of(path: Path) -> tuple[str, int]:
    """SHA-256 and size in bytes of a file.

    Raises:
        FileNotFoundError: There is none.
    """
    total = hashlib.sha256()
    size = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            total.update(chunk)
            size += len(chunk)
    return total.hexdigest(), size


def open_archive(path: Path, *, into: Path | None = None) -> Opened:
    """Read an archive to its end, and compare every file with the manifest.

    Args:
        path: The archive.
        into: Where to unpack its files to, without the archive's top-level directory; None only
            reads. After an error, part of the files may be there.

    Raises:
        UnsafeArchiveError: It holds links, devices, absolute paths or more than the limits.
        ArtifactDamagedError: It isn't a whole archive of ours.
    """
    try:
        with gzip.open(path) as plain, tarfile.open(fileobj=plain, mode="r:") as tar:
            opened = _read_all(tar, path, into)
            _check_rest(path, plain)
            return opened
    except (tarfile.TarError, EOFError, OSError) as problem:
        if isinstance(problem, FileNotFoundError) and not path.exists():
            raise _damaged(path, "the file is missing") from problem
        raise _damaged(path, f"can't be read: {problem}") from problem


def _read_all(tar: tarfile.TarFile, path: Path, into: Path | None) -> Opened:
    manifest: Manifest | None = None
    manifest_sha256 = ""
    found: dict[str, tuple[str, int]] = {}
    total = 0
    prefix = ""
    for count, member in enumerate(tar, start=1):
        total += member.size
        _check_member(member, count, total)
        content = _content(tar, member)
        if manifest is None:
            manifest = _parse_manifest(path, member, content)
            manifest_sha256 = hashlib.sha256(content).hexdigest()
            prefix = f"{manifest.prefix}/"
            total = 0
            continue
        if not member.name.startswith(prefix):
            raise UnsafeArchiveError(
                f"{path.name}: {member.name!r} is outside of {prefix}", member=member.name
            )
        inner = member.name.removeprefix(prefix)
        if inner in found:
            raise _damaged(path, f"{inner} is there twice")
        found[inner] = (hashlib.sha256(content).hexdigest(), len(content))
        if into is not None:
            _write(into / inner, content, executable=bool(member.mode & 0o100))
    if manifest is None:
        raise _damaged(path, "it is empty")
    expected = {file.path: (file.sha256, file.size) for file in manifest.files}
    if found != expected:
        wrong = sorted(name for name, _ in found.items() ^ expected.items())
        raise _damaged(path, f"not as its manifest says: {', '.join(wrong[:5])}")
    return Opened(manifest=manifest, manifest_sha256=manifest_sha256, size=total)


def _check_rest(path: Path, plain: gzip.GzipFile) -> None:
    # tarfile stops at the first empty block: gzip's checksum comes later, and so may anything else.
    rest = plain.read(_MAX_PADDING)
    if rest.strip(b"\0") or plain.read(1):
        raise _damaged(path, "something follows the archive's end")


def _check_member(member: tarfile.TarInfo, count: int, total: int) -> None:
    name = PurePosixPath(member.name)
    if not member.isreg() or name.is_absolute() or ".." in name.parts or "\\" in member.name:
        raise UnsafeArchiveError(
            f"{member.name!r} is not a regular file at a relative path", member=member.name
        )
    if count > _MAX_MEMBERS or member.size > MAX_FILE_BYTES or total > MAX_TOTAL_BYTES:
        raise UnsafeArchiveError(
            f"{member.name!r}: the archive is over the limits of {_MAX_MEMBERS} files,"
            f" {MAX_FILE_BYTES} bytes each, {MAX_TOTAL_BYTES} bytes in all",
            member=member.name,
        )
    if hasattr(tarfile, "data_filter"):
        try:
            tarfile.data_filter(member, "/nonexistent")
        except tarfile.FilterError as problem:
            raise UnsafeArchiveError(str(problem), member=member.name) from problem


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    content = stream.read() if stream is not None else b""
    if len(content) != member.size:
        raise tarfile.ReadError(f"{member.name} is cut short")
    return content


def _parse_manifest(path: Path, member: tarfile.TarInfo, content: bytes) -> Manifest:
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as problem:
        raise _damaged(path, "its first file isn't a manifest") from problem
    if member.name != f"{manifest.prefix}/{MANIFEST}":
        raise _damaged(path, f"its first file is {member.name!r}, not {MANIFEST}")
    return manifest


def _write(target: Path, content: bytes, *, executable: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as stream:
        stream.write(content)
    target.chmod(0o755 if executable else 0o644)


def _damaged(path: Path, problem: str) -> ArtifactDamagedError:
    return ArtifactDamagedError(f"archive {path.name}: {problem}", path=str(path))
