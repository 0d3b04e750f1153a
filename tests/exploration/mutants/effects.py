"""Guards of effects, and of the sinks that they land in."""

from __future__ import annotations

from tests.exploration.mutants.model import Mutant
from tests.exploration.removing import Cut

ENGINE = "fencepost.engine"
MEMORY = "fencepost.stores.memory"
PERFORMER = "fencepost.engine.effects:Performer"

MUTANTS: tuple[Mutant, ...] = (
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
        ("decided",),
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
        ("decided",),
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
    ),
)
