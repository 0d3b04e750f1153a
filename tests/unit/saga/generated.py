"""Sagas at random: right ones and wrong ones, of every construct."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal

from hypothesis import strategies as st

from fencepost import (
    STAYS,
    AllSucceed,
    Collect,
    ErrorBranch,
    Failure,
    FirstFailure,
    Quorum,
    RetryPolicy,
    Saga,
    Signal,
    Step,
    step,
)
from fencepost.saga.nodes import BranchNode, LoopNode, MapNode, StepNode, flattened
from tests.unit.saga.pool import (
    Box,
    Item,
    Level,
    Mode,
    Money,
    Named,
    NamedAndSized,
    Price,
    Priced,
    Size,
    values,
)

COMMON: list[Any] = [
    int,
    float,
    bool,
    str,
    None,
    datetime,
    Size,
    Level,
    Item,
    Priced,
    Money,
    Price,
    Named,
    NamedAndSized,
    Box[int],
    Box[float],
    int | None,
    int | str,
    list[int],
    list[float],
    tuple[int, ...],
    list[Priced],
    dict[str, int],
    Literal["small"],
]
"""Types that steps take and give; many fit each other."""

CASES: dict[Any, list[Any]] = {
    bool: [True, False],
    Size: list(Size),
    Mode: list(Mode),
    Literal["a", "b"]: ["a", "b"],
}

ONCE = RetryPolicy(attempts=1)


class OutOfStockError(Exception):
    """What steps fail with."""


class LostError(OutOfStockError):
    """So do others."""


ERRORS: list[type[Exception]] = [OutOfStockError, LostError, ValueError]
BRANCH_ERRORS: list[type[Exception]] = [*ERRORS, Exception]


def plain(declared: Any) -> Any:
    return type(None) if declared is None else declared


def annotated(function: Callable[..., Any], given: Any, returned: Any, name: str) -> Any:
    """The function with annotations, as if it were written so."""
    function.__annotations__ = {"value": given, "return": returned}
    function.__name__ = name
    return function


@dataclass
class Maker:
    """Draws sagas.

    Attributes:
        data: Where all choices come from.
        names: Numbers for names.
        made: Steps that error branches may undo.
    """

    data: st.DataObject
    names: Any = field(default_factory=lambda: count(1))
    made: list[Step[Any, Any]] = field(default_factory=list)

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        return self.data.draw(strategy)

    def chance(self, percent: int) -> bool:
        return bool(self.draw(st.sampled_from(range(100))) < percent)

    def name(self, what: str) -> str:
        return f"{what}{next(self.names)}"

    def near(self, declared: Any) -> Any:
        """Mostly the same type: it is the links that shall be right more often than not."""
        return declared if self.chance(95) else self.draw(st.sampled_from(COMMON))

    def any_type(self) -> Any:
        return self.draw(st.sampled_from(COMMON))

    # -- functions -------------------------------------------------------------------------

    def function(self, given: Any, returned: Any, result: Any, name: str) -> Any:
        def body(value: Any) -> Any:
            return result

        return annotated(body, given, returned, name)

    def step(self, given: Any, *, undone: bool = True) -> Step[Any, Any]:
        taken, returned = self.near(given), self.any_type()
        result = self.draw(values(plain(returned)))
        fails = self.draw(st.sampled_from(ERRORS)) if self.chance(10) else None

        def body(value: Any) -> Any:
            if fails is not None:
                raise fails("as drawn")
            return result

        compensate: Any = None
        if undone and self.chance(30):
            compensate = self.undo(returned)
        elif undone and self.chance(10):
            compensate = STAYS
        name = self.name("step")
        made = step(name=name, retry=ONCE, compensate=compensate)(
            annotated(body, taken, returned, name)
        )
        self.made.append(made)
        return made

    def undo(self, given: Any) -> Step[Any, Any]:
        name = self.name("undo")
        return step(name=name)(self.function(self.near(given), None, None, name))

    # -- sagas -----------------------------------------------------------------------------

    def saga(self, depth: int = 0, given: Any = ...) -> Saga[Any, Any]:
        declared = self.any_type() if given is ... else self.near(given)
        saga: Any = Saga(self.name("saga"), input=declared)
        saga = self.nodes(saga, depth, least=1)
        if self.chance(30):
            saga = saga.on_error(self.error_branch(saga))
        return saga  # type: ignore[no-any-return]

    def path(self, given: Any, depth: int, least: int = 0) -> Saga[Any, Any]:
        made: Saga[Any, Any] = self.nodes(
            Saga(self.name("path"), input=self.near(given)), depth + 1, least=least
        )
        return made

    def nodes(self, saga: Any, depth: int, least: int) -> Any:
        for _ in range(self.draw(st.integers(least, 3))):
            saga = self.node(saga, depth)
        return saga

    def node(self, saga: Any, depth: int) -> Any:
        out = saga.output_type
        kinds = ["step", "step", "sleep", "until", "wait", "approval"]
        if depth < 2:
            kinds += ["map", "map", "map", "child", "branch", "branch", "loop", "loop"]
        if depth == 0:
            kinds.append("pivot")
        made: Any = getattr(self, f"with_{self.draw(st.sampled_from(kinds))}")(saga, out, depth)
        return made

    def with_step(self, saga: Any, out: Any, _: int) -> Any:
        return saga.then(self.step(out))

    def with_pivot(self, saga: Any, out: Any, _: int) -> Any:
        return saga.pivot(self.step(out, undone=False))

    def with_sleep(self, saga: Any, _: Any, __: int) -> Any:
        return saga.sleep(self.name("sleep"), timedelta(seconds=1))

    def with_until(self, saga: Any, out: Any, _: int) -> Any:
        moment = datetime(1970, 1, 1, 0, 20, tzinfo=UTC)
        at = self.function(self.near(out), datetime, moment, "at")
        return saga.until(self.name("until"), at)

    def with_wait(self, saga: Any, _: Any, __: int) -> Any:
        timeout = timedelta(seconds=1) if self.chance(20) else timedelta(minutes=1)
        return saga.wait_for(Signal(self.name("signal"), self.any_type()), timeout=timeout)

    def with_approval(self, saga: Any, _: Any, __: int) -> Any:
        return saga.approval(self.name("approval"), timeout=timedelta(minutes=1))

    def with_child(self, saga: Any, out: Any, depth: int) -> Any:
        return saga.child(self.saga(depth + 1, out), name=self.name("child"))

    def with_map(self, saga: Any, _: Any, depth: int) -> Any:
        item = self.any_type()
        items = self.draw(st.lists(values(plain(item)), max_size=3))
        over = self.function(self.near(saga.output_type), list[item], items, "over")  # type: ignore[valid-type]
        joins = [AllSucceed(), FirstFailure(), Collect()]
        if items:
            joins.append(Quorum(self.draw(st.integers(1, len(items)))))
        return saga.map(
            self.saga(depth + 1, item),
            over=over,
            name=self.name("map"),
            join=self.draw(st.sampled_from(joins)),
            max_items=3,
            max_concurrency=self.draw(st.integers(1, 3)),
        )

    def with_branch(self, saga: Any, out: Any, depth: int) -> Any:
        declared = self.draw(st.sampled_from(list(CASES)))
        cases = CASES[declared]
        chosen = self.draw(st.sampled_from(cases))
        there = cases if self.chance(85) else cases[:1]
        default = self.path(out, depth) if self.chance(30) else None
        return saga.branch(
            self.name("branch"),
            choose=self.function(self.near(out), declared, chosen, "choose"),
            cases={case: self.path(out, depth) for case in there},
            default=default,
        )

    def with_loop(self, saga: Any, out: Any, depth: int) -> Any:
        body = self.path(out, depth, least=1)
        returned = body.output_type if self.chance(50) else out
        if returned in COMMON and (returned is not body.output_type or self.chance(50)):
            # What gives the next pass what it takes.
            name = self.name("step")
            result = self.draw(values(plain(returned)))
            body = body.then(
                step(name=name)(self.function(body.output_type, returned, result, name))
            )
        passes = self.draw(st.integers(1, 4))
        asked = count(1)

        def again(value: Any) -> bool:
            return bool(next(asked) % passes)

        return saga.loop(
            self.name("loop"),
            body,
            again=annotated(again, self.near(body.output_type), bool, "again"),
            max_visits=3,
        )

    def to_undo(self, saga: Any) -> list[Step[Any, Any]]:
        """Mostly steps of the saga that don't say yet how they are undone."""
        steps = [node.step for node in flattened(saga.nodes) if isinstance(node, StepNode)]
        fitting = [one for one in steps if one.compensation is None and not one.stays]
        return fitting if fitting and self.chance(80) else self.made

    def error_branch(self, saga: Any) -> Any:
        branch: Any = ErrorBranch(self.draw(st.sampled_from(BRANCH_ERRORS)))
        if self.made and self.chance(40):
            of = self.draw(st.sampled_from(self.to_undo(saga)))
            branch = branch.compensate(of, self.undo(of.output_type))
        given: Any = Failure.__class_getitem__(plain(saga.input_type))
        for _ in range(self.draw(st.integers(0, 2))):
            made = self.step(given, undone=False)
            branch, given = branch.then(made), made.output_type
        if saga.output_type in COMMON and self.chance(50):
            name = self.name("step")
            result = self.draw(values(plain(saga.output_type)))
            last = step(name=name)(self.function(given, saga.output_type, result, name))
            branch = branch.finish(last)
        return branch


def constructs_of(saga: Saga[Any, Any]) -> set[str]:
    """What a saga and its children are made of, for a count of what was tried."""
    found = set()
    for one in saga.descendants():
        found |= {f"error branch {'with' if b.nodes else 'without'} steps" for b in one.branches}
        for node in one.all_nodes():
            match node:
                case StepNode():
                    found.add("pivot" if node.pivot else "step")
                    found |= {"compensation"} if one.undo_of(node.step, None) else set()
                case MapNode():
                    found.add("child" if node.single else type(node.join).__name__)
                case BranchNode():
                    found.add("branch")
                case LoopNode():
                    found.add("loop")
                case _:
                    found.add(str(node.kind))
    return found
