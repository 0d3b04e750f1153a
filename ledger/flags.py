"""Build flags: `--name` or `--name=value`, and what the builder makes of the ones it knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ledger.vocabulary import FLAG_PATTERN

DEFAULT_ABI = "v1"
MAX_OPT_LEVEL = 3

_FLAG = re.compile(FLAG_PATTERN)
_ABI = re.compile(r"^v[1-9][0-9]{0,2}$")


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What the flags mean to the builder.

    Attributes:
        opt_level: 0 to 3, from `--opt-level=N`.
        deterministic: Whether `--deterministic` is given.
        abi: The wire ABI that is built in, from `--abi-compat=vN`.
    """

    opt_level: int = 0
    deterministic: bool = False
    abi: str = DEFAULT_ABI


def name_of(flag: str) -> str:
    """`--abi-compat` of `--abi-compat=v2`."""
    return flag.partition("=")[0]


def problem_with(flag: str) -> str | None:
    """Why a flag can't be used, or None. Flags that the builder doesn't know are fine."""
    if not _FLAG.fullmatch(flag):
        return (
            f"{flag!r} is not a flag of the form --name or --name=value"
            " (names: lower-case letters, digits, hyphens; values: no spaces or quotes)"
        )
    name, _, value = flag.partition("=")
    match name:
        case "--opt-level" if value not in {str(level) for level in range(MAX_OPT_LEVEL + 1)}:
            return f"{flag!r}: the level is a number from 0 to {MAX_OPT_LEVEL}"
        case "--deterministic" if value:
            return f"{flag!r}: --deterministic takes no value"
        case "--abi-compat" if not _ABI.fullmatch(value):
            return f"{flag!r}: the ABI is written v1, v2, ..."
        case _:
            return None


def conflicts(flags: Sequence[str]) -> list[str]:
    """Names of flags that are given more than once, in order, each once."""
    names = [name_of(flag) for flag in flags]
    return [name for name in dict.fromkeys(names) if names.count(name) > 1]


def allows(allowed: Iterable[str], flag: str) -> bool:
    """Whether a policy's entries permit a flag: exactly, or by `--name=*`."""
    wildcard = f"{name_of(flag)}=*"
    return any(entry == flag or (entry == wildcard and "=" in flag) for entry in allowed)


def parse(flags: Sequence[str]) -> BuildOptions:
    """The builder's options.

    Raises:
        ValueError: A flag can't be used, or one is given twice.
    """
    problems = [problem for flag in flags if (problem := problem_with(flag))]
    problems += [f"{name} is given more than once" for name in conflicts(flags)]
    if problems:
        raise ValueError("; ".join(problems))
    values = {name_of(flag): flag.partition("=")[2] for flag in flags}
    return BuildOptions(
        opt_level=int(values.get("--opt-level", "0")),
        deterministic="--deterministic" in values,
        abi=values.get("--abi-compat", DEFAULT_ABI),
    )
