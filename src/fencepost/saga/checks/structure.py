"""Names, ends, paths and choices: whether a saga's parts stand where they can work."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

from fencepost.findings import Finding, source_of
from fencepost.saga.checks import rules
from fencepost.saga.checks.walk import Layout, Place
from fencepost.saga.definition import Saga
from fencepost.saga.fitting import is_union, plain
from fencepost.saga.nodes import (
    BranchNode,
    LoopNode,
    MapNode,
    Node,
    StepNode,
    TerminalKind,
    case_label,
)
from fencepost.serde import describe

NO_CASES_LISTED = 5
"""Cases that a message names; the rest is counted."""


def check(layout: Layout) -> Iterator[Finding]:
    """All findings about a saga's structure."""
    saga = layout.saga
    if not saga.nodes:
        yield rules.EMPTY.at(saga.name, "it has no steps")
    yield from _names(layout)
    yield from _ends(layout)
    yield from _paths(layout)
    for place in layout.places:
        match place.node:
            case BranchNode():
                yield from _choice(place, place.node)
            case MapNode() if _continues(place.node.child):
                yield rules.CHILD_CONTINUES.at(
                    place.name, f"its child saga {place.node.child.name!r} may continue as new"
                )


def _names(layout: Layout) -> Iterator[Finding]:
    first: dict[str, list[Place]] = {}
    for place in layout.places:
        name = place.node.name
        clashing = [one for one in first.get(name, ()) if not _may_share(one, place)]
        if clashing:
            said = f"there is another {name!r} at {clashing[0].name}"
            yield rules.DUPLICATE_NAME.at(place.name, said)
        first.setdefault(name, []).append(place)
    known: dict[str, Node] = {name: places[0].node for name, places in first.items()}
    for branch in layout.saga.branches:
        here: set[str] = set()
        for node in branch.nodes:
            other = known.setdefault(node.name, node)
            if node.name in here or not _same_step(other, node):
                where = f"{layout.saga.name}/on {branch.error.__name__}/{node.name}"
                yield rules.DUPLICATE_NAME.at(where, f"there is another {node.name!r}")
            here.add(node.name)


def _may_share(one: Place, other: Place) -> bool:
    """Whether no execution comes to both in one pass, and they are the same step."""
    taken = dict(one.alternatives)
    exclusive = any(taken.get(at, case) != case for at, case in other.alternatives)
    return exclusive and _same_step(one.node, other.node)


def _same_step(one: Node, other: Node) -> bool:
    return isinstance(one, StepNode) and isinstance(other, StepNode) and one.step is other.step


def _ends(layout: Layout) -> Iterator[Finding]:
    for place, node in layout.steps:
        if node.terminal is not None and (place.inside or not place.last):
            where = "it is on a path" if place.inside else "other steps come after it"
            yield rules.TERMINAL_NOT_LAST.at(place.name, f"it ends the execution, and {where}")
    for branch in layout.saga.branches:
        for node in branch.nodes[:-1]:
            if node.terminal is not None:
                where = f"{layout.saga.name}/on {branch.error.__name__}/{node.name}"
                said = "it ends the execution, and other steps come after it"
                yield rules.TERMINAL_NOT_LAST.at(where, said)


def _paths(layout: Layout) -> Iterator[Finding]:
    for end in layout.paths:
        if isinstance(end.node, LoopNode) and not end.path.nodes:
            yield rules.EMPTY_PATH.at(end.name, "its body has no steps")
        ignored = {
            "error branches": bool(end.path.branches),
            "a deadline": end.path.deadline is not None,
            "a queue": end.path.queue is not None,
        }
        found = [what for what, there in ignored.items() if there]
        if found:
            said = f"saga {end.path.name!r} is used as a path, and has {' and '.join(found)}"
            yield rules.PATH_IGNORES.at(end.name, said)


def _continues(saga: Saga[Any, Any]) -> bool:
    return any(
        isinstance(node, StepNode) and node.terminal is TerminalKind.CONTINUE_AS_NEW
        for node in saga.all_nodes()
    )


# -- choices -------------------------------------------------------------------------------


def _choice(place: Place, node: BranchNode) -> Iterator[Finding]:
    source = source_of(node.choose)
    possible = cases_of(node.case_type)
    if possible is None:
        if node.default is None:
            said = f"it chooses by {describe(node.case_type)}, and has no default"
            yield rules.NOT_EXHAUSTIVE.at(place.name, said, fix="add default=...", source=source)
        return
    missing = [case for case in possible if case not in node.cases]
    if missing and node.default is None:
        said = f"it has no path for {_listed(missing)}"
        yield rules.NOT_EXHAUSTIVE.at(place.name, said, source=source)
    unknown = [case for case in node.cases if case not in possible]
    if unknown:
        said = f"{describe(node.case_type)} has no {_listed(unknown)}"
        yield rules.UNKNOWN_CASE.at(place.name, said, source=source)


def _listed(cases: list[str]) -> str:
    more = len(cases) - NO_CASES_LISTED
    return ", ".join(map(repr, cases[:NO_CASES_LISTED])) + (f" and {more} more" if more > 0 else "")


def cases_of(declared: Any) -> list[str] | None:
    """The labels that a value of this type may have; None where there is no end of them."""
    declared = plain(declared)
    if is_union(declared):
        parts = [cases_of(part) for part in typing.get_args(declared)]
        if None in parts:
            return None
        return list(dict.fromkeys(label for part in parts for label in part or ()))
    members: tuple[Any, ...] | None = {bool: (False, True), type(None): (None,)}.get(declared)
    if typing.get_origin(declared) is typing.Literal:
        members = typing.get_args(declared)
    elif isinstance(declared, type) and issubclass(declared, Enum):
        members = tuple(declared)
    return None if members is None else [case_label(member) for member in members]
