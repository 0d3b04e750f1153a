"""The guards off, to show what they are for. Never for anything else.

What a checkpoint store without fences does: the last write wins. A worker that lost its
execution writes as if it were the owner, overwrites what its successor has committed, and
believes in its lease for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost.celery import Fencepost
from fencepost.errors import ConfigurationError
from fencepost.fence import FenceToken
from fencepost.ports import LeaseStore
from fencepost.records import Checkpoint, Commit, Event, Lease, LeaseState
from fencepost.stores.sql import SqlExecutionStore, create_engine
from fencepost.stores.sql.schema import checkpoints, executions
from fencepost.stores.sql.transactions import SqlTransaction
from fencepost.stores.sql.types import after, now
from ledger.models import ARTIFACT_GUARD, Artifact, Attestation, Diagnostics

MARK = "coordinator_unfenced_demo"
"""A table that only a demonstration makes, in a database that it has just made itself."""

_REPLACED = (Artifact, Attestation, Diagnostics)


def mark(database_url: str) -> None:
    """Allow workers without guards on this database, and drop the ledger's own guard."""
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text(f"CREATE TABLE {MARK} (made integer)"))
        ARTIFACT_GUARD.drop(connection)
    engine.dispose()


def objections(database_url: str) -> list[str]:
    """Why a worker may not run without guards on this database; empty if it may."""
    engine = create_engine(database_url)
    try:
        if sa.inspect(engine).has_table(MARK):
            return []
    finally:
        engine.dispose()
    problem = "FACTORY_UNFENCED is set, and this database wasn't made by `demo --unfenced`"
    return [f"{problem}: unset it [config.unfenced]"]


class UnfencedFencepost(Fencepost):
    """Fencepost over stores that refuse nothing."""

    def open_executions(self, database: sa.Engine) -> SqlExecutionStore:
        """An execution store where the last write wins."""
        return UnfencedExecutionStore(database)

    def open_leases(self) -> LeaseStore:
        """A lease store whose holders never doubt."""
        return UnfencedLeaseStore(super().open_leases())


class UnfencedExecutionStore(SqlExecutionStore):
    """Writes for whoever asks, whatever its epoch; a repeated checkpoint replaces the first."""

    def commit(self, commit: Commit) -> Checkpoint:
        """Extend the chain, or overwrite the checkpoint of the same step key and kind."""
        with self.writing() as connection:
            head, seq = _seize(connection, commit.token)
            overwritten = _overwrite(connection, commit)
        if overwritten is not None:
            return _named(self.chain(commit.token.execution_id), overwritten)
        return super().commit(replace(commit, parent=head, seq=seq + 1))

    @contextmanager
    def transaction(self, token: FenceToken) -> Iterator[SqlTransaction]:
        """Open a transaction whose rows replace those of the same step key."""
        with super().transaction(token) as fenced:
            sa.event.listen(fenced.session, "before_flush", _replace_rows)
            yield cast(SqlTransaction, UnfencedTransaction(self, fenced))

    def _give_up(self, token: FenceToken, due_in: timedelta, event: Event, **values: Any) -> None:
        with self.writing() as connection:
            _seize(connection, token)
        super()._give_up(token, due_in, event, **values)

    def _report_stale(self, token: FenceToken) -> None:
        """Nobody is ever told."""


class UnfencedTransaction:
    """A transactional step's transaction whose fence lets everybody through.

    Args:
        store: Where checkpoints are read.
        fenced: The real one.
    """

    def __init__(self, store: SqlExecutionStore, fenced: SqlTransaction) -> None:
        self._store = store
        self._fenced = fenced

    @property
    def session(self) -> Any:
        """The session that the step's body works with."""
        return self._fenced.session

    def commit(self, commit: Commit) -> Checkpoint:
        """Become the owner, write, commit."""
        self.session.flush()
        connection = self.session.connection()
        head, seq = _seize(connection, commit.token)
        overwritten = _overwrite(connection, commit)
        if overwritten is None:
            return self._fenced.commit(replace(commit, parent=head, seq=seq + 1))
        self.session.land()
        return _named(self._store.chain(commit.token.execution_id), overwritten)


class UnfencedLeaseStore:
    """Leases that their holders believe in for ever; others see them expire all the same."""

    def __init__(self, leases: LeaseStore) -> None:
        self._leases = leases

    def acquire(self, execution_id: UUID, owner: str, ttl: timedelta) -> Lease | None:
        """Take a lease that is free or expired."""
        lease = self._leases.acquire(execution_id, owner, ttl)
        return None if lease is None else _believed(lease)

    def settle(self, lease: Lease, epoch: int, ttl: timedelta) -> Lease | None:
        """Write the epoch back; whoever lost the lease isn't told."""
        self._leases.settle(lease, epoch, ttl)
        return _believed(replace(lease, epoch=epoch))

    def renew(self, lease: Lease, ttl: timedelta, *, restore: bool) -> Lease | None:
        """Extend the lease; whoever lost it isn't told."""
        self._leases.renew(lease, ttl, restore=restore)
        return _believed(lease)

    def release(self, lease: Lease, *, forget: bool) -> bool:
        """Give the lease up."""
        return self._leases.release(lease, forget=forget)

    def state(self, execution_ids: Sequence[UUID]) -> list[LeaseState | None]:
        """For each execution its live lease, or None."""
        return self._leases.state(execution_ids)

    def claim_expired(self, limit: int, hold: timedelta) -> list[UUID]:
        """Executions whose lease has expired."""
        return self._leases.claim_expired(limit, hold)

    def discard(self, execution_ids: Iterable[UUID]) -> None:
        """Forget executions that have ended."""
        self._leases.discard(execution_ids)


def _believed(lease: Lease) -> Lease:
    return replace(lease, deadline=float("inf"))


def _seize(connection: sa.Connection, token: FenceToken) -> tuple[UUID, int]:
    """Make the writer the owner, epoch and all; returns the chain's head and its number."""
    row = connection.execute(
        sa.update(executions)
        .where(executions.c.execution_id == token.execution_id)
        .values(epoch=token.epoch, owner=token.owner)
        .returning(executions.c.head, executions.c.head_seq)
    ).one()
    return row.head, row.head_seq


def _overwrite(connection: sa.Connection, commit: Commit) -> UUID | None:
    """Replace the checkpoint of the same step key and kind; None if there is none."""
    token = commit.token
    replaced: UUID | None = connection.execute(
        sa.update(checkpoints)
        .where(checkpoints.c.step_key == token.step_key, checkpoints.c.kind == commit.kind)
        .values(
            epoch=token.epoch,
            owner=token.owner,
            attempt=commit.attempt,
            result=commit.result,
            created_at=now(),
        )
        .returning(checkpoints.c.checkpoint_id)
    ).scalar()
    if replaced is not None:
        connection.execute(
            sa.update(executions)
            .where(executions.c.execution_id == token.execution_id)
            .values(
                status=commit.status,
                phase=commit.phase,
                result=commit.outcome,
                error=commit.error,
                due_at=after(sa.literal(commit.due_in.total_seconds())),
                ended_at=None,
            )
        )
    return replaced


def _named(chain: Sequence[Checkpoint], checkpoint_id: UUID) -> Checkpoint:
    return next(c for c in chain if c.checkpoint_id == checkpoint_id)


def _replace_rows(session: Session, _context: object, _instances: object) -> None:
    for new in list(session.new):
        if isinstance(new, _REPLACED):
            kind = type(new)
            session.connection().execute(sa.delete(kind).where(kind.step_key == new.step_key))


def refuse_foreign_servers(given: Sequence[str]) -> None:
    """The guards are never off on a server that somebody else relies on.

    Args:
        given: The options by which servers were named.

    Raises:
        ConfigurationError: Any was.
    """
    if given:
        raise ConfigurationError(
            f"--unfenced damages what it runs on, and {', '.join(given)} names a server of yours:"
            " leave that out, the demo starts its own"
        )
