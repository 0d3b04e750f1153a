"""What a zombie has done where nothing stopped it: two moments compared, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.ledger_facts import PROMOTED, Line, fingerprint, read_line
from coordinator.phrases import worker_of
from coordinator.play import Play
from coordinator.scenarios import Struck
from fencepost.records import Checkpoint, Execution
from ledger.database import engine_for


@dataclass(frozen=True)
class Moment:
    """What is stored about one module's execution, and about its release in the ledger."""

    execution: Execution
    chain: tuple[Checkpoint, ...]
    line: Line


def moment(play: Play, struck: Struck) -> Moment:
    """What is stored now."""
    return Moment(
        play.read(struck.execution_id),
        play.factory.fp.engine.executions.chain(struck.execution_id),
        read_line(engine_for(play.site.settings.database), play.root_id),
    )


def in_words(play: Play, before: Moment, after: Moment) -> list[str]:
    """The difference that a zombie has made.

    Args:
        play: Whose files are looked at.
        before: When it was frozen, and its work had been done by another.
        after: When it had gone on.
    """
    return [
        *_ended_twice(before.execution, after.execution),
        *_overwritten(before.chain, after.chain),
        *_artifacts(play, before.line, after.line),
        *_promotions(after.line),
    ]


def _ended_twice(before: Execution, after: Execution) -> Iterator[str]:
    if before.status is not after.status:
        yield (
            f"execution {before.execution_id} had ended as {before.status}; now it is"
            f" {after.status}"
        )


def _overwritten(before: tuple[Checkpoint, ...], after: tuple[Checkpoint, ...]) -> Iterator[str]:
    for old, new in zip(before, after, strict=False):
        if (old.owner, old.epoch) != (new.owner, new.epoch):
            yield (
                f"checkpoint {old.seq} ({old.step}), committed by {worker_of(old.owner)} with"
                f" epoch {old.epoch}, was overwritten by {worker_of(new.owner)} with epoch"
                f" {new.epoch}"
            )
    added = [f"{c.kind} {c.step} (epoch {c.epoch})" for c in after[len(before) :]]
    if added:
        yield f"checkpoints were added to a chain that had ended: {', '.join(added)}"


def _artifacts(play: Play, before: Line, after: Line) -> Iterator[str]:
    rows = {row.step_key: row for row in after.artifacts}
    for old in before.artifacts:
        new = rows.get(old.step_key)
        if new is None or (new.path, new.status) == (old.path, old.status):
            continue
        yield (
            f"the ledger had {old.module} as {old.status} in {_name(old.path)}, and has it as"
            f" {new.status} in {_name(new.path)}"
        )
        root = play.site.staging.root
        if fingerprint(root / new.path) is None:
            yield f"{_name(new.path)}, which the ledger names, is not on disk"
        if new.path != old.path and fingerprint(root / old.path) is not None:
            yield f"{_name(old.path)} is on disk, and no row of the ledger leads to it"


def _promotions(line: Line) -> Iterator[str]:
    artifacts = {row.step_key: row for row in line.artifacts}
    for promotion in line.promotions:
        source = artifacts.get(promotion.artifact_step_key)
        if source is None or source.status != PROMOTED:
            state = "gone" if source is None else source.status
            yield f"{promotion.module} is out in the world, and its artifact is {state}"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
