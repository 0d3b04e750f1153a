"""Frames of wire ABI v2.

Header, 12 bytes, big-endian: magic "FT", version (1 byte), flags (1 byte), payload length
(4 bytes), CRC-32 of the payload (4 bytes). Flag 1: the payload is deflated. Since release 5 the
5-byte header of v1 isn't read any more: its 16-bit lengths cut long records short.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

MINIMUM_ABI = 2
MAX_PAYLOAD = 1 << 20
DEFLATED = 1

_HEADER = struct.Struct(">2sBBII")


class FrameError(ValueError):
    """Bytes that are not a frame of a wire ABI that this collector reads."""


def decode(data: bytes) -> Iterator[dict[str, Any]]:
    """The records in a stream of frames, in order.

    Raises:
        FrameError: Names the offset, and what was found there.
    """
    offset = 0
    while offset < len(data):
        head = data[offset : offset + _HEADER.size]
        if len(head) < _HEADER.size:
            raise FrameError(f"offset {offset}: {len(head)} bytes are no header of {_HEADER.size}")
        magic, version, flags, length, checksum = _HEADER.unpack(head)
        start = offset + _HEADER.size
        payload = data[start : start + length]
        if magic != b"FT":
            raise FrameError(f"offset {offset}: magic {magic!r} instead of b'FT'")
        if length > MAX_PAYLOAD or len(payload) < length or zlib.crc32(payload) != checksum:
            raise FrameError(
                f"offset {offset}: the frame header announces {length} bytes with CRC-32"
                f" {checksum:08x}, {len(payload)} bytes follow with {zlib.crc32(payload):08x};"
                f" its version byte says wire ABI v{version}, this collector's minimum is wire"
                f" ABI v{MINIMUM_ABI} (header of {_HEADER.size} bytes)"
            )
        yield _record(payload, flags, offset)
        offset = start + length


def _record(payload: bytes, flags: int, offset: int) -> dict[str, Any]:
    try:
        plain = zlib.decompress(payload) if flags & DEFLATED else payload
        record = json.loads(plain)
    except (zlib.error, ValueError) as problem:
        raise FrameError(f"offset {offset}: the payload can't be read: {problem}") from problem
    if not isinstance(record, dict):
        raise FrameError(f"offset {offset}: the payload is not a record")
    return record
