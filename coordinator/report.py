"""What a run leaves for later: `report.json`, `events.jsonl`."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from coordinator.claims import Claim
from coordinator.scenarios import Course
from coordinator.site import SQLITE_FILE, Site
from coordinator.views import gate_of, plan_of
from fencepost.ports import ExecutionStore
from fencepost.records import Event
from fencepost.verify import Report
from ledger import attempts, database

REPORT_FILE = "report.json"
EVENTS_FILE = "events.jsonl"
_PACKAGES = ("fencepost", "celery", "kombu", "redis", "sqlalchemy")


@dataclass
class RunReport:
    """What one run of a scenario has shown.

    Attributes:
        site: Where it played.
        scenario: Its name.
        root_id: The execution that was started; None before that.
        exit_code: What the command will end with.
        damage: In words, what running without guards has broken.
    """

    site: Site
    scenario: str
    root_id: UUID | None = None
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    course: Course | None = None
    claims: Sequence[Claim] = ()
    invariants: Report | None = None
    damage: Sequence[str] = ()
    exit_code: int = 0

    @property
    def execution_id(self) -> UUID:
        """The execution that was started."""
        assert self.root_id is not None  # asked after the start only
        return self.root_id

    @property
    def ok(self) -> bool:
        """Whether everything that was promised held."""
        held = all(claim.held for claim in self.claims)
        return held and (self.invariants is None or self.invariants.ok)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON data; no password is part of it."""
        site, ended = self.site, datetime.now(UTC)
        return {
            "run": site.run_id,
            "scenario": self.scenario,
            "guards": not site.settings.unfenced,
            "ok": self.ok,
            "exit_code": self.exit_code,
            "began": self.began.isoformat(),
            "seconds": round((ended - self.began).total_seconds(), 3),
            "versions": {name: version(name) for name in _PACKAGES}
            | {"python": platform.python_version()},
            "servers": _servers(site),
            "lease_ttl": site.settings.lease_ttl,
            "execution_id": str(self.execution_id),
            "attempts": _attempts(site, self.execution_id),
            "struck": None if self.course is None else _struck(self.course),
            "refusals": [] if self.course is None else [_event(e) for e in self.course.refusals],
            "claims": [asdict(claim) for claim in self.claims],
            "invariants": None
            if self.invariants is None
            else self.invariants.model_dump(mode="json"),
            "damage": list(self.damage),
        }

    def write_history(self, executions: ExecutionStore) -> None:
        """Append the run's events and checkpoints to `events.jsonl`."""
        entries = history(executions, self.execution_id)
        with (self.site.folder / EVENTS_FILE).open("a") as log:
            log.writelines(f"{json.dumps(entry, default=str)}\n" for entry in entries)


def history(executions: ExecutionStore, root_id: UUID) -> list[dict[str, Any]]:
    """Every audit event and checkpoint of a run, by time."""
    line = executions.lineage(root_id)
    names = {e.execution_id: e.saga for e in line}
    found: list[dict[str, Any]] = [
        {"type": "event", "saga": names[event.execution_id]} | _event(event)
        for event in executions.events(list(names))
    ]
    for execution_id, saga in names.items():
        found += [
            {"type": "checkpoint", "saga": saga, "at": c.created_at.isoformat()}
            | {name: value for name, value in asdict(c).items() if name != "created_at"}
            for c in executions.chain(execution_id)
        ]
    return sorted(found, key=lambda entry: str(entry["at"]))


def _event(event: Event) -> dict[str, Any]:
    told = asdict(event) | {"name": str(event.name), "details": dict(event.details)}
    return told | {"at": None if event.at is None else event.at.isoformat()}


def _struck(course: Course) -> Mapping[str, Any]:
    struck = course.struck
    return {
        "worker": struck.worker.name,
        "pid": struck.pid,
        "process_group": struck.worker.pgid,
        "execution_id": str(struck.execution_id),
        "module": struck.execution.input["module"]["name"],
        "attempt": struck.execution.input["attempt"],
        "epoch_before": struck.execution.epoch,
        "epoch_after": course.acquired.epoch,
        "owner_before": struck.execution.owner,
        "owner_after": course.acquired.owner,
        "latency_seconds": round(course.latency, 3),
        "taken_over": course.recovered is not None,
    }


def _servers(site: Site) -> Mapping[str, Any]:
    backend = sa.make_url(site.settings.database).get_backend_name()
    own_file = site.folder / SQLITE_FILE
    return {
        "database": backend,
        "database_file": SQLITE_FILE if own_file.exists() else None,
        "own": {
            "database": site.servers.database is None,
            "broker": site.servers.broker is None,
        },
    }


def _attempts(site: Site, root_id: UUID) -> list[Mapping[str, Any]]:
    with database.session(site.settings.database) as session:
        return [
            {
                "attempt": row.attempt,
                "execution_id": str(row.execution_id),
                "release": row.release,
                "version": row.version,
                "status": str(row.status),
                "flags": row.flags,
                "gate": _plain(gate_of(session, row.execution_id)),
                "plan": _plain(plan_of(session, row.execution_id)),
            }
            for row in attempts.of_lineage(session, root_id)
        ]


def _plain(view: Any) -> Any:
    return None if view is None else asdict(view)


def latencies(values: Sequence[float]) -> dict[str, Any]:
    """Some durations in seconds, summed up."""
    rounded = [round(value, 3) for value in values]
    return {
        "min": min(rounded),
        "median": round(statistics.median(rounded), 3),
        "max": max(rounded),
        "values": rounded,
    }
