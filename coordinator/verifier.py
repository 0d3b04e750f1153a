"""The factory's part of the invariants: what releases leave in the ledger and on disk."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from coordinator.ledger_facts import (
    COMPENSATED,
    PROMOTED,
    ArtifactRow,
    AttemptRow,
    EvidenceRow,
    Line,
    PromotionRow,
    StatementRow,
    files_below,
    fingerprint,
    read_line,
)
from coordinator.runs import RunLocation
from fencepost.verify import Facts, Findings, Invariant, Report, verify
from ledger.database import engine_for

LedgerRow = AttemptRow | ArtifactRow | StatementRow | EvidenceRow | PromotionRow

SAGA = "release"
_FAILED = frozenset({"failed", "compensated", "continued"})
_ENDED = _FAILED | {"succeeded"}
_REFUSED = frozenset({"execution.lease-lost", "ZOMBIE_WRITE_REJECTED"})


def verify_run(where: RunLocation, *, settle: float) -> Report:
    """The engine's invariants with the factory's part of them.

    Args:
        where: The run, and where its facts are.
        settle: Seconds to wait for what goes away by itself, such as a late message.

    Raises:
        ExecutionNotFoundError: There is no such run.
        ServiceUnavailableError: A server doesn't answer.
    """
    ours = FactoryVerifier(engine_for(where.database), where.staging, where.published)
    return verify(
        where.database,
        where.leases,
        where.broker,
        run=where.run,
        extra=ours.invariants(),
        settle=timedelta(seconds=settle),
    )


class FactoryVerifier:
    """Looks at the ledger and both stores.

    Args:
        engine: On the ledger's database.
        staging: The staging store's root.
        published: The publish store's root.
    """

    def __init__(self, engine: sa.Engine, staging: Path, published: Path) -> None:
        self._engine = engine
        self._staging = staging
        self._published = published

    def invariants(self) -> list[Invariant]:
        """For the engine's verifier, which adds them to its own."""
        return [
            Invariant(4, self._ledger_epochs),
            Invariant(6, self._nothing_active),
            Invariant(7, self._nothing_orphaned),
            Invariant(8, self._refused_is_nowhere),
            Invariant(9, self._promoted_once),
        ]

    def _lines(self, facts: Facts) -> Iterator[Line]:
        for root in facts.roots:
            if facts.executions[root].saga == SAGA:
                yield read_line(self._engine, root)

    def _ledger_epochs(self, facts: Facts, findings: Findings) -> None:
        """A ledger row and its checkpoint are one transaction, so they carry one epoch."""
        for line in self._lines(facts):
            ids = {attempt.execution_id for attempt in line.attempts}
            own = [promotion for promotion in line.promotions if promotion.attempt_id in ids]
            rows: list[LedgerRow] = [*line.attempts, *line.artifacts, *line.statements]
            for row in [*rows, *line.evidence, *own]:
                execution = facts.executions.get(_execution_of(row.step_key))
                if execution is not None and not execution.ended:
                    continue  # the ledger was read after the chains, and may be ahead of them
                findings.examined("ledger rows")
                epochs = _checkpoint_epochs(facts, row.step_key)
                if epochs != [row.epoch]:
                    findings.violated(
                        "ledger.epoch-differs",
                        _execution_of(row.step_key),
                        f"a ledger row of epoch {row.epoch} has checkpoints of epochs {epochs}",
                        step_key=row.step_key,
                        row=type(row).__name__,
                    )

    def _nothing_active(self, facts: Facts, findings: Findings) -> None:
        for line in self._lines(facts):
            for attempt in _failed(line, facts):
                findings.examined("failed attempts")
                self._check_failed(line, attempt, findings)

    def _check_failed(self, line: Line, attempt: AttemptRow, findings: Findings) -> None:
        def active(code: str, what: str, *, transient: bool = False, **shown: Any) -> None:
            findings.violated(
                code,
                attempt.execution_id,
                f"attempt {attempt.attempt} failed, and {what}",
                transient=transient,
                attempt=attempt.attempt,
                **shown,
            )

        if attempt.status != COMPENSATED:
            active("ledger.attempt-active", f"the ledger has it as {attempt.status}")
        for artifact in line.artifacts:
            if artifact.attempt_id == attempt.execution_id and artifact.status != COMPENSATED:
                active(
                    "ledger.artifact-active",
                    f"its artifact of {artifact.module} is {artifact.status}",
                    path=artifact.path,
                )
        for statement in line.statements:
            if statement.attempt_id == attempt.execution_id and statement.status != COMPENSATED:
                active(
                    "ledger.attestation-active",
                    f"its statement about {statement.module} is {statement.status}",
                )
        for promotion in line.promotions:
            if promotion.attempt_id == attempt.execution_id:
                active("ledger.promoted-nonetheless", f"it promoted {promotion.module}")
        for path in files_below(self._staging, f"{line.lineage_id}/{attempt.attempt}"):
            # A zombie removes what it has written once it is refused.
            active("staging.file-left", f"its file {path} is there", transient=True, path=path)

    def _nothing_orphaned(self, facts: Facts, findings: Findings) -> None:
        for line in self._lines(facts):
            if not _ended(facts, line.lineage_id):
                continue
            visible = {a.path for a in line.artifacts if a.status != COMPENSATED}
            failed = tuple(
                f"{line.lineage_id}/{attempt.attempt}/" for attempt in _failed(line, facts)
            )
            for path in files_below(self._staging, str(line.lineage_id)):
                findings.examined("staged files")
                # What a failed attempt has left is another invariant's business.
                if path not in visible and not path.startswith(failed):
                    findings.violated(
                        "staging.orphan",
                        line.lineage_id,
                        f"no row of the ledger leads to the staged file {path}",
                        transient=True,
                        path=path,
                    )
            findings.examined("candidate locks", len(line.locks))
            for lock in line.locks:
                if lock.lineage_id == line.lineage_id:
                    findings.violated(
                        "ledger.lock-held",
                        lock.execution_id,
                        f"the candidate lock of {lock.release} is held, and its line has ended",
                        release=lock.release,
                    )
            self._check_published(line, findings)

    def _check_published(self, line: Line, findings: Findings) -> None:
        if line.locks:
            return  # a candidate is under way, and may be publishing right now
        for release in line.releases:
            for path in files_below(self._published, release):
                findings.examined("published files")
                if path.rpartition("/")[0] not in line.published:
                    findings.violated(
                        "publish.orphan",
                        line.lineage_id,
                        f"no promotion names the folder of the published file {path}",
                        transient=True,
                        path=path,
                    )

    def _refused_is_nowhere(self, facts: Facts, findings: Findings) -> None:
        for line in self._lines(facts):
            for artifact in line.artifacts:
                findings.examined("ledger rows")
                refused = _refused_digests(facts, artifact.step_key)
                if _digest(artifact.details) in refused:
                    findings.violated(
                        "ledger.refused-payload",
                        _execution_of(artifact.step_key),
                        f"the artifact of {artifact.module} is what a refused write carried",
                        step_key=artifact.step_key,
                        path=artifact.path,
                    )

    def _promoted_once(self, facts: Facts, findings: Findings) -> None:
        for line in self._lines(facts):
            findings.examined("promotions", len(line.promotions))
            _check_twice(line, findings)
            _check_complete(line, facts, findings)
            self._check_promoted_files(line, findings)
            self._check_staged_files(line, facts, findings)

    def _check_promoted_files(self, line: Line, findings: Findings) -> None:
        artifacts = {artifact.step_key: artifact for artifact in line.artifacts}
        own = {attempt.execution_id for attempt in line.attempts}
        for promotion in line.promotions:
            found = fingerprint(self._published / promotion.path)
            if found != (promotion.sha256, promotion.size):
                findings.violated(
                    "promotion.file-differs",
                    promotion.attempt_id,
                    f"the published file of {promotion.module} is {_told(found)}, the ledger"
                    f" has {_told((promotion.sha256, promotion.size))}",
                    path=promotion.path,
                )
            if promotion.attempt_id not in own:
                continue
            source = artifacts.get(promotion.artifact_step_key)
            if source and (source.sha256, source.status) == (promotion.sha256, PROMOTED):
                continue
            state = f"{source.status}, {source.sha256[:12]}…" if source else "gone"
            findings.violated(
                "promotion.artifact-differs",
                promotion.attempt_id,
                f"{promotion.module} is out as {promotion.sha256[:12]}…, and its artifact in"
                f" the ledger is {state}",
                module=promotion.module,
            )

    def _check_staged_files(self, line: Line, facts: Facts, findings: Findings) -> None:
        failed = {attempt.execution_id for attempt in _failed(line, facts)}
        for artifact in line.artifacts:
            if artifact.status == COMPENSATED or artifact.attempt_id in failed:
                continue
            findings.examined("staged artifacts")
            found = fingerprint(self._staging / artifact.path)
            if found != (artifact.sha256, artifact.size):
                findings.violated(
                    "artifact.file-differs",
                    artifact.attempt_id,
                    f"the staged file of {artifact.module} is {_told(found)}, the ledger has"
                    f" {_told((artifact.sha256, artifact.size))}",
                    path=artifact.path,
                )


def _failed(line: Line, facts: Facts) -> list[AttemptRow]:
    def status(attempt: AttemptRow) -> str | None:
        execution = facts.executions.get(attempt.execution_id)
        return execution.status if execution else None

    return [attempt for attempt in line.attempts if status(attempt) in _FAILED]


def _ended(facts: Facts, root: UUID) -> bool:
    return all(e.status in _ENDED for e in facts.executions.values() if e.root_id == root)


def _check_twice(line: Line, findings: Findings) -> None:
    counts = Counter((p.release, p.version, p.module) for p in line.promotions)
    for (release, version, module), count in counts.items():
        if count > 1:
            findings.violated(
                "promotion.twice",
                line.lineage_id,
                f"{module} of {release} {version} is promoted {count} times",
                module=module,
            )


def _check_complete(line: Line, facts: Facts, findings: Findings) -> None:
    for attempt in line.attempts:
        execution = facts.executions.get(attempt.execution_id)
        if execution is None or execution.status != "succeeded":
            continue
        wanted = sorted(module["name"] for module in execution.input["modules"])
        found = sorted({p.module for p in line.promotions if p.attempt_id == attempt.execution_id})
        if found != wanted:
            findings.violated(
                "promotion.incomplete",
                attempt.execution_id,
                f"attempt {attempt.attempt} succeeded with {found} promoted, not {wanted}",
            )


def _checkpoint_epochs(facts: Facts, step_key: str) -> list[int]:
    chain = facts.chains.get(_execution_of(step_key), ())
    return [c.epoch for c in chain if c.step_key == step_key and c.kind == "step"]


def _refused_digests(facts: Facts, step_key: str) -> set[str]:
    events = facts.events.get(_execution_of(step_key), ())
    return {
        event.payload_digest
        for event in events
        if event.name in _REFUSED and event.step_key == step_key and event.payload_digest
    }


def _execution_of(step_key: str) -> UUID:
    return UUID(step_key.partition(":")[0])


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _told(found: tuple[str, int] | None) -> str:
    return "missing" if found is None else f"{found[0][:12]}… of {found[1]} bytes"
