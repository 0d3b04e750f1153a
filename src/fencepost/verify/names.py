"""The vocabulary of the stored facts, and how ids and digests come about, once more.

Written down a second time on purpose: a verifier that asked the engine would repeat its mistakes.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

ENDED = frozenset({"succeeded", "failed", "compensated", "continued"})
"""Statuses after which nothing runs any more. Those that remain are live, parked ones included."""

ACQUIRED = "lease.acquired"
RAISED = "execution.epoch-raised"
REFUSED = frozenset({"execution.lease-lost", "ZOMBIE_WRITE_REJECTED"})

CANCELLED = "execution.cancelled"
DEADLINE_PASSED = "execution.deadline-passed"
"""Both are names of audit events, and the failure codes of those who were so turned back."""
REPINNED = "execution.repinned"
REOPENED = "execution.reopened"
UNPARKED = "execution.unparked"
FORKED = "execution.forked"

PARENT_FAILED = "saga.parent-failed"
"""The failure code of a child that undoes its work because its parent failed."""
STOPPED = "saga.stopped"
"""The failure code of a child that undoes its work because enough of its siblings succeeded."""

FROM_ABOVE = frozenset({PARENT_FAILED, STOPPED})
FROM_OUTSIDE = FROM_ABOVE | {CANCELLED, DEADLINE_PASSED}
"""Failure codes of those who were told to turn back: no error branch is taken then."""

RUN_TASK = "fencepost.run"
JOIN_TASK = "fencepost.join"

_EXECUTIONS = uuid5(NAMESPACE_URL, "urn:fencepost:execution")


def _derived(*parts: object) -> UUID:
    return uuid5(_EXECUTIONS, "\x1f".join(str(part) for part in parts))


def derived_child(parent_id: UUID, step: str, visit: int, index: int) -> UUID:
    """The id that the child at `index` (from 0) of a fan-out must have."""
    return _derived("child", parent_id, step, visit, index)


def derived_continuation(execution_id: UUID) -> UUID:
    """The id that the execution which continues this one as new must have."""
    return _derived("continue", execution_id)


def derived_keyed(saga: str, business_key: str) -> UUID:
    """The id that the execution with this business key must have."""
    return _derived("key", saga, business_key)


def digest_of(value: Any) -> str:
    """`sha256:<hex>` over JSON with sorted keys and no white space."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
