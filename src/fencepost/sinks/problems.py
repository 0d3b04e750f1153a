"""Problem documents (RFC 9457) with which the ASGI middleware refuses a request."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import exc

from fencepost.errors import EffectKeyConflictError, StaleLeaseFenceError
from fencepost.sinks.contract import SinkBusyError
from fencepost.sinks.http import HeaderError

logger = logging.getLogger(__name__)

BODY_TOO_LARGE = "sink.body-too-large"
RESPONSE_TOO_LARGE = "sink.response-too-large"
UNAVAILABLE = "service.unavailable"


class Problem(Exception):
    """An answer instead of the application's.

    Args:
        status: HTTP status code.
        kind: The problem's type: a stable code.
        detail: One sentence for a person.
        fields: More members of the document.
        **headers: Sent with it; underscores stand for hyphens.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        fields: dict[str, Any] | None = None,
        **headers: str,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.document = {"type": kind, "status": status, "detail": detail, **(fields or {})}
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    async def send(self, send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
        """Answer with it."""
        body = json.dumps(self.document).encode()
        headers = {
            "content-type": "application/problem+json",
            "content-length": str(len(body)),
            **self.headers,
        }
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": encoded})
        await send({"type": "http.response.body", "body": body})


@contextmanager
def problem_of(*errors: type[Exception]) -> Iterator[None]:
    """Turn these errors into problems.

    The IETF draft on idempotency keys has 400 for a bad key, 409 for one that is under way, and
    422 for one that was used for another request. 412 says that a condition of the request, its
    token, doesn't hold.
    """
    try:
        yield
    except errors as error:
        raise _problem(error) from error


def _problem(error: Exception) -> Problem:
    match error:
        case StaleLeaseFenceError():
            facts = {"held": error.held, "current": error.current}
            return Problem(412, error.code, error.message, facts)
        case EffectKeyConflictError():
            return Problem(422, error.code, error.message, error.fields)
        case SinkBusyError():
            return Problem(409, error.code, error.message, retry_after="1")
        case HeaderError():
            return Problem(400, error.code, error.message)
        case exc.SQLAlchemyError():
            logger.error("the sink's database failed", exc_info=error)
            # Not even a failed commit has said no: the key makes it safe to ask again.
            detail = "The database failed. Send the request again, with the same key"
            return Problem(503, UNAVAILABLE, detail, retry_after="1")
        case _:
            raise error
