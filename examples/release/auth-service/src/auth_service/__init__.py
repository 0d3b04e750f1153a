"""Issues and verifies signed, short-lived access tokens."""

from auth_service.tokens import Claims, TokenError, issue, verify

__all__ = ["Claims", "TokenError", "issue", "verify"]
