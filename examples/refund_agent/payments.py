"""A client for the provider. Both apps use it, so both can be lost at the same two points in it.

`payment.before-send` is right before a request's first byte, `payment.landed` right after its
answer: named crash points, without effect until a plan is armed for them.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, Field

from fencepost import faults

TIMEOUT = 20.0
"""Seconds to wait for an answer."""


class RefundRequest(BaseModel):
    """What a tool call asks for.

    Attributes:
        order_id: The order to refund.
        amount_cents: How much, in cents; partial refunds are common.
        reason: For the customer's statement.
    """

    order_id: str
    amount_cents: int = Field(gt=0)
    reason: str


class Refunded(BaseModel):
    """A booked refund."""

    id: str
    order_id: str
    amount_cents: int


class PaymentRefused(Exception):
    """The provider said no: nothing was booked for this request."""


class PaymentUnclear(Exception):
    """No clear answer: the money may have moved."""


class NotSent(Exception):
    """Nothing left this process."""


class StaleToken(Exception):
    """The provider's fence stands higher than our token.

    Attributes:
        current: The epoch that it stands at.
    """

    def __init__(self, message: str, current: int) -> None:
        super().__init__(message)
        self.current = current


@dataclass(frozen=True)
class Payments:
    """Talks to one provider.

    Attributes:
        url: Such as `http://127.0.0.1:8100`.
    """

    url: str

    def refund(
        self,
        request: RefundRequest,
        *,
        reference: str | None = None,
        key: str | None = None,
        fence: tuple[str, int] | None = None,
        send_within: float | None = None,
    ) -> Refunded:
        """Ask for a refund.

        Args:
            request: What to refund.
            reference: Stored with it, for providers that can be asked.
            key: For providers that dedupe.
            fence: Execution and epoch, for providers that check them.
            send_within: Seconds in which the request must be on its way, or it isn't sent. The
                connection is made first: the provider drops one whose request comes late, so a
                process that freezes here can't send afterwards.

        Raises:
            PaymentRefused: Nothing was booked.
            NotSent: Nothing was sent.
            StaleToken: The fence stands higher; nothing was booked.
            PaymentUnclear, OSError: The money may have moved.
        """
        headers = {}
        if key is not None:
            headers["Idempotency-Key"] = key
        if fence is not None:
            headers["Fencing-Token"] = f"execution={fence[0]};epoch={fence[1]}"
        body: dict[str, Any] = {
            "order_id": request.order_id,
            "amount_cents": request.amount_cents,
            "reference": reference,
        }
        connection = self._connection()
        try:
            if send_within is not None:
                self._connect(connection, time.monotonic() + send_within)
            faults.reach("payment.before-send", order=request.order_id)
            answer = _exchange(connection, "POST", "/refunds", body, headers)
            faults.reach("payment.landed", order=request.order_id)
        finally:
            connection.close()
        return Refunded.model_validate(answer)

    def find(self, reference: str) -> Refunded | None:
        """The refund that was booked under a reference, if the provider can be asked."""
        found = self._call("GET", f"/refunds?reference={quote(reference)}")["found"]
        return Refunded.model_validate(found[0]) if found else None

    def raise_fence(self, resource: str, execution: str, epoch: int) -> None:
        """Let no older epoch of this execution change the resource any more.

        Raises:
            StaleToken: The fence stands higher.
        """
        self._call("POST", "/fence", {"resource": resource, "execution": execution, "epoch": epoch})

    def charge(self, order_id: str, amount_cents: int, *, key: str | None = None) -> str:
        """Charge an order.

        Args:
            order_id: What is paid for.
            amount_cents: How much.
            key: For providers that dedupe.

        Returns:
            The charge's id.

        Raises:
            PaymentRefused: Nothing was booked.
            PaymentUnclear, OSError: The money may have moved.
        """
        body = {"order_id": order_id, "amount_cents": amount_cents}
        headers = {} if key is None else {"Idempotency-Key": key}
        return str(self._call("POST", "/charges", body, headers)["id"])

    def arm(self, order_id: str, fault: str, *, times: int = 1, seconds: float = 0) -> None:
        """Let something go wrong for an order; see `provider_faults`."""
        plan = {"order_id": order_id, "fault": fault, "times": times, "seconds": seconds}
        self._call("POST", "/faults", plan)

    def audit(self, order_id: str) -> dict[str, Any]:
        """What the ledger says of an order: `transfers` and `refusals`."""
        return self._call("GET", f"/ledger?order_id={quote(order_id)}")

    def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        connection = self._connection()
        try:
            return _exchange(connection, method, path, body, headers or {})
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        where = urlsplit(self.url)
        return HTTPConnection(where.hostname or "", where.port, timeout=TIMEOUT)

    def _connect(self, connection: HTTPConnection, deadline: float) -> None:
        try:
            connection.connect()
        except OSError as problem:
            raise NotSent(f"can't connect: {problem}") from problem
        # From here on the connection's age bounds how late the request can arrive.
        if time.monotonic() > deadline:
            raise NotSent("too late to send")


def _exchange(
    connection: HTTPConnection,
    method: str,
    path: str,
    body: dict[str, Any] | None,
    headers: dict[str, str],
) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    try:
        connection.request(method, path, data, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        raw = response.read()
    except HTTPException as problem:
        raise PaymentUnclear(f"{method} {path}: no answer ({type(problem).__name__})") from problem
    return _understood(response, raw)


def _understood(response: HTTPResponse, raw: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(raw)
    if response.status < 300:
        return answer
    error = answer["error"]
    said = f"{response.status} {error['code']}: {error['message']}"
    if response.status == 412:
        raise StaleToken(said, error["current"])
    if response.status in (408, 409, 429) or response.status >= 500:
        raise PaymentUnclear(said)
    raise PaymentRefused(said)
