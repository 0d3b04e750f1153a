"""Sinks in memory, one of each kind, that remember what lands and judge it themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost import Effect, EffectCall, EffectKind
from fencepost.effects import Landed, NotLanded, Unknown
from fencepost.errors import StaleLeaseFenceError
from fencepost.fence import FenceToken
from fencepost.records import Execution, Status
from fencepost.testing.explore import Verdict, World

DO, UNDO = "do", "undo"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that has landed, in the order of landing."""

    act: str
    what: str
    key: str


class Sink:
    """Where the effects of a scenario land.

    Args:
        kind: What it can do.
        name: Of the sink, and in its effects' names.

    Attributes:
        entries: What has landed.
        do: The effect whose landing is judged.
        undo: The effect that takes it back.
    """

    def __init__(self, kind: EffectKind, name: str = "bank") -> None:
        self.kind = kind
        self.name = name
        self.world: World | None = None
        self.entries: list[Entry] = []
        self._results: dict[str, str] = {}
        self._marks: dict[tuple[str, object], int] = {}
        self.do = self._declare(DO)
        self.undo = self._declare(UNDO)

    def begin(self, world: World) -> None:
        """Forget an earlier run."""
        self.world = world
        self.entries.clear()
        self._results.clear()
        self._marks.clear()

    # -- what the fleet calls --------------------------------------------------------------

    def _declare(self, act: str) -> Effect[str, str]:
        def call(call: EffectCall, what: str) -> str:
            return self._call(act, call, what)

        def probe(call: EffectCall, _what: str) -> Landed[str] | NotLanded | Unknown:
            self._point(f"asks {self.name} about {act} {_what}")
            found = self._results.get(call.key)
            return NotLanded() if found is None else Landed(found)

        options: dict[str, Any] = {}
        if self.kind is EffectKind.FENCED:
            options["fence"] = self
        if self.kind is EffectKind.RECONCILABLE:
            options["probe"] = probe
        return Effect(call, kind=self.kind, sink=self.name, name=f"{self.name}-{act}", **options)

    def _call(self, act: str, call: EffectCall, what: str) -> str:
        match self.kind:
            case EffectKind.TRANSACTIONAL:
                call.session.add((act, what, call.key))
                return what
            case EffectKind.FENCED:
                return self._fenced(act, call, what)
            case _:
                # The look at the deadline and the landing are one step, as for a client that
                # sends at once. What a request does that is under way is `in_flight`'s affair.
                return self._land(act, call, what)

    def _fenced(self, act: str, call: EffectCall, what: str) -> str:
        self._point(f"sends {act} {what} to {self.name}")
        self._check_mark(call.resource, call.token)
        return self._land(act, call, what)

    def _land(self, act: str, call: EffectCall, what: str) -> str:
        if self._dedupes and call.key in self._results:
            return self._results[call.key]
        self._results[call.key] = what
        self.entries.append(Entry(act, what, call.key))
        if self._point(f"has the answer of {self.name} to {act} {what}", lossy=True) is (
            Verdict.LOSE_ANSWER
        ):
            raise TimeoutError("no answer")
        return what

    @property
    def _dedupes(self) -> bool:
        return self.kind in (EffectKind.FENCED, EffectKind.IDEMPOTENT)

    def advance(self, resource: str, token: FenceToken) -> None:
        """See `FencedSink.advance`."""
        self._point(f"raises the fence at {self.name}")
        self._check_mark(resource, token)

    def _check_mark(self, resource: str, token: FenceToken) -> None:
        place = (resource, token.execution_id)
        mark = self._marks.get(place, 0)
        if token.epoch < mark:
            raise StaleLeaseFenceError(
                token.execution_id, held=token.epoch, current=mark, step_key=token.step_key
            )
        self._marks[place] = token.epoch

    def _point(self, what: str, *, lossy: bool = False) -> Verdict:
        assert self.world is not None
        return self.world.point(what, lossy=lossy)

    # -- judging ---------------------------------------------------------------------------

    def landed(self) -> Sequence[Entry]:
        """What has landed, in order."""
        if self.kind is not EffectKind.TRANSACTIONAL:
            return self.entries
        assert self.world is not None
        return [Entry(*added) for added in self.world.executions.added]

    def judge(self, ends: Iterable[Execution]) -> Iterator[str]:
        """What is wrong with what has landed.

        Args:
            ends: How the executions have ended whose effects land here.
        """
        landed = self.landed()
        for what in dict.fromkeys(entry.what for entry in landed):
            acts = [entry.act for entry in landed if entry.what == what]
            if acts not in ([DO], [DO, UNDO]):
                yield f"{what} at {self.name}: {', '.join(acts)}"
        standing = {e.what for e in landed if e.act == DO} - {
            e.what for e in landed if e.act == UNDO
        }
        for end in ends:
            mine = sorted(what for what in standing if what.partition("/")[2] == str(end.input))
            if end.status in (Status.COMPENSATED, Status.FAILED) and mine:
                yield f"{end.saga} is {end.status}, and of it stands {', '.join(mine)}"
