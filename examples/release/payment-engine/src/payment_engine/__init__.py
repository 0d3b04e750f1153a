"""Books refunds for callers that auth-service vouches for."""

from payment_engine.refunds import Refund, RefundError, book

__all__ = ["Refund", "RefundError", "book"]
