"""What `status` shows: releases, and one of them in detail."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from rich.table import Table
from rich.text import Text
from sqlalchemy.orm import Session

from coordinator.phrases import who, worker_of
from coordinator.views import GateView, PlanView, gate_of, plan_of
from fencepost.errors import ExecutionNotFoundError
from fencepost.ports import ExecutionStore, LeaseStore
from fencepost.records import Checkpoint, CheckpointKind, Execution, Status
from ledger import attempts
from ledger.models import Attempt

RECENT = 20
_STYLES = {
    Status.SUCCEEDED: "green",
    Status.PARKED: "bold red",
    Status.FAILED: "red",
    Status.COMPENSATED: "yellow",
}


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """One line of releases, by its newest attempt."""

    execution_id: str
    release: str
    version: str
    attempts: int
    status: str
    opened_at: datetime


@dataclass(frozen=True, slots=True)
class ExecutionView:
    """A release's attempt, or one of its modules.

    Attributes:
        at: The newest checkpoint: its step, with its kind where that is another.
        lease_left: Seconds, by Redis's clock; None if nobody holds it.
    """

    execution_id: str
    name: str
    status: str
    phase: str
    epoch: int
    worker: str
    at: str
    checkpoints: int
    lease_left: float | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt with what came of it."""

    attempt: int
    flags: list[str]
    release: ExecutionView
    modules: list[ExecutionView]
    gate: GateView | None
    plan: PlanView | None


@dataclass(frozen=True, slots=True)
class RunView:
    """A whole line of attempts.

    Attributes:
        status: Of the newest attempt.
    """

    execution_id: str
    release: str
    version: str
    status: str
    attempts: list[AttemptView]

    @property
    def promoted(self) -> bool:
        """Whether the release is out."""
        return self.status == Status.SUCCEEDED

    def as_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def recent(session: Session, executions: ExecutionStore) -> list[ReleaseRow]:
    """The newest lines of attempts, newest first."""
    newest = sa.func.max(Attempt.opened_at)
    query = sa.select(Attempt.lineage_id).group_by(Attempt.lineage_id)
    found = []
    for lineage_id in session.scalars(query.order_by(newest.desc()).limit(RECENT)):
        line = attempts.of_lineage(session, lineage_id)
        last = executions.get(line[-1].execution_id)
        found.append(
            ReleaseRow(
                execution_id=str(lineage_id),
                release=line[-1].release,
                version=line[-1].version,
                attempts=len(line),
                status=str(last.status) if last else "gone",
                opened_at=line[0].opened_at,
            )
        )
    return found


def read_run(
    session: Session, executions: ExecutionStore, leases: LeaseStore | None, run: UUID
) -> RunView:
    """Everything about the line that an execution belongs to.

    Args:
        session: On the ledger.
        executions: The truth.
        leases: Liveness; None where there is none any more.
        run: Any execution of the run.

    Raises:
        ExecutionNotFoundError: There is no such execution.
    """
    line = executions.lineage(run)
    releases = [e for e in line if e.parent_id is None]
    if not releases:
        raise ExecutionNotFoundError(run)
    left = _leases(leases, line)
    views = []
    for execution in releases:
        modules = [e for e in line if e.parent_id == execution.execution_id]
        views.append(
            AttemptView(
                attempt=execution.input["attempt"],
                flags=list(execution.input["flags"]),
                release=_view(executions, execution, left),
                modules=[_view(executions, module, left) for module in modules],
                gate=gate_of(session, execution.execution_id),
                plan=plan_of(session, execution.execution_id),
            )
        )
    last = releases[-1]
    return RunView(
        execution_id=str(releases[0].execution_id),
        release=last.input["name"],
        version=last.input["version"],
        status=str(last.status),
        attempts=views,
    )


def _leases(leases: LeaseStore | None, line: list[Execution]) -> dict[UUID, float]:
    if leases is None:
        return {}
    ids = [execution.execution_id for execution in line if not execution.status.ended]
    states = leases.state(ids)
    return {
        execution_id: state.remaining.total_seconds()
        for execution_id, state in zip(ids, states, strict=True)
        if state is not None
    }


def _view(
    executions: ExecutionStore, execution: Execution, left: dict[UUID, float]
) -> ExecutionView:
    chain = executions.chain(execution.execution_id)
    return ExecutionView(
        execution_id=str(execution.execution_id),
        name=who(execution),
        status=str(execution.status),
        phase=str(execution.phase),
        epoch=execution.epoch,
        worker=worker_of(execution.owner or _last_owner(chain)),
        at=_place(chain),
        checkpoints=len(chain),
        lease_left=left.get(execution.execution_id),
        reason=execution.parked_reason or _error(execution),
    )


def _place(chain: tuple[Checkpoint, ...]) -> str:
    if not chain:
        return ""
    last = chain[-1]
    return last.step if last.kind is CheckpointKind.STEP else f"{last.kind} {last.step}"


def _last_owner(chain: tuple[Checkpoint, ...]) -> str:
    return next((c.owner for c in reversed(chain) if c.owner), "")


def _error(execution: Execution) -> str | None:
    error = execution.error
    return None if not error else f"{error['message']} [{error['code']}]"


def releases_table(rows: list[ReleaseRow]) -> Table:
    """Releases, one a line."""
    table = Table(title="Releases", title_justify="left")
    for column in ("started", "release", "version", "attempts", "status", "execution"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row.opened_at:%Y-%m-%d %H:%M:%S}",
            row.release,
            row.version,
            str(row.attempts),
            _status(row.status),
            row.execution_id,
        )
    return table


def run_table(view: RunView) -> Table:
    """One release: its attempts, and under each its modules."""
    table = Table(title=f"{view.release} {view.version}: {view.status}", title_justify="left")
    held = any(v.lease_left is not None for a in view.attempts for v in (a.release, *a.modules))
    columns = ["", "status", "at", "epoch", "worker", "execution", *(["lease"] if held else [])]
    for column in columns:
        table.add_column(column, no_wrap=True)
    for attempt in view.attempts:
        lines = [(f"attempt {attempt.attempt}", attempt.release)]
        lines += [(f"  {module.name}", module) for module in attempt.modules]
        for name, line in lines:
            told = [line.at, str(line.epoch), line.worker, line.execution_id]
            if held:
                told.append("" if line.lease_left is None else f"{line.lease_left:.1f} s left")
            table.add_row(name, _status(line.status), *told)
    return table


def reasons(view: RunView) -> list[str]:
    """Why attempts ended as they did, for people; untrusted text may be part of it."""
    found = []
    for attempt in view.attempts:
        found.append(f"attempt {attempt.attempt}: {' '.join(attempt.flags) or 'no flags'}")
        if attempt.release.reason and attempt.release.status != Status.PARKED:
            found.append(f"  {attempt.release.reason}")
        for line in (attempt.release, *attempt.modules):
            if line.status == Status.PARKED:
                found.append(f"  {line.name} waits for a person: {line.reason}")
                found.append(f'  to go on: fencepost retry {line.execution_id} --why "..."')
        if attempt.gate is not None and not attempt.gate.passed:
            found += [f"  {line}" for line in attempt.gate.reason.splitlines()]
        if attempt.plan is not None:
            changes = [f"add {flag}" for flag in attempt.plan.added_flags]
            changes += [f"drop {flag}" for flag in attempt.plan.removed_flags]
            found.append(f"  plan: {', '.join(changes)} ({attempt.plan.model})")
    return found


def _status(status: str) -> Text:
    styled = {str(known): style for known, style in _STYLES.items()}
    return Text(status, style=styled.get(status, ""))
