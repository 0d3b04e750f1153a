"""The offline stand-in's reasoning: which allowed flag answers what the diagnostics complain about.

Pure text in, flags out. It knows no release, module or flag by name: it reads a flag such as
`--abi-compat=v2` as *topic* words (`abi`, `compat`) and a *value* (`v2`), and looks for a
sentence on that topic that says which value is needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ledger import flags as build_flags

_AT_LEAST = r"minimum|at least|not below|no older than|oldest"
_EXACTLY = (
    r"expect(?:s|ed|ing)?|requir(?:es?|ed|ing)|needs?|needed|wants?|wanted|must (?:be|speak|use)"
    r"|understands? only|only understands?|accepts? only|only accepts?|supports? only"
    r"|only supports?|reads? only|only reads?"
)
_FOUND = (
    r"found|got|built|says?|speaks?|was|were|actual|received|sent|sends?|instead of|rather than"
    r"|wrote|writes?|encod(?:es|ed)|announces?|but"
)
_MARK = re.compile(
    rf"\b(?:(?P<least>{_AT_LEAST})|(?P<exactly>{_EXACTLY})|(?P<found>{_FOUND}))\b", re.IGNORECASE
)
_WORD = re.compile(r"[A-Za-z]+")
_VERSION = re.compile(r"\b(?P<v>v?)(?P<number>\d{1,6}(?:\.\d{1,6}){0,3})\b", re.IGNORECASE)
_SENTENCE = re.compile(r"\n+|(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class Need:
    """A version that a sentence asks for.

    Attributes:
        text: As it is written there, such as `v2`.
        or_later: Whether later versions do as well.
    """

    text: str
    or_later: bool

    def is_met_by(self, value: str) -> bool:
        """Whether a flag's value answers this need."""
        have, need = _numbers(value), _numbers(self.text)
        if have is None or need is None:
            return value.lower() == self.text.lower()
        return have >= need if self.or_later else have == need


@dataclass(frozen=True, slots=True)
class Deduction:
    """What was deduced.

    Attributes:
        added: Allowed flags that answer the diagnostics, not set yet; may be empty.
        removed: Flags of the failed attempt that give way to them.
        evidence: The sentences that the added flags rest on, in the same order.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    evidence: tuple[str, ...]


def deduce(diagnostics: str, *, allowed: Sequence[str], current: Sequence[str]) -> Deduction:
    """Find the allowed flags that the diagnostics ask for.

    Args:
        diagnostics: What the failed attempt left behind.
        allowed: What the policy allows: `--name=value`, `--name=*` or `--name`.
        current: The flags that the failed attempt had.
    """
    sentences = [part.strip() for part in _SENTENCE.split(diagnostics) if part.strip()]
    found: dict[str, tuple[str, str, list[str]]] = {}
    for entry in sorted(allowed, key=_by_value):
        name = build_flags.name_of(entry)
        if name in found:
            continue
        rivals = [flag for flag in current if build_flags.name_of(flag) == name]
        if not all(build_flags.allows(allowed, flag) for flag in rivals):
            continue
        for sentence in sentences:
            flag = _answer(entry, sentence)
            if flag is not None and flag not in current:
                found[name] = (flag, sentence, rivals)
                break
    return Deduction(
        added=tuple(flag for flag, _, _ in found.values()),
        removed=tuple(flag for _, _, rivals in found.values() for flag in rivals),
        evidence=tuple(sentence for _, sentence, _ in found.values()),
    )


def needs_in(sentence: str) -> list[Need]:
    """The versions that a sentence asks for; those that it merely found don't count.

    A version belongs to the nearest word before it that says what it is; each such word speaks
    of one version only ("the minimum is ABI v2 (a header of 12 bytes)" asks for one thing).
    """
    needs = []
    marks = list(_MARK.finditer(sentence))
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        end = following.start() if following else len(sentence)
        version = _VERSION.search(sentence, mark.end(), end)
        if version and not mark["found"]:
            needs.append(Need(version.group(), or_later=bool(mark["least"])))
    return needs


def _answer(entry: str, sentence: str) -> str | None:
    name, _, value = entry.partition("=")
    topic = {word.lower() for word in _WORD.findall(name)}
    words = {word.lower() for word in _WORD.findall(sentence)}
    if not value:
        asked = any(not mark["found"] for mark in _MARK.finditer(sentence))
        return entry if topic <= words and asked else None
    if not topic & words:
        return None
    for need in needs_in(sentence):
        if value == "*":
            return f"{name}={need.text}"
        if need.is_met_by(value):
            return entry
    return None


def _by_value(entry: str) -> tuple[tuple[int, ...], str]:
    """The lowest version first: of two that would do, the smaller change."""
    return _numbers(entry.partition("=")[2]) or (), entry


def _numbers(value: str) -> tuple[int, ...] | None:
    match = _VERSION.fullmatch(value)
    return tuple(int(part) for part in match["number"].split(".")) if match else None
