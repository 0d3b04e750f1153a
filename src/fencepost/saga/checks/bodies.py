"""What can be seen of a body without running it: the effects and steps that its code names."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fencepost.context import TransactionalContext
from fencepost.effects import Effect, EffectKind
from fencepost.findings import Finding, Severity, source_of
from fencepost.saga.checks import rules
from fencepost.saga.steps import Step

_NOTHING = object()
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


def check_step(step: Step[Any, Any], place: str) -> Iterator[Finding]:
    """All findings about a step by itself."""
    source = source_of(step.function)
    context = step.context_type
    if context is not None and issubclass(context, TransactionalContext) and not step.transactional:
        said = f"it takes a {context.__name__}, and isn't transactional"
        yield rules.NEEDS_TRANSACTION.at(place, said, source=source)
    for effect in step.effects:
        if (effect.kind is EffectKind.TRANSACTIONAL) is not step.transactional:
            kind = "is transactional" if step.transactional else "isn't"
            said = f"effect {effect.name!r} is {effect.kind}, and the step {kind}"
            yield rules.WRONG_STEP.at(place, said, source=source)
    yield from undeclared(step.function, step.effects, place)


def undeclared(
    function: Any, declared: tuple[Effect[Any, Any], ...], place: str
) -> Iterator[Finding]:
    """Effects that a body names and doesn't declare.

    Effects of one name are the same one here: two of them are for another rule.
    """
    source = source_of(function)
    known = {effect.name for effect in declared}
    for value in dict.fromkeys(v for v in named_in(function) if isinstance(v, Effect)):
        if value.name not in known:
            known.add(value.name)
            said = f"its code names effect {value.name!r}, which it doesn't declare"
            yield rules.UNDECLARED.at(place, said, source=source)
    for helper in helpers_of(function):
        for value in dict.fromkeys(v for v in named_in(helper) if isinstance(v, Effect)):
            if value.name not in known:
                known.add(value.name)
                said = f"it calls {helper.__name__!r}, which names effect {value.name!r}"
                yield rules.UNDECLARED.at(place, said, severity=Severity.WARNING, source=source)


def helpers_of(function: Any) -> list[FunctionType]:
    """Functions of the same top-level package that a body names, and those that they name."""
    package = str(getattr(function, "__module__", "")).partition(".")[0]
    found: dict[FunctionType, None] = {}
    todo = [function]
    while todo:
        for value in named_in(todo.pop()):
            near = str(getattr(value, "__module__", "")).partition(".")[0] == package
            if isinstance(value, FunctionType) and near and value not in found:
                found[value] = None
                todo.append(value)
    found.pop(function, None)
    return list(found)


def named_in(function: Any) -> Iterator[Any]:
    """The objects that a function's code, and code inside of it, names; `a.b` is one name."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType):
        return
    free: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            free[name] = cell.cell_contents
        except ValueError:  # a cell that is still empty
            continue
    yield from _named(function.__code__, function.__globals__, free)


def _named(code: CodeType, known: dict[str, Any], free: dict[str, Any]) -> Iterator[Any]:
    value: Any = _NOTHING
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOADS:
            if value is not _NOTHING:
                yield value
            name = str(instruction.argval)
            value = free.get(name, known.get(name, _NOTHING))
        elif instruction.opname in _ATTRIBUTES and value is not _NOTHING:
            value = _attribute(value, str(instruction.argval))
        elif value is not _NOTHING and instruction.opname != "CACHE":
            yield value
            value = _NOTHING
    if value is not _NOTHING:
        yield value
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named(constant, known, free)


def _attribute(value: Any, name: str) -> Any:
    # Only what lies there: a property would run the user's code.
    if not isinstance(value, ModuleType) and isinstance(value, Effect | Step):
        return _NOTHING
    for holder in (value, *(type(value).__mro__ if not isinstance(value, type) else value.__mro__)):
        found = getattr(holder, "__dict__", {}).get(name, _NOTHING)
        if found is not _NOTHING:
            return found
    return _NOTHING
