"""A saga laid out for the checks: every place of it, with what comes in there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from fencepost.saga.fitting import plain
from fencepost.saga.nodes import BranchNode, LoopNode, Node, StepNode, WaitKind, WaitNode

if TYPE_CHECKING:
    from fencepost.saga.definition import Saga

PASSED_ON = frozenset({WaitKind.SLEEP, WaitKind.UNTIL, WaitKind.APPROVAL})

"""What goes out of such a wait is what came in."""

OTHERWISE = "*"
"""How the default path is shown."""


@dataclass(frozen=True)
class Place:
    """A node of a saga's main line, at any depth.

    Attributes:
        name: `saga/loop/step`.
        node: What is there.
        given: The type of what comes in.
        giver: Who gives it.
        inside: The branches and loops around it, the outermost first.
        alternatives: The paths of branches that it is on, as (branch, case).
        past_pivot: Whether the pivot has been come past for certain.
        last: Whether nothing comes after it, at any depth.
    """

    name: str
    node: Node
    given: Any
    giver: str
    inside: tuple[Node, ...]
    alternatives: frozenset[tuple[str, str]]
    past_pivot: bool
    last: bool


@dataclass(frozen=True)
class PathEnd:
    """The end of a path: what comes out of it, and what is to be done with that.

    Attributes:
        name: Of the path, as `saga/loop`.
        path: The path.
        entered: The type of what comes in.
        left: The type of what comes out.
        node: The branch or loop.
    """

    name: str
    path: Saga[Any, Any]
    entered: Any
    giver: str
    left: Any
    node: BranchNode | LoopNode


@dataclass(frozen=True)
class _Line:
    """Where a sequence of nodes stands."""

    name: str
    inside: tuple[Node, ...] = ()
    alternatives: frozenset[tuple[str, str]] = frozenset()
    last: bool = True


class Layout:
    """All places of a saga's main line and paths.

    Args:
        saga: The saga.

    Attributes:
        places: In the order in which they stand.
        paths: The paths of its branches and loops.
        left: The type of what the main line ends with.
    """

    def __init__(self, saga: Saga[Any, Any]) -> None:
        self.saga = saga
        self.places: list[Place] = []
        self.paths: list[PathEnd] = []
        self._past_pivot = False
        self.left = self._along(saga.nodes, saga.input_type, f"saga {saga.name}", _Line(saga.name))

    def _along(self, nodes: Sequence[Node], given: Any, giver: str, line: _Line) -> Any:
        for number, node in enumerate(nodes, 1):
            place = Place(
                f"{line.name}/{node.name}",
                node,
                given,
                giver,
                line.inside,
                line.alternatives,
                self._past_pivot,
                line.last and number == len(nodes),
            )
            self.places.append(place)
            given, giver = self._past(place)
        return given

    def _past(self, place: Place) -> tuple[Any, str]:
        """The type of what the next node is given, and who gives it."""
        node = place.node
        match node:
            case BranchNode():
                return self._branch(place, node), node.name
            case LoopNode():
                return self._path(place, node, node.body, "", last=False), node.name
            case WaitNode() if node.kind in PASSED_ON:
                return place.given, place.giver
            case StepNode() if node.pivot and not place.inside:
                self._past_pivot = True
        return node.output_type, node.name

    def _branch(self, place: Place, node: BranchNode) -> Any:
        cases: list[tuple[str, Saga[Any, Any]]] = list(node.cases.items())
        if node.default is not None:
            cases.append((OTHERWISE, node.default))
        out = [self._path(place, node, path, label, last=place.last) for label, path in cases]
        distinct: list[Any] = []
        for declared in map(plain, out):
            if declared not in distinct:
                distinct.append(declared)
        return Union.__getitem__(tuple(distinct)) if distinct else place.given

    def _path(
        self,
        place: Place,
        node: BranchNode | LoopNode,
        path: Saga[Any, Any],
        label: str,
        *,
        last: bool,
    ) -> Any:
        name = f"{place.name}[{label}]" if label else place.name
        alternatives = place.alternatives | ({(place.name, label)} if label else set())
        line = _Line(name, (*place.inside, node), frozenset(alternatives), last)
        left = self._along(path.nodes, path.input_type, f"path {name}", line)
        self.paths.append(PathEnd(name, path, place.given, place.giver, left, node))
        return left

    @property
    def steps(self) -> Iterator[tuple[Place, StepNode]]:
        """The places at which a step runs."""
        for place in self.places:
            if isinstance(place.node, StepNode):
                yield place, place.node
