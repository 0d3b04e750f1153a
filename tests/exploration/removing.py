"""Removing a guard of the protocol from the code that runs, and putting it back."""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cut:
    """A change of a function's source.

    Attributes:
        where: `module:function` or `module:Class.method`.
        old: What is there, exactly once.
        new: What is there instead.
    """

    where: str
    old: str
    new: str


@contextmanager
def without(cuts: Sequence[Cut]) -> Iterator[None]:
    """The functions as they are without their guards, until the end.

    Raises:
        LookupError: A function doesn't have what is to be cut: the guard has moved.
    """
    changes: dict[str, list[Cut]] = defaultdict(list)
    for cut in cuts:
        changes[cut.where].append(cut)
    originals: list[tuple[Any, str, Any]] = []
    try:
        for where, mine in changes.items():
            owner, name, module = _found(where)
            originals.append((owner, name, vars(owner)[name]))
            setattr(owner, name, _changed(vars(owner)[name], mine, module))
        yield
    finally:
        for owner, name, original in reversed(originals):
            setattr(owner, name, original)


def _found(where: str) -> tuple[Any, str, Any]:
    module_name, _, path = where.partition(":")
    module = importlib.import_module(module_name)
    owner: Any = module
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    if name not in vars(owner):
        raise LookupError(f"there is no {where}")
    return owner, name, module


def _changed(function: Any, cuts: Sequence[Cut], module: Any) -> Any:
    source = textwrap.dedent(inspect.getsource(function))
    for cut in cuts:
        if source.count(cut.old) != 1:
            raise LookupError(f"{cut.where} has {source.count(cut.old)} times: {cut.old}")
        source = source.replace(cut.old, cut.new)
    made: dict[str, Any] = {}
    header = "from __future__ import annotations\n"
    exec(compile(header + source, f"<without {cuts[0].where}>", "exec"), vars(module), made)
    return made[function.__name__]
