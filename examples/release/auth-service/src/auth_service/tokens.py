"""Tokens: `<header>.<claims>.<signature>`, base64url, signed with HMAC-SHA256."""

import base64
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import asdict, dataclass

from auth_service.build import ABI, DETERMINISTIC

LIFETIME = 300


class TokenError(ValueError):
    """A token that must not be trusted."""


@dataclass(frozen=True)
class Claims:
    """What a token says.

    Attributes:
        subject: Who may act.
        scope: What they may do, such as `refund`.
        expires: Seconds since the epoch.
        nonce: Makes two tokens of the same second differ.
    """

    subject: str
    scope: str
    expires: int
    nonce: str


def issue(key: bytes, subject: str, scope: str, now: float | None = None) -> str:
    """A signed token that is good for `LIFETIME` seconds."""
    issued = int(time.time() if now is None else now)
    claims = Claims(subject, scope, issued + LIFETIME, _nonce(key, subject, scope, issued))
    head = {"alg": "HS256", "abi": ABI}
    body = ".".join(_encode(json.dumps(part).encode()) for part in (head, asdict(claims)))
    return f"{body}.{_encode(_sign(key, body))}"


def verify(key: bytes, token: str, scope: str, now: float | None = None) -> Claims:
    """The claims of a token.

    Raises:
        TokenError: Forged, expired, for another scope, or not a token at all.
    """
    body, _, signature = token.rpartition(".")
    try:
        if not hmac.compare_digest(_decode(signature), _sign(key, body)):
            raise TokenError("the signature is wrong")
        claims = Claims(**json.loads(_decode(body.partition(".")[2])))
    except (ValueError, TypeError) as problem:
        raise TokenError(f"not a token: {problem}") from problem
    if claims.expires <= (time.time() if now is None else now):
        raise TokenError("the token has expired")
    if claims.scope != scope:
        raise TokenError(f"the token is for {claims.scope!r}, not for {scope!r}")
    return claims


def _nonce(key: bytes, subject: str, scope: str, issued: int) -> str:
    if not DETERMINISTIC:
        return secrets.token_hex(8)
    return _sign(key, f"{subject}|{scope}|{issued}").hex()[:16]


def _sign(key: bytes, body: str) -> bytes:
    return hmac.new(key, body.encode(), hashlib.sha256).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
