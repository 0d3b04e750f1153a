"""Invariant 5: each effect key has at most one committed effect; none is in doubt unless parked."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from fencepost.verify.facts import EffectFact, ExecutionFact, Facts
from fencepost.verify.invariant import Findings
from fencepost.verify.people import decided

UNKNOWN = ("intent", "in-doubt")
DECIDED = "effect.resolved"

NOTE = (
    "an undeclared effect of a step is known by the step's checkpoint alone: a key that has one"
    " checkpoint of a kind has committed once"
)


def check(facts: Facts, found: Findings) -> None:
    """Step keys in the chains, and the recorded effects. Undos of steps are invariant 6's."""
    found.note(NOTE)
    for execution_id, chain in facts.chains.items():
        keys = Counter((c.step_key, c.kind) for c in chain if c.kind != "undo")
        found.examined("step keys", len(keys))
        for (key, kind), count in keys.items():
            if count > 1:
                found.violated(
                    "effect.step-twice",
                    execution_id,
                    f"{key} has {count} checkpoints of kind {kind}",
                    step_key=key,
                    kind=kind,
                    seqs=[c.seq for c in chain if (c.step_key, c.kind) == (key, kind)],
                )
    used: Counter[tuple[str, str]] = Counter()
    for execution_id, effects in facts.effects.items():
        found.examined("effects", len(effects))
        used.update((effect.sink, effect.key) for effect in effects)
        for effect in effects:
            _decided(facts, facts.executions[execution_id], effect, found)
            _committed_with_its_step(facts, effect, found)
            _not_left_behind(facts, facts.executions[execution_id], effect, found)
            _on_record(facts, effect, found)
    _one_row_each(facts, used, found)


def _one_row_each(facts: Facts, used: Counter[tuple[str, str]], found: Findings) -> None:
    for (sink, key), count in used.items():
        if count > 1:
            holders = sorted(
                str(effect.execution_id)
                for effects in facts.effects.values()
                for effect in effects
                if (effect.sink, effect.key) == (sink, key)
            )
            found.violated(
                "effect.key-twice",
                UUID(holders[0]),
                f"key {key!r} at sink {sink!r} stands for {count} effects",
                sink=sink,
                key=key,
                executions=holders,
            )


def _decided(facts: Facts, execution: ExecutionFact, effect: EffectFact, found: Findings) -> None:
    """Nothing goes on, or ends, over an effect whose outcome is unknown."""
    if effect.status not in UNKNOWN:
        return
    # An undo works under the key of its step: there, the undo's own checkpoint comes last.
    last = "undo" if execution.phase == "compensating" else "step"
    completed = _has_checkpoint(facts, effect, last)
    if execution.ended or completed:
        found.violated(
            "effect.in-doubt",
            execution.execution_id,
            f"effect {effect.effect!r} is {effect.status}, and"
            + (f" the execution is {execution.status}" if execution.ended else " its step is done"),
            sink=effect.sink,
            key=effect.key,
            step_key=effect.step_key,
        )


def _committed_with_its_step(facts: Facts, effect: EffectFact, found: Findings) -> None:
    if effect.kind != "transactional":
        return
    chain = facts.chains.get(effect.execution_id, ())
    if not any(
        (c.step_key, c.epoch, c.owner) == (effect.step_key, effect.epoch, effect.owner)
        for c in chain
    ):
        found.violated(
            "effect.without-checkpoint",
            effect.execution_id,
            f"transactional effect {effect.effect!r} was committed without its step's checkpoint",
            sink=effect.sink,
            key=effect.key,
            step_key=effect.step_key,
        )


def _not_left_behind(
    facts: Facts, execution: ExecutionFact, effect: EffectFact, found: Findings
) -> None:
    """What has landed belongs to a step that was completed: nobody undoes the others."""
    if not execution.ended or effect.status != "confirmed" or effect.kind == "transactional":
        return
    if _has_checkpoint(facts, effect, "step", "undo"):
        return
    if decided(facts, effect.execution_id, "skip", effect.step_key):
        found.note(f"a person has decided to leave behind what {effect.step_key} did")
    else:
        found.violated(
            "effect.left-behind",
            execution.execution_id,
            f"effect {effect.effect!r} has landed in a step that was never completed, and the"
            f" execution is {execution.status}",
            sink=effect.sink,
            key=effect.key,
            step_key=effect.step_key,
        )


def _on_record(facts: Facts, effect: EffectFact, found: Findings) -> None:
    """A person's decision is in the audit trail."""
    if not effect.resolved:
        return
    decisions = (
        event.details.get("key")
        for event in facts.events.get(effect.execution_id, ())
        if event.name == DECIDED and event.sink == effect.sink
    )
    if effect.key not in decisions:
        found.violated(
            "effect.decided-off-record",
            effect.execution_id,
            f"effect {effect.effect!r} was decided by a person, and the audit trail lacks it",
            sink=effect.sink,
            key=effect.key,
        )


def _has_checkpoint(facts: Facts, effect: EffectFact, *kinds: str) -> bool:
    return any(
        c.kind in kinds and c.step_key == effect.step_key
        for c in facts.chains.get(effect.execution_id, ())
    )
