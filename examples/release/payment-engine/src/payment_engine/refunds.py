"""Refunds: verified, booked against the order's balance, and reported."""

from dataclasses import dataclass, field

from auth_service import verify


class RefundError(ValueError):
    """A refund that can't be booked."""


@dataclass(frozen=True)
class Refund:
    """A booked refund; `amount` and `remaining` are cents."""

    order: str
    amount: int
    remaining: int
    approved_by: str


@dataclass
class Book:
    """What was paid for each order, less what was refunded; cents."""

    balances: dict[str, int] = field(default_factory=dict)


def book(ledger: Book, key: bytes, token: str, order: str, amount: int) -> Refund:
    """Refund part of an order.

    Raises:
        auth_service.TokenError: The token doesn't permit refunds.
        RefundError: The amount isn't positive, or more than what is left.
    """
    claims = verify(key, token, scope="refund")
    left = ledger.balances.get(order, 0)
    if not 0 < amount <= left:
        raise RefundError(f"order {order}: can't refund {amount} of {left} cents")
    ledger.balances[order] = left - amount
    return Refund(order, amount, left - amount, claims.subject)
