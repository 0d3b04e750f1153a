"""A transactional step's transaction: its effects and its checkpoint, or neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import exc
from sqlalchemy.orm import Session

from fencepost import faults, serde
from fencepost.errors import FencepostError, StaleLeaseFenceError
from fencepost.fence import FenceToken
from fencepost.records import Checkpoint, Commit, EventName
from fencepost.stores.sql import chain
from fencepost.stores.sql.engine import unavailable

if TYPE_CHECKING:
    from fencepost.stores.sql.owning import Owning


class StepSession(Session):
    """A session whose end belongs to Fencepost, not to the step's body."""

    def commit(self) -> None:
        """Refused: the effect would land without its checkpoint."""
        raise FencepostError("a transactional step must not commit: Fencepost commits its session")

    def rollback(self) -> None:
        """Refused: raise an exception instead."""
        raise FencepostError("a transactional step must not roll back: raise an exception instead")

    def land(self) -> None:
        """Flush and commit."""
        super().commit()

    def abandon(self) -> None:
        """Roll back and give the connection up; harmless when that has been done."""
        try:
            super().rollback()
        except exc.DBAPIError:
            self.invalidate()
        finally:
            self.close()


class SqlTransaction:
    """Implements `fencepost.ports.Transaction`."""

    def __init__(self, store: Owning, session: StepSession, token: FenceToken) -> None:
        self._store = store
        self._session = session
        self._token = token

    @property
    def session(self) -> Any:
        """The session that the step's body works with."""
        return self._session

    def commit(self, commit: Commit) -> Checkpoint:
        """See `Transaction.commit`."""
        # The fence first: a zombie must learn that it is one, and not trip over its successor's
        # rows. The row's lock is then held until the commit, so nobody can take over in between.
        faults.reach("transaction.before-fence", step=commit.step)
        extended = chain.extend(self._session.connection(), commit, self._store.grace)
        if extended is None:
            self._session.abandon()
            return self._refused(commit)
        self._session.flush()
        faults.reach("transaction.before-commit", step=commit.step)
        try:
            self._session.land()
        except (exc.OperationalError, exc.InterfaceError) as problem:
            self._session.abandon()
            landed = self._store.landed(commit)
            if landed is None:
                raise unavailable(self._store.engine, problem) from problem
            extended = landed
        faults.reach("transaction.after-commit", step=commit.step)
        return extended

    def _refused(self, commit: Commit) -> Checkpoint:
        landed = self._store.landed(commit)
        if landed is not None:
            return landed
        current = self._store.refuse(
            commit.token,
            EventName.ZOMBIE_WRITE_REJECTED,
            "ledger",
            serde.digest(commit.result),
        )
        raise StaleLeaseFenceError(
            commit.token.execution_id,
            held=commit.token.epoch,
            current=current.epoch,
            step_key=commit.token.step_key,
        )
