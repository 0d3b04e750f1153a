"""Structured header fields (RFC 8941): items that are strings or tokens, with parameters. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

from fencepost.errors import PayloadError

Bare = str | int | bool

_STRING = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_TOKEN = re.compile(r"[A-Za-z*][\w!#$%&'*+.^`|~:/-]*", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,15}(?![0-9.])")
_KEY = re.compile(r" *([a-z*][a-z0-9_.*-]*)")
_PRINTABLE = "".join(chr(c) for c in range(0x20, 0x7F) if chr(c) != "%")


class HeaderError(PayloadError):
    """A header field isn't what it should be."""

    code = "sink.invalid-header"


def printable(text: str) -> str:
    """A text with what isn't printable ASCII percent-encoded."""
    return quote(text, safe=_PRINTABLE)


def string(text: str) -> str:
    """A text as a structured string; what isn't printable ASCII is percent-encoded."""
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def item(value: str, parameters: Mapping[str, str | int]) -> str:
    """A string with parameters, as a header field's value."""
    written = (f";{k}={v if isinstance(v, int) else string(v)}" for k, v in parameters.items())
    return string(value) + "".join(written)


def parse_item(field: str) -> tuple[Bare, dict[str, Bare]]:
    """Read an item: its value and its parameters; strings are percent-decoded.

    Raises:
        HeaderError: Says where the field stops making sense.
    """
    text = field.strip(" ")
    value, end = _bare(text, 0)
    parameters: dict[str, Bare] = {}
    while end < len(text):
        key = _KEY.match(text, end + 1)
        if text[end] != ";" or key is None:
            raise HeaderError(f"not a structured field from character {end}: {field[:200]!r}")
        end = key.end()
        parameters[key[1]] = True
        if text[end : end + 1] == "=":
            parameters[key[1]], end = _bare(text, end + 1)
    return value, parameters


def _bare(text: str, start: int) -> tuple[Bare, int]:
    if found := _STRING.match(text, start):
        plain = re.sub(r"\\(.)", r"\1", found[1])
        try:
            return unquote(plain, errors="strict"), found.end()
        except UnicodeDecodeError as problem:
            raise HeaderError(f"not text in UTF-8: {plain[:200]!r}") from problem
    if found := _INTEGER.match(text, start):
        return int(found[0]), found.end()
    if found := _TOKEN.match(text, start):
        return found[0], found.end()
    raise HeaderError(f"not a structured field from character {start}: {text[:200]!r}")
