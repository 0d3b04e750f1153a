"""Making a program's output fit to be kept: secrets out, size bounded, storable everywhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

TAIL_CHARACTERS = 16_384
"""How much of a program's output is kept, counted from its end."""

REDACTED = "[redacted]"
_SHORTEST_SECRET = 6

_SECRET_NAME = r"(?:pass(?:word|wd|phrase)?|secret|token|api[_-]?key|access[_-]?key|signing[_-]?key|private[_-]?key|credential|authorization)"  # noqa: E501, S105 - a pattern
_NAMED = re.compile(
    rf"""((?:["']?)[\w.-]*{_SECRET_NAME}[\w.-]*["']?\s*[=:]\s*)("[^"\n]*"|'[^'\n]*'|[^\s,;}}]+)""",
    re.IGNORECASE,
)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.S),
        REDACTED,
    ),
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), rf"\1 {REDACTED}"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+@", re.IGNORECASE), rf"\1{REDACTED}@"),
    (re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}"), REDACTED),
    (re.compile(r"\b(?:gh[pousr]|glpat|xox[abprs])[_-][A-Za-z0-9_-]{16,}"), REDACTED),
    (re.compile(r"\bAKIA[0-9A-Z]{16}\b"), REDACTED),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"), REDACTED),
    (_NAMED, rf"\1{REDACTED}"),
)
_ENVIRONMENT = re.compile(rf"{_SECRET_NAME}|(?:^|_)KEY$", re.IGNORECASE)


def secret_values(environment: Mapping[str, str] | None = None) -> list[str]:
    """Values of variables whose names say that they are secret, longest first."""
    variables = os.environ if environment is None else environment
    found = {
        value
        for name, value in variables.items()
        if _ENVIRONMENT.search(name) and len(value) >= _SHORTEST_SECRET
    }
    return sorted(found, key=len, reverse=True)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Take out given secrets, and what looks like one.

    Args:
        text: Any output.
        secrets: Exact values that must not remain.
    """
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def storable(output: bytes, *, cut: bool = False, secrets: Iterable[str] = ()) -> str:
    """The end of an output as text that any database takes.

    Args:
        output: Its last bytes.
        cut: Whether something before them is missing. The first, partial line then goes too: it
            could be the end of a secret.
        secrets: As for `redact`.
    """
    text = output.decode("utf-8", errors="replace").replace("\x00", "\ufffd")
    if cut and "\n" in text:
        text = text.partition("\n")[2]
    return redact(text, secrets)[-TAIL_CHARACTERS:]
