"""The guards of the protocol, each of which exploration must miss when it is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fencepost.testing.explore import Budget, Explored, Scenario, explore
from tests.exploration.removing import Cut, without
from tests.exploration.scenarios import SCENARIOS

ENGINE = "fencepost.engine"
MEMORY = "fencepost.stores.memory"
OWNING = f"{MEMORY}.owning:Owning"
PERFORMER = f"{ENGINE}.effects:Performer"
OWNER = "row = self._tables.rows[commit.token.execution_id]"
SMALL = Budget(1, 1)


@dataclass(frozen=True)
class Mutant:
    """The protocol without one guard.

    Attributes:
        guard: Names it.
        protects: What it is there for, in words that follow "so that".
        cuts: How it is removed.
        scenarios: Where its absence must be noticed, in the order in which they are looked at.
        budget: Within which.
        beside: Guards that hold the line alone where only this one is gone; then they are
            removed, too.
    """

    guard: str
    protects: str
    cuts: tuple[Cut, ...]
    scenarios: tuple[str, ...]
    budget: Budget = SMALL
    beside: str = ""

    def __str__(self) -> str:
        return self.guard


@dataclass(frozen=True)
class Killed:
    """How a mutant's absence of a guard was noticed.

    Attributes:
        choices: That aren't "nothing happens", in the shortest schedule found.
        schedules: Run until then.
    """

    mutant: Mutant
    scenario: str
    found: Explored

    @property
    def rules(self) -> Sequence[str]:
        """What falls, the invariants first."""
        assert self.found.failure is not None
        broken = self.found.failure.broken
        codes = {(not b.invariant, b.invariant, b.code) for b in broken}
        return [
            f"invariant {number} (`{code}`)" if number else f"`{code}`"
            for _, number, code in sorted(codes)
        ]

    @property
    def choices(self) -> int:
        """Choices that aren't "nothing happens", in the shortest schedule found."""
        assert self.found.failure is not None
        return sum(choice > 0 for choice in self.found.failure.record)


def kill(mutant: Mutant) -> Killed | None:
    """Explore without a guard until its absence is noticed; None if it isn't."""
    known = {str(scenario): scenario for scenario in SCENARIOS}
    with without(mutant.cuts):
        for name in mutant.scenarios:
            for found in _explored(known[name], mutant.budget):
                if found.failure is not None:
                    return Killed(mutant, name, found)
    return None


def _explored(scenario: Scenario, budget: Budget) -> Iterator[Explored]:
    """Iterative deepening: the fewer things happen, the easier it is to see why."""
    for bounds in _up_to(budget):
        yield explore(scenario, bounds)


def _up_to(budget: Budget) -> Iterable[Budget]:
    all_bounds = [
        Budget(preemptions, faults, budget.kinds)
        for preemptions in range(budget.preemptions + 1)
        for faults in range(budget.faults + 1)
    ]
    return sorted(all_bounds, key=lambda b: (b.preemptions + b.faults, b.faults))


MUTANTS: tuple[Mutant, ...] = (
    # -- owning ----------------------------------------------------------------------------
    Mutant(
        "a commit is fenced",
        "a worker that has been taken over can't extend the chain",
        (Cut(f"{OWNING}.commit", "row = self._fence(commit.token, _LEASE_LOST, digest)", OWNER),),
        ("two-steps",),
    ),
    Mutant(
        "a transactional commit is fenced",
        "what a zombie has written in its transaction isn't committed",
        (
            Cut(
                f"{OWNING}.commit_together",
                "row = self._fence(commit.token, _ZOMBIE, digest)",
                OWNER,
            ),
        ),
        ("effect-transactional",),
    ),
    Mutant(
        "the effect ledger is fenced",
        "a zombie can't announce or conclude an effect",
        (
            Cut(
                f"{OWNING}.owned",
                "self._fence(token, (EventName.LEASE_LOST, sink, ExecutionLeaseLostError), digest)",
                "pass",
            ),
        ),
        ("effect-reconcilable", "effect-at-most-once", "cancel-at-most-once"),
    ),
    Mutant(
        "parking is fenced",
        "a zombie can't stop the work of its successor",
        (
            Cut(
                f"{OWNING}.park",
                "row = self._fence(token, _LEASE_LOST, serde.digest(details))",
                "row = self._tables.rows[token.execution_id]",
            ),
        ),
        ("fails-after-effect", "effect-at-most-once"),
    ),
    Mutant(
        "a failed attempt is recorded under the fence",
        "a zombie's failure isn't counted as its successor's",
        (
            Cut(
                f"{OWNING}.record_attempt",
                "row = self._fence(token, _LEASE_LOST, serde.digest(details))",
                "row = self._tables.rows[token.execution_id]",
            ),
        ),
        ("flaky",),
    ),
    Mutant(
        "handing back is fenced",
        "a zombie can't take the execution away from its successor",
        (
            Cut(
                f"{OWNING}.hand_back",
                'row = self._fence(token, _LEASE_LOST, serde.digest({}))',
                "row = self._tables.rows[token.execution_id]",
            ),
        ),
        ("two-steps",),
    ),
    Mutant(
        "acquiring compares epochs",
        "two workers never own one epoch",
        (
            Cut(
                f"{OWNING}.acquire",
                "if not runnable or before.epoch >= proposed_epoch:",
                "if not runnable:",
            ),
        ),
        ("two-steps",),
    ),
    Mutant(
        "only what is runnable is acquired",
        "nothing runs that has ended, waits or is paused",
        (
            Cut(
                f"{OWNING}.acquire",
                "if not runnable or before.epoch >= proposed_epoch:",
                "if before.epoch >= proposed_epoch:",
            ),
        ),
        ("two-steps", "pause-resume"),
    ),
    Mutant(
        "a pause keeps an execution from being acquired",
        "nothing begins while it is paused",
        (
            Cut(
                f"{MEMORY}.waiting:runnable",
                "return row.execution.paused_at is None",
                "return True",
            ),
            Cut(
                f"{ENGINE}.core:Engine.run",
                "if execution.paused_at is not None:",
                "if False:",
            ),
        ),
        ("pause-resume",),
    ),
    Mutant(
        "a lease that Redis has forgotten is proposed anew",
        "an execution goes on when Redis has lost its epoch",
        (
            Cut(
                f"{ENGINE}.core:Engine._become_owner",
                "if runnable and got.epoch >= lease.epoch:",
                "if False:",
            ),
        ),
        ("two-steps",),
    ),
    Mutant(
        "a lease is settled after acquiring",
        "nobody goes on whose lease has run out while it acquired",
        (
            Cut(
                f"{ENGINE}.core:Engine._run_owned",
                "if settled is None:",
                "if settled is None:\n        settled = lease\n    if False:",
            ),
        ),
        ("two-steps",),
    ),
    Mutant(
        "many takeovers without progress park",
        "a step that kills its workers doesn't kill them for ever",
        (
            Cut(
                f"{ENGINE}.run:Run._park_if_poisonous",
                "if recoveries > limit:",
                "if False:",
            ),
        ),
        ("poison",),
    ),
    Mutant(
        "the end rides on the last commit",
        "nothing comes between the last step and the end",
        (
            Cut(
                f"{ENGINE}.ownership:Ownership._with_what_follows",
                "return replace(commit, status=status, outcome=outcome, error=error)",
                "return commit",
            ),
        ),
        ("two-steps",),
    ),
    # -- the chain -------------------------------------------------------------------------
    Mutant(
        "a commit names the head that it continues",
        "the chain doesn't fork",
        (
            Cut(f"{OWNING}.commit", "row = self._fence(commit.token, _LEASE_LOST, digest)", OWNER),
            Cut(
                f"{MEMORY}.landing:_check",
                "if (execution.head, execution.head_seq + 1) != (commit.parent, commit.seq):",
                "if False:",
            ),
            Cut(f"{MEMORY}.tables:Tables.append", "or named in self._step_keys", ""),
            Cut(
                f"{MEMORY}.tables:Tables.append",
                "or entry.parent_checkpoint_id in self._parents",
                "",
            ),
        ),
        ("two-steps",),
        beside="the commit's fence, and the unique constraints on parent and step key",
    ),
    Mutant(
        "a step key is in the chain once",
        "no step is completed twice",
        (
            Cut(f"{OWNING}.commit", "row = self._fence(commit.token, _LEASE_LOST, digest)", OWNER),
            Cut(
                f"{MEMORY}.landing:_check",
                "if (execution.head, execution.head_seq + 1) != (commit.parent, commit.seq):",
                "if False:",
            ),
            Cut(
                f"{MEMORY}.tables:Tables.append",
                "if (\n        entry.checkpoint_id in self.checkpoints\n"
                "        or entry.parent_checkpoint_id in self._parents\n"
                "        or named in self._step_keys\n    ):",
                "if False:",
            ),
        ),
        ("two-steps",),
        beside="the commit's fence and its head",
    ),
    # -- effects ---------------------------------------------------------------------------
    Mutant(
        "the lease's own deadline is looked at before a call",
        "a worker that was frozen doesn't call beside its successor",
        (
            Cut(
                f"{PERFORMER}._call",
                "if call.time_left <= timedelta(0):",
                "if False:",
            ),
        ),
        ("effect-reconcilable", "effect-at-most-once"),
    ),
    Mutant(
        "an intent is recorded before the call",
        "a successor knows that something may have landed",
        (
            Cut(
                f"{MEMORY}.effects:MemoryEffectStore.intend",
                "row = tables.effects[place] = EffectRow(_announced(intent, at), now, now)",
                'row = self.__dict__.setdefault("late", {})[place] = '
                "EffectRow(_announced(intent, at), now, now)",
            ),
            Cut(
                f"{MEMORY}.effects:MemoryEffectStore.conclude",
                "row = tables.effects[sink, key]",
                "row = tables.effects.setdefault((sink, key), self.late[sink, key])",
            ),
        ),
        ("effect-reconcilable",),
    ),
    Mutant(
        "a confirmed effect isn't performed again",
        "a replay is given the recorded result",
        (
            Cut(
                f"{PERFORMER}._perform",
                "if record.status is EffectStatus.CONFIRMED:",
                "if False:",
            ),
        ),
        ("effect-at-most-once",),
    ),
    Mutant(
        "a sink that can be asked is asked before calling again",
        "what has landed with its answer lost isn't sent again",
        (
            Cut(
                f"{PERFORMER}._after_unknown_outcome",
                "return self._probe(effect, record, request)",
                "return NotLanded()",
            ),
        ),
        ("effect-reconcilable",),
    ),
    Mutant(
        "doubt about a call that can't be repeated parks",
        "nothing is called twice that can't bear it",
        (
            Cut(
                f"{PERFORMER}._after_unknown_outcome",
                'raise self._for_a_person(effect, record, "it was announced, and not confirmed")',
                "return NotLanded()",
            ),
        ),
        ("effect-at-most-once",),
    ),
    Mutant(
        "a step that fails over what it has landed parks",
        "nothing is left behind that nobody undoes",
        (
            Cut(
                f"{ENGINE}.run:Run.park_if_landed",
                "if not step.effects or step.transactional:",
                "if True:",
            ),
        ),
        ("fails-after-effect",),
    ),
    Mutant(
        "a step that doesn't come to an earlier attempt's effect again parks",
        "no step is completed over an effect that it doesn't know of",
        (
            Cut(
                f"{ENGINE}.run:Run._park_if_undecided",
                "if not step.effects or step.transactional:",
                "if True:",
            ),
        ),
        ("changes-its-mind",),
    ),
    Mutant(
        "an execution that is turned back in a step parks over what that has landed",
        "a cancelled step leaves nothing behind",
        (
            Cut(
                f"{ENGINE}.saga_run:SagaRun._turn_back",
                "if step is not None and self._completed_by_person(step, info):",
                "if False:",
            ),
        ),
        ("cancel-idempotent",),
    ),
    Mutant(
        "fences are raised at a takeover",
        "a zombie's late call doesn't land after its execution has ended",
        (
            Cut(
                f"{ENGINE}.run:Run.to_the_end",
                "if self.own.epoch > 1 and self.saga.fenced:",
                "if False:",
            ),
        ),
        ("cancel-fenced",),
    ),
    Mutant(
        "a fenced sink checks its mark",
        "a zombie's late call doesn't land after its execution has ended",
        (
            Cut(
                "tests.exploration.sinks:Sink._check_mark",
                "if token.epoch < mark:",
                "if False:",
            ),
        ),
        ("cancel-fenced",),
    ),
    Mutant(
        "an effect of another execution is built on only while it stands",
        "nobody relies on what is being undone",
        (
            Cut(
                f"{PERFORMER}._check_that_it_stands",
                "if record.execution_id == self.token.execution_id:",
                "if True:",
            ),
        ),
        ("shared-key",),
        Budget(2, 0),
    ),
    Mutant(
        "an effect that another execution performs is waited for",
        "two executions with one key don't call at once",
        (
            Cut(
                f"{PERFORMER}._wait_for_other_execution",
                "if record.execution_id == self.token.execution_id:",
                "if True:",
            ),
        ),
        ("shared-key",),
        Budget(2, 0),
    ),
    # -- turning back ----------------------------------------------------------------------
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
    # -- children --------------------------------------------------------------------------
    Mutant(
        "a parent is joined when its children have ended",
        "no child goes on after the join",
        (
            Cut(
                f"{MEMORY}.waiting:_joined",
                "if all(state.ended for state in states):",
                "if True:",
            ),
            Cut(f"{ENGINE}.fanout:_join", "elif not live:", "elif True:"),
        ),
        ("map-of-one", "join-collect"),
        beside="the same look in the engine's join",
    ),
    Mutant(
        "children are admitted within their cap",
        "no more of them are under way than may be",
        (
            Cut(
                f"{MEMORY}.waiting:admissible",
                "return queued[: max(0, cap - placed)]",
                "return queued",
            ),
        ),
        ("map-of-two-cap-one",),
    ),
    Mutant(
        "a freed place is given to the next child",
        "queued children don't wait for ever",
        (
            Cut(
                f"{MEMORY}.waiting:has_places",
                "return _waits(row) and bool(admissible(tables, row))",
                "return False",
            ),
        ),
        ("map-of-two-cap-one",),
    ),
    Mutant(
        "children are stopped once a quorum has succeeded",
        "what isn't needed any more is undone, and the parent doesn't wait for its work",
        (
            Cut(
                f"{MEMORY}.turning:land",
                "turn.stop_children(*commit.stop_children_of)",
                "pass",
            ),
        ),
        ("quorum-stops",),
    ),
    Mutant(
        "a parent's failure undoes its children",
        "nothing of a child stands under a parent that was undone",
        (Cut(f"{MEMORY}.turning:land", "_undo_children(moment, row, *commit.undo_children_of)", "pass"),),
        ("child-undone",),
    ),
    # -- waits -----------------------------------------------------------------------------
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
                "if commit.waits_for is not None and moment.tables.pending(mine, commit.waits_for):",
                "if False:",
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
    # -- limits, messages ------------------------------------------------------------------
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
