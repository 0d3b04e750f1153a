"""`verify`: read the facts, run the checks, wait for what goes away by itself."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeVar
from uuid import UUID

from fencepost.errors import ExecutionNotFoundError
from fencepost.verify.checks import ENGINE_INVARIANTS
from fencepost.verify.facts import Facts, LeaseFact, MessageFact
from fencepost.verify.invariant import TITLES, Findings, Invariant
from fencepost.verify.liveness import SCHEMES, RedisReader
from fencepost.verify.report import InvariantReport, Report, Verdict
from fencepost.verify.sql import Database, Snapshot

POLL = 0.25
"""Seconds between two readings while transient findings are waited for."""

NOT_ASKED_FOR = "the application adds this check: the engine knows nothing of what it is about"
NOTHING_THERE = "no fact of this kind is stored, so nothing is proved"


def verify(
    database_url: str,
    redis_url: str | None = None,
    broker_url: str | None = None,
    *,
    run: UUID | str | None = None,
    extra: Sequence[Invariant] = (),
    settle: timedelta = timedelta(0),
    redis_prefix: str = "fencepost:",
) -> Report:
    """Check the invariants against what is stored. Writes nothing anywhere.

    Reads with queries of its own, and shares no code with the engine that wrote the facts.

    Args:
        database_url: SQLAlchemy URL of the truth: PostgreSQL or SQLite.
        redis_url: Where the leases are; without it they are not looked at, and the report says so.
        broker_url: Celery's broker; the same holds for its messages. Only Redis can be read.
        run: Any execution of the run that is to be verified; None for the whole database.
        extra: An application's own checks.
        settle: How long to read again while there are transient findings.
        redis_prefix: As in `FencepostSettings`.

    Raises:
        ExecutionNotFoundError: There is no such run.
        ConfigurationError: A URL can't be read.
        SchemaError: The database has no such tables.
        ServiceUnavailableError: A server doesn't answer.
    """
    with ExitStack() as open_sources:
        sources = _Sources(open_sources, database_url, redis_url, broker_url, redis_prefix)
        started = time.monotonic()
        while True:
            report = _verify_once(sources, _as_id(run), [*ENGINE_INVARIANTS, *extra])
            report.waited = round(time.monotonic() - started, 3)
            left = settle.total_seconds() - report.waited
            if left <= 0 or not any(violation.transient for violation in report.violations):
                return report
            time.sleep(min(POLL, left))


class _Sources:
    """Where the facts are."""

    def __init__(
        self,
        stack: ExitStack,
        database_url: str,
        redis_url: str | None,
        broker_url: str | None,
        prefix: str,
    ) -> None:
        self.database = Database(database_url)
        stack.callback(self.database.close)
        self._prefix = prefix
        self._leases = RedisReader(redis_url) if redis_url else None
        self.leases_unread = None if redis_url else "no Redis URL was given"
        self.messages_unread = _why_unread(broker_url)
        self._broker = RedisReader(broker_url) if broker_url and not self.messages_unread else None
        for reader in (self._leases, self._broker):
            if reader is not None:
                stack.callback(reader.close)

    def leases(self, snapshot_epochs: dict[UUID, int]) -> dict[UUID, LeaseFact]:
        """What Redis knows of these executions."""
        if self._leases is None:
            return {}
        known = list(self._leases.leases(list(snapshot_epochs), self._prefix))
        # The snapshot is older than what Redis says: ask SQL again before calling it behind.
        ahead = [i for i, _, epoch, _ in known if epoch is not None and epoch > snapshot_epochs[i]]
        epochs = dict(snapshot_epochs)
        if ahead:
            with self.database.snapshot() as later:
                epochs |= later.epochs(ahead)
        return {
            execution_id: LeaseFact(execution_id, owner, epoch, listed, epochs[execution_id])
            for execution_id, owner, epoch, listed in known
        }

    def messages(self) -> dict[UUID, tuple[MessageFact, ...]]:
        """What the broker holds for any execution."""
        return _by_execution(self._broker.messages() if self._broker is not None else ())


def _verify_once(sources: _Sources, run: UUID | None, invariants: list[Invariant]) -> Report:
    at = datetime.now(UTC)
    findings: dict[int, Findings] = {i.number: Findings(i.number) for i in invariants}
    statuses: Counter[str] = Counter()
    with sources.database.snapshot() as snapshot:
        root = None if run is None else snapshot.root_of(run)
        for facts in _facts(sources, snapshot, root):
            statuses.update(execution.status for execution in facts.executions.values())
            for invariant in invariants:
                invariant.check(facts, findings[invariant.number])
    headings = dict(TITLES) | {i.number: i.heading for i in invariants if i.number not in TITLES}
    return Report(
        run=root,
        database=sources.database.address,
        at=at,
        waited=0.0,
        executions=dict(sorted(statuses.items())),
        invariants=[_line(n, headings[n], findings.get(n)) for n in sorted(headings)],
    )


def _facts(sources: _Sources, snapshot: Snapshot, root: UUID | None) -> Iterator[Facts]:
    messages: dict[UUID, tuple[MessageFact, ...]] | None = None
    strays = tuple(snapshot.strays()) if root is None else ()
    for roots in snapshot.batches() if root is None else [[root]]:
        executions = {e.execution_id: e for e in snapshot.executions(roots)}
        # After the snapshot has begun: what it says has ended had ended before Redis was asked.
        if messages is None:
            messages = sources.messages()
        forked_from = {e.forked_from for e in executions.values() if e.forked_from is not None}
        yield Facts(
            executions=executions,
            chains=_by_execution(snapshot.checkpoints(roots)),
            events=_by_execution(snapshot.events(roots)),
            effects=_by_execution(snapshot.effects(roots)),
            leases=sources.leases({i: e.epoch for i, e in executions.items()}),
            messages={i: messages[i] for i in executions if i in messages},
            leases_unread=sources.leases_unread,
            messages_unread=sources.messages_unread,
            strays=strays,
            signals=_by_execution(snapshot.signals(roots)),
            origins=_by_execution(snapshot.chains(forked_from)),
        )
        strays = ()


class _OfExecution(Protocol):
    @property
    def execution_id(self) -> UUID: ...


Fact = TypeVar("Fact", bound=_OfExecution)


def _by_execution(facts: Iterable[Fact]) -> dict[UUID, tuple[Fact, ...]]:
    found: dict[UUID, list[Fact]] = defaultdict(list)
    for fact in facts:
        found[fact.execution_id].append(fact)
    return {execution_id: tuple(its) for execution_id, its in found.items()}


def _line(number: int, title: str, found: Findings | None) -> InvariantReport:
    if found is None:
        return InvariantReport(
            number=number, title=title, verdict=Verdict.NOT_APPLICABLE, notes=[NOT_ASKED_FOR]
        )
    notes = list(found.notes)
    if found.violations:
        verdict = Verdict.VIOLATED
    elif sum(found.counts.values()) == 0:
        verdict = Verdict.NOTHING
        notes.append(NOTHING_THERE)
    else:
        verdict = Verdict.OK
    return InvariantReport(
        number=number,
        title=title,
        verdict=verdict,
        examined=dict(found.counts),
        violations=found.violations,
        notes=notes,
    )


def _as_id(run: UUID | str | None) -> UUID | None:
    if run is None or isinstance(run, UUID):
        return run
    try:
        return UUID(run)
    except ValueError:
        raise ExecutionNotFoundError(run) from None


def _why_unread(broker_url: str | None) -> str | None:
    if not broker_url:
        return "no broker URL was given"
    if not broker_url.startswith(SCHEMES):
        return f"a broker of kind {broker_url.partition(':')[0]} can't be read"
    return None
