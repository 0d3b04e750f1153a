"""Telemetry frames, in the wire format of the ABI that this package was built with.

v1: magic "FT", version (1 byte), payload length (2 bytes); then the payload.
v2: magic "FT", version (1 byte), flags (1 byte), payload length (4 bytes), CRC-32 of the payload
    (4 bytes); then the payload, deflated if flag 1 is set.
All numbers are big-endian. The payload is JSON.
"""

import json
import struct
import zlib

from payment_engine.build import ABI, DETERMINISTIC, OPT_LEVEL

MAGIC = b"FT"
DEFLATED = 1


def encode(record: dict[str, object]) -> bytes:
    """One frame.

    Raises:
        ValueError: The build's ABI has no wire format here, or a v1 payload is over 65,535 bytes.
    """
    payload = json.dumps(record, sort_keys=DETERMINISTIC, separators=(",", ":")).encode()
    match ABI:
        case "v1":
            return _encode_v1(payload)
        case "v2":
            return _encode_v2(payload)
        case _:
            raise ValueError(f"payment-engine has no wire format for ABI {ABI}; it knows v1 and v2")


def _encode_v1(payload: bytes) -> bytes:
    if len(payload) > 0xFFFF:
        raise ValueError("a v1 frame holds at most 65,535 bytes")
    return struct.pack(">2sBH", MAGIC, 1, len(payload)) + payload


def _encode_v2(payload: bytes) -> bytes:
    flags = 0
    if OPT_LEVEL >= 2:
        payload, flags = zlib.compress(payload, 9), DEFLATED
    return struct.pack(">2sBBII", MAGIC, 2, flags, len(payload), zlib.crc32(payload)) + payload
