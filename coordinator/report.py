"""What a run leaves for later: `report.json`, `report.html`, `events.jsonl`."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
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
from fencepost import report
from fencepost.ports import ExecutionStore
from fencepost.records import Event
from fencepost.stores.sql import SqlEffectStore, SqlExecutionStore
from fencepost.verify import Report, Verdict
from ledger import attempts, database

REPORT_FILE = "report.json"
PAGE_FILE = "report.html"
EVENTS_FILE = "events.jsonl"
_STRUCK = {
    "freeze": "frozen",
    "late-write": "frozen",
    "kill": "killed",
    "term": "told to leave",
    "partition": "cut off",
    "redis-restart": "in mid-step when Redis was restarted",
}
_PACKAGES = ("fencepost", "celery", "kombu", "redis", "sqlalchemy")


@dataclass
class RunReport:
    """What one run of a scenario has shown.

    Attributes:
        site: Where it played.
        scenario: Its name.
        root_id: The execution that was started; None before that.
        release: Its release's name.
        exit_code: What the command will end with.
        damage: In words, what running without guards has broken.
    """

    site: Site
    scenario: str
    root_id: UUID | None = None
    release: str = ""
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
        """Append the run's events and checkpoints to `events.jsonl`, and write the page."""
        entries = history(executions, self.execution_id)
        with (self.site.folder / EVENTS_FILE).open("a") as log:
            log.writelines(f"{json.dumps(entry, default=str)}\n" for entry in entries)
        path = self.site.folder / PAGE_FILE
        if path.exists():  # of an earlier one of several releases
            path = path.with_stem(f"report-{self.execution_id}")
        path.write_text(self.page(executions), "utf-8")

    def page(self, executions: ExecutionStore) -> str:
        """The run as one HTML page, for people who were not there."""
        assert isinstance(executions, SqlExecutionStore)  # scenarios have no other
        timeline = report.read(
            executions, SqlEffectStore(executions), self.execution_id, list(self._outside())
        )
        sections = [
            report.Section(
                "What must be so, read back from SQL and disk",
                ("", "claim", "found"),
                [(claim.held, claim.what, claim.shown) for claim in self.claims],
            )
        ]
        if self.invariants is not None:
            rows = [
                (line.verdict != Verdict.VIOLATED, f"{line.number}. {line.title}", line.verdict)
                for line in self.invariants.invariants
            ]
            sections.append(
                report.Section("The invariants, from stored facts", ("", "invariant", ""), rows)
            )
        return report.render(
            f"Scenario {self.scenario}: {'as promised' if self.ok else 'NOT as promised'}",
            timeline,
            summary=[*self._told(), *self.damage],
            sections=sections,
        )

    def _outside(self) -> Iterator[report.Outside]:
        if self.course is None:
            return
        struck = self.course.struck
        returned = [event.at for event in self.course.refusals if event.at is not None]
        if self.course.returned is not None:
            returned.append(datetime.fromtimestamp(self.course.returned, UTC))
        yield report.Outside(
            struck.worker.name,
            datetime.fromtimestamp(struck.at, UTC),
            min(returned, default=None),
            _STRUCK.get(self.scenario, self.scenario),
        )

    def _told(self) -> Iterator[str]:
        yield f"A release of the factory, played as scenario {self.scenario!r} on real workers."
        if self.course is not None:
            struck = self.course.struck
            how = _STRUCK.get(self.scenario, self.scenario)
            yield (
                f"{struck.worker.name} was {how} at {struck.point}, with epoch"
                f" {struck.execution.epoch} of execution {struck.execution_id}."
            )


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
        **struck.worker.facts,
        "execution_id": str(struck.execution_id),
        "module": struck.execution.input["module"]["name"],
        "attempt": struck.execution.input["attempt"],
        "epoch_before": struck.execution.epoch,
        "epoch_after": (course.acquired or struck.execution).epoch,
        "owner_before": struck.execution.owner,
        "owner_after": (course.acquired or struck.execution).owner,
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
