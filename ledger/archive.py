"""Module archives: `.tar.gz` files that come out the same, byte for byte, from the same input.

An archive holds `<module>-<version>/MANIFEST.json`, then the files in the order of their paths.
Times, owners and groups are zero, modes 0644 or 0755, and the gzip header names no file. The same
zlib makes the same bytes; another version of it may compress differently, which is why the
digest on record is always that of the bytes that were staged.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable
from typing import BinaryIO, Literal

from pydantic import Field

from ledger.vocabulary import Digest, Flag, SafeName, SourceFile, Word

MANIFEST = "MANIFEST.json"
_COMPRESSION = 6


class Manifest(Word):
    """What an archive says about itself.

    Attributes:
        files: All but the manifest, sorted by path.
        source_digest: Of the sources as they were prepared, without generated files.
    """

    format: Literal[1] = 1
    module: SafeName
    version: SafeName
    requires: tuple[SafeName, ...]
    flags: tuple[Flag, ...]
    source_digest: Digest
    build_digest: Digest
    files: tuple[SourceFile, ...] = Field(max_length=20_000)

    @property
    def prefix(self) -> str:
        """The archive's only top-level directory."""
        return f"{self.module}-{self.version}"

    def to_bytes(self) -> bytes:
        """As it stands in the archive."""
        return self.model_dump_json(indent=1).encode() + b"\n"


class _Counting(io.RawIOBase):
    # Hashes what passes through, so that the digest is of the bytes that were written.
    def __init__(self, target: BinaryIO) -> None:
        super().__init__()
        self.target = target
        self.hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        chunk = bytes(data)  # type: ignore[call-overload]
        self.target.write(chunk)
        self.hash.update(chunk)
        self.size += len(chunk)
        return len(chunk)


def write(
    target: BinaryIO, manifest: Manifest, contents: Iterable[tuple[SourceFile, bytes]]
) -> tuple[str, int]:
    """Write an archive.

    Args:
        target: Open for writing; stays open.
        manifest: Its `files` say what `contents` gives.
        contents: Each file with its bytes, in the manifest's order.

    Returns:
        Digest and size in bytes of what was written.

    Raises:
        ValueError: `contents` isn't what the manifest says.
    """
    counting = _Counting(target)
    with (
        gzip.GzipFile("", "wb", _COMPRESSION, counting, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        text = manifest.to_bytes()
        _add(tar, f"{manifest.prefix}/{MANIFEST}", text, executable=False)
        written = []
        for file, content in contents:
            _add(tar, f"{manifest.prefix}/{file.path}", content, executable=file.executable)
            written.append(file)
    if tuple(written) != manifest.files:
        raise ValueError(f"module {manifest.module}: the archive's files aren't the manifest's")
    return counting.hash.hexdigest(), counting.size


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, executable: bool) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o755 if executable else 0o644
    tar.addfile(member, io.BytesIO(content))
