"""Guards of turning back: cancels, deadlines, compensation."""

from __future__ import annotations

from tests.exploration.mutants.model import Mutant
from tests.exploration.removing import Cut

ENGINE = "fencepost.engine"
MEMORY = "fencepost.stores.memory"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "an execution raises its own epoch when it turns back",
        "a late call of its way forward doesn't land after its undo",
        (
            Cut(f"{MEMORY}.turning:land", "row.update(epoch=row.execution.epoch + 1)", "pass"),
            Cut(f"{MEMORY}.turning:land", "turn.note_raised(row)", "pass"),
            Cut(f"{ENGINE}.ownership:Ownership.commit", "self.epoch += 1", "pass"),
        ),
        ("one-compensation",),
    ),
    Mutant(
        "descendants' epochs are raised when their parent turns back",
        "no child goes on under a parent that undoes its work",
        (
            Cut(
                f"{MEMORY}.turning:land",
                "turn.raise_below([token.execution_id])",
                "pass",
            ),
        ),
        ("child-undone", "join-first-failure"),
    ),
    Mutant(
        "a cancel raises the epochs below",
        "no child goes on under a parent that was cancelled",
        (
            Cut(
                f"{MEMORY}.turning:turn_back",
                "turn.raise_below([before.execution_id])",
                "pass",
            ),
        ),
        ("cancel-family",),
    ),
    Mutant(
        "a cancel fences out the owner",
        "whoever runs a cancelled execution doesn't go on with it",
        (
            Cut(f"{MEMORY}.turning:turned", "epoch=execution.epoch + 1,", "epoch=execution.epoch,"),
            Cut(f"{MEMORY}.turning:turned", "owner=None,", "owner=execution.owner,"),
            Cut(
                f"{MEMORY}.turning:Turn.note_raised",
                "self.moment.note(row, EventName.EPOCH_RAISED, owner=self.owner, details=details)",
                "pass",
            ),
        ),
        ("cancel",),
    ),
    Mutant(
        "why an execution was turned back is kept until its chain tells it",
        "a cancel isn't forgotten with the worker that was to carry it out",
        (Cut(f"{MEMORY}.turning:turned", "turned_back=stored(cause),", "turned_back=None,"),),
        ("cancel",),
    ),
    Mutant(
        "what has passed its pivot isn't turned back",
        "there is no way back after the pivot",
        (
            Cut(
                f"{MEMORY}.turning:turn_back",
                "if before.phase is Phase.PAST_PIVOT:",
                "if False:",
            ),
        ),
        ("pivot",),
    ),
    Mutant(
        "a deadline turns back",
        "an execution doesn't go on past its deadline",
        (
            Cut(
                f"{ENGINE}.reaper:Reaper.overdue",
                "late = engine.executions.overdue(BATCH)",
                "late = []",
            ),
        ),
        ("deadline",),
    ),
    Mutant(
        "what continues an execution has the deadline that is left",
        "a line that goes on for ever ends with its deadline",
        (
            Cut(
                f"{ENGINE}.ownership:Ownership._continuation",
                "deadline_at=mine.deadline_at,",
                "deadline_at=None,",
            ),
        ),
        ("deadline-of-a-line",),
    ),
    Mutant(
        "no error branch is taken after a cancel",
        "a cancelled execution doesn't succeed",
        (
            Cut(
                f"{ENGINE}.saga_run:SagaRun._enter_compensation",
                "self.saga.branch_for(error) if error is not None else None",
                "self.saga.branch_for(error or Exception())",
            ),
        ),
        ("error-branch",),
    ),
    Mutant(
        "steps are undone newest first",
        "nothing is undone that a later step still builds on",
        (
            Cut(
                "fencepost.decide:_next_undo",
                "reversed(progress.chain[: entered.seq])",
                "list(progress.chain[: entered.seq])",
            ),
        ),
        ("two-compensations",),
    ),
    Mutant(
        "what is undone isn't undone again",
        "an undo is done once",
        (
            Cut(
                "fencepost.decide:_is_undone",
                "return progress.find(CheckpointKind.UNDO, entry.step, entry.visit) is not None",
                "return False",
            ),
        ),
        ("one-compensation",),
    ),
)
