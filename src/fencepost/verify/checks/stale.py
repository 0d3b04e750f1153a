"""Invariant 4: no checkpoint or effect carries an epoch older than the owner's at its commit."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fencepost.verify.facts import EffectFact, Facts
from fencepost.verify.invariant import Findings
from fencepost.verify.timeline import Timeline


def check(facts: Facts, found: Findings) -> None:
    """Each write against the epochs that had begun when it was committed."""
    for execution_id, timeline in facts.timelines.items():
        _checkpoints(facts, execution_id, timeline, found)
        for effect in facts.effects.get(execution_id, ()):
            found.examined("effects")
            _effect(effect, timeline, found)


def _checkpoints(facts: Facts, execution_id: UUID, timeline: Timeline, found: Findings) -> None:
    for checkpoint in facts.chains.get(execution_id, ()):
        if checkpoint.kind == "start":
            continue
        found.examined("checkpoints")
        newer = timeline.successor_before(checkpoint)
        if newer is not None:
            found.violated(
                "stale.checkpoint",
                execution_id,
                f"checkpoint {checkpoint.seq} ({checkpoint.step}) was committed with epoch"
                f" {checkpoint.epoch} when epoch {newer.epoch} had begun",
                seq=checkpoint.seq,
                step_key=checkpoint.step_key,
                epoch=checkpoint.epoch,
                owner=checkpoint.owner,
                current_epoch=newer.epoch,
                current_owner=newer.owner,
            )


def _effect(effect: EffectFact, timeline: Timeline, found: Findings) -> None:
    facts: dict[str, Any] = {
        "sink": effect.sink,
        "key": effect.key,
        "epoch": effect.epoch,
        "owner": effect.owner,
    }
    if not timeline.owned(effect.epoch, effect.owner):
        found.violated(
            "stale.effect-of-stranger",
            effect.execution_id,
            f"effect {effect.effect!r} was written by one who never held epoch {effect.epoch}",
            **facts,
        )
        return
    # A person's decision is no write of the owner's, and has no epoch.
    confirmed_at = None if effect.resolved else effect.confirmed_at
    for tenure in timeline.tenures if confirmed_at is not None else ():
        if tenure.epoch > effect.epoch and confirmed_at is not None and tenure.at < confirmed_at:
            found.violated(
                "stale.effect",
                effect.execution_id,
                f"effect {effect.effect!r} was confirmed with epoch {effect.epoch} when epoch"
                f" {tenure.epoch} had begun, by the database's clock",
                **facts,
                confirmed_at=confirmed_at,
                begun_at=tenure.at,
            )
            return
