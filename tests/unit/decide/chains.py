"""Chains without a store: what an execution would have on record, one command after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from fencepost.commands import (
    Choose,
    Command,
    EnterCompensation,
    FanOut,
    JoinChildren,
    Reopen,
    RunStep,
    RunUndo,
    UndoFanOut,
    UndoJoin,
    Wait,
    Wake,
)
from fencepost.decide import decide, failure_record
from fencepost.failure import ErrorInfo
from fencepost.progress import COMPENSATION, REOPENED
from fencepost.records import Checkpoint, CheckpointKind, Phase
from fencepost.saga import Saga

K = CheckpointKind
EXECUTION = UUID(int=1)
AT = datetime(2026, 1, 1, tzinfo=UTC)

NAMES: dict[type, tuple[K, ...]] = {
    RunStep: (K.STEP,),
    Choose: (K.DECISION,),
    FanOut: (K.FAN_OUT,),
    JoinChildren: (K.JOIN,),
    Wait: (K.WAIT,),
    Wake: (K.WOKEN,),
    RunUndo: (K.UNDO,),
    UndoFanOut: (K.UNDO_FAN_OUT,),
    UndoJoin: (K.UNDO,),
}


@dataclass
class Line:
    """An execution's chain that grows as a test says."""

    saga: Saga[Any, Any]
    value: Any = 0
    epoch: int = 1
    phase: Phase = Phase.FORWARD
    chain: list[Checkpoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.append(K.START, "start", 1, self.value, epoch=0)

    def append(
        self, kind: K, step: str, visit: int, result: Any, *, epoch: int | None = None
    ) -> None:
        seq = len(self.chain)
        assert all((e.kind, e.step, e.visit) != (kind, step, visit) for e in self.chain), (
            f"{kind} of {step}:{visit} would be in the chain twice"
        )
        self.chain.append(
            Checkpoint(
                checkpoint_id=uuid5(EXECUTION, str(seq)),
                execution_id=EXECUTION,
                seq=seq,
                parent_checkpoint_id=self.chain[-1].checkpoint_id if self.chain else None,
                kind=kind,
                step=step,
                visit=visit,
                step_key=f"{EXECUTION}:{step}:{visit}",
                epoch=self.epoch if epoch is None else epoch,
                owner="w1",
                attempt=1,
                result=result,
                created_at=AT,
            )
        )

    def next(self, turned_back: Any = None, directive: Any = None) -> Command:
        return decide(self.saga, self.phase, self.chain, turned_back, directive)

    def does(self, result: Any = None) -> tuple[str, int]:
        """Do what is next; returns what that was."""
        command = self.next()
        stepped = isinstance(command, RunStep | RunUndo)
        name = command.step.name if stepped else command.node.name  # type: ignore[union-attr] # the others end a test
        (kind,) = NAMES[type(command)]
        visit: int = command.visit  # type: ignore[union-attr]
        if isinstance(command, RunStep) and command.pivot:
            self.phase = Phase.PAST_PIVOT
        self.append(kind, name, visit, result)
        return (name, visit) if kind is not K.UNDO else (f"undo {name}", visit)

    def does_all(self, *results: Any) -> list[tuple[str, int]]:
        return [self.does(result) for result in results]

    def fails(self, code: str = "step.raised", branch: str | None = None) -> None:
        """The step in hand has failed for good, or the execution is turned back."""
        times = sum(e.kind is K.COMPENSATING for e in self.chain) + 1
        info = ErrorInfo(error_type="", code=code, message=code)
        failure = failure_record(self.value, "x", 1, info)
        self.phase = Phase.COMPENSATING
        self.append(K.COMPENSATING, COMPENSATION, times, {"failure": failure, "branch": branch})

    def reopens(self) -> None:
        command = self.next(directive={"do": "reopen", "by": "ann", "why": "mended"})
        assert isinstance(command, Reopen)
        self.phase = Phase.FORWARD
        self.append(K.REOPENED, REOPENED, command.times, None)

    def turned_back(self, code: str) -> None:
        command = self.next(turned_back={"code": code})
        assert isinstance(command, EnterCompensation)
        self.fails(code)
