"""What the ASGI middleware keeps in SQL. Its calls block; the middleware makes them in threads."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from fencepost.errors import ConfigurationError, StaleLeaseFenceError
from fencepost.fence import FenceToken
from fencepost.sinks.contract import Claim, conflict
from fencepost.sinks.sql import SinkSession, SqlSink, insert_into, raise_mark
from fencepost.sinks.tables import applied

TENANT_LIMIT = 200

# Of the connection, of the moment, or of the client's session: not for whoever asks again.
NOT_KEPT = {b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server", b"set-cookie"}

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Response:
    """A response as it is kept."""

    status: int
    headers: Headers
    body: bytes

    def dump(self) -> dict[str, Any]:
        """As stored."""
        kept = [(k, v) for k, v in self.headers if k.lower() not in NOT_KEPT]
        return {
            "status": self.status,
            "headers": [[k.decode("latin-1"), v.decode("latin-1")] for k, v in kept],
            "body": base64.b64encode(self.body).decode("ascii"),
        }

    @classmethod
    def load(cls, stored: dict[str, Any]) -> Response:
        """From what was stored."""
        headers = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in stored["headers"]]
        return cls(stored["status"], headers, base64.b64decode(stored["body"]))


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request wants to have checked.

    Attributes:
        tenant: Whose keys and marks they are.
        key: Its idempotency key.
        token: Its fencing token.
        resource: What that protects.
        digest: Of the request.
    """

    tenant: str
    key: str | None
    token: FenceToken | None
    resource: str | None
    digest: str


class Opened:
    """A request's transaction: fence checked, key claimed, ready for the handler's writes."""

    def __init__(self, session: SinkSession, ask: Ask, stack: ExitStack) -> None:
        self.session = session
        self._ask = ask
        self._stack = stack
        # A request that is cancelled must not end the transaction while it is being committed.
        self._lock = threading.Lock()

    def land(self, response: Response) -> None:
        """Keep the response under the key, and commit."""
        with self._lock, self._stack:
            if self._ask.key is not None:
                update = sa.update(applied).where(*_keyed(self._ask))
                self.session.execute(update.values(result=response.dump()))
            self.session.land()

    def abandon(self) -> None:
        """Roll back; harmless after `land`."""
        with self._lock:
            self._stack.close()


class RequestStore:
    """Marks, keys and responses, in the tables of `sinks.tables`.

    Args:
        engine: Of the handlers' database.
        wait: How long a request waits for another one at the same resource or key.
        idle: After this long PostgreSQL ends the transaction of a server that does nothing.
    """

    def __init__(self, engine: sa.Engine, *, wait: timedelta, idle: timedelta) -> None:
        self.sink = SqlSink(engine, wait=wait, idle=idle)

    def advance(self, tenant: str, resource: str, token: FenceToken) -> None:
        """Raise a mark.

        Raises:
            StaleLeaseFenceError: It is higher; that is on record.
            SinkBusyError: A request at the resource is under way.
        """
        with ExitStack() as stack:
            session = stack.enter_context(self.sink.transaction())
            self._raise(session, tenant, resource, token, None)
            session.land()

    def open(self, ask: Ask) -> Opened | Response:
        """Check the fence and claim the key.

        Returns:
            A transaction, or the first response to this key.

        Raises:
            StaleLeaseFenceError: The mark is higher; that is on record.
            EffectKeyConflictError: The key was used for another request.
            SinkBusyError: A request with this key, or at this resource, is under way.
        """
        with ExitStack() as stack:
            session = stack.enter_context(self.sink.transaction())
            if ask.token is not None:
                self._raise(session, ask.tenant, ask.resource or "", ask.token, ask)
            if ask.key is not None:
                response = _claim(session, ask)
                if response is not None:
                    # The mark stays raised, as by every request of a new owner.
                    session.land()
                    return response
            return Opened(session, ask, stack.pop_all())

    def _raise(
        self, session: SinkSession, tenant: str, resource: str, token: FenceToken, ask: Ask | None
    ) -> None:
        name = scoped(tenant, resource)
        try:
            raise_mark(session, token, name)
        except StaleLeaseFenceError as error:
            session.abandon()
            call = None
            if ask is not None and ask.key is not None:
                call = Claim(key=ask.key, token=token, resource=name, digest=ask.digest)
            self.sink.record(error, name, token, call)
            raise


def _claim(session: SinkSession, ask: Ask) -> Response | None:
    token = ask.token
    claim = insert_into(session.connection(), applied).values(
        resource=scoped(ask.tenant, ""),
        key=ask.key,
        execution_id=token.execution_id if token is not None else None,
        epoch=token.epoch if token is not None else None,
        owner=token.owner if token is not None else None,
        digest=ask.digest,
    )
    made = session.execute(claim.on_conflict_do_nothing().returning(applied.c.key)).first()
    if made is not None:
        return None
    first = session.execute(sa.select(applied).where(*_keyed(ask))).one()
    if first.digest != ask.digest:
        raise conflict(ask.key or "", ask.resource or "", ask.digest, first.digest)
    return Response.load(first.result)


def _keyed(ask: Ask) -> Iterable[sa.ColumnElement[bool]]:
    return applied.c.resource == scoped(ask.tenant, ""), applied.c.key == ask.key


def scoped(tenant: str, resource: str) -> str:
    """A name that no other tenant, and no other sink on this database, can have."""
    written = quote(tenant, safe="")
    if len(written) > TENANT_LIMIT:
        raise ConfigurationError(f"a tenant's name has at most {TENANT_LIMIT} characters")
    return f"http:{written}/{resource}"
