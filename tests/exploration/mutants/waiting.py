"""Guards of waits, limits, and messages that get lost."""

from __future__ import annotations

from tests.exploration.mutants.model import Mutant
from tests.exploration.removing import Cut

ENGINE = "fencepost.engine"
MEMORY = "fencepost.stores.memory"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a wait is over when its time has come",
        "nobody wakes early",
        (
            Cut(
                f"{MEMORY}.waiting:_woken",
                "if execution.wake_at is not None and execution.wake_at <= at:",
                "if execution.wake_at is not None:",
            ),
            Cut(
                f"{ENGINE}.waits:_end",
                "if wake_at is None or wake_at > run.own.now():",
                "if False:",
            ),
        ),
        ("timer",),
        beside="the same look in the engine",
    ),
    Mutant(
        "a signal that was taken isn't pending",
        "each signal is taken by one wait",
        (
            Cut(f"{MEMORY}.tables:Tables.pending", "and signal.consumed_by is None", ""),
            Cut(f"{MEMORY}.signals:check", "if commit.consumes is None:", "if True:"),
        ),
        ("two-waits-two-signals",),
        beside="the commit's own look at the signal that it takes",
    ),
    Mutant(
        "a wait looks for signals that were there before it",
        "a signal that comes while the wait begins isn't missed",
        (
            Cut(
                f"{MEMORY}.signals:land",
                "moment.tables.pending(mine, commit.waits_for)",
                "False",
            ),
        ),
        ("signal-1",),
    ),
    Mutant(
        "a signal makes whoever waits for it due",
        "a signal whose message is lost isn't missed",
        (
            Cut(
                f"{MEMORY}.signals:send",
                "if execution.status is Status.WAITING and execution.waits_for == signal.name:",
                "if False:",
            ),
        ),
        ("signal-1",),
    ),
    Mutant(
        "a limit counts who runs",
        "no more run at once than the limit says",
        (
            Cut(
                f"{MEMORY}.limits:_Turn.give",
                "waiting = waiting[: max(0, self.limit.concurrency - placed)]",
                "pass",
            ),
        ),
        ("limit-of-one",),
    ),
    Mutant(
        "an execution that nobody was asked to run is found",
        "a lost message loses nothing",
        (
            Cut(
                f"{ENGINE}.reaper:Reaper.due",
                "claimed = engine.executions.claim_due(BATCH, CLAIM_DUE, known=known)",
                "claimed = []",
            ),
        ),
        ("two-steps",),
    ),
    Mutant(
        "an expired lease is found",
        "a dead worker's execution goes on before its row is looked at",
        (
            Cut(
                f"{ENGINE}.reaper:Reaper.expired",
                "expired = engine.leases.claim_expired(BATCH, HIDDEN)",
                "expired = []",
            ),
        ),
        ("two-steps",),
    ),
)
