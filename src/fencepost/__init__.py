"""Fencepost makes Celery fleets safe to retry.

Importing this package is fast: Celery, redis and SQLAlchemy are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fencepost._version import __version__

if TYPE_CHECKING:
    from fencepost.celery import Fencepost, Handle, install, start
    from fencepost.context import StepContext, TransactionalContext
    from fencepost.durable import DurableTask, TaskContext, task
    from fencepost.effects import (
        Effect,
        EffectCall,
        EffectKind,
        FencedSink,
        Landed,
        NotLanded,
        Unknown,
        effect,
    )
    from fencepost.errors import (
        ApprovalRejectedError,
        BusinessKeyConflictError,
        ChildrenFailedError,
        EffectKeyConflictError,
        EffectRefusedError,
        ExecutionFailedError,
        ExecutionLeaseLostError,
        FenceError,
        FencepostError,
        LoopBoundError,
        NeedsPerson,
        StaleLeaseFenceError,
        StepDeadlineError,
        WaitTimeoutError,
    )
    from fencepost.failure import Failure
    from fencepost.fence import FenceToken
    from fencepost.limits import Limit
    from fencepost.records import Phase, Status
    from fencepost.retry import RetryPolicy
    from fencepost.saga import (
        STAYS,
        AllSucceed,
        Approval,
        ChildResult,
        Collect,
        ErrorBranch,
        FirstFailure,
        Quorum,
        Saga,
        Signal,
        Step,
        step,
    )
    from fencepost.settings import FencepostSettings

_HOMES = {
    "AllSucceed": "fencepost.saga",
    "Approval": "fencepost.saga",
    "ApprovalRejectedError": "fencepost.errors",
    "BusinessKeyConflictError": "fencepost.errors",
    "ChildResult": "fencepost.saga",
    "ChildrenFailedError": "fencepost.errors",
    "Collect": "fencepost.saga",
    "DurableTask": "fencepost.durable",
    "Effect": "fencepost.effects",
    "EffectCall": "fencepost.effects",
    "EffectKeyConflictError": "fencepost.errors",
    "EffectKind": "fencepost.effects",
    "EffectRefusedError": "fencepost.errors",
    "ErrorBranch": "fencepost.saga",
    "ExecutionFailedError": "fencepost.errors",
    "ExecutionLeaseLostError": "fencepost.errors",
    "Failure": "fencepost.failure",
    "FenceError": "fencepost.errors",
    "FenceToken": "fencepost.fence",
    "FencedSink": "fencepost.effects",
    "Fencepost": "fencepost.celery",
    "FencepostError": "fencepost.errors",
    "FencepostSettings": "fencepost.settings",
    "FirstFailure": "fencepost.saga",
    "Handle": "fencepost.celery",
    "Landed": "fencepost.effects",
    "Limit": "fencepost.limits",
    "LoopBoundError": "fencepost.errors",
    "NeedsPerson": "fencepost.errors",
    "NotLanded": "fencepost.effects",
    "Phase": "fencepost.records",
    "Quorum": "fencepost.saga",
    "RetryPolicy": "fencepost.retry",
    "STAYS": "fencepost.saga",
    "Saga": "fencepost.saga",
    "Signal": "fencepost.saga",
    "StaleLeaseFenceError": "fencepost.errors",
    "Status": "fencepost.records",
    "Step": "fencepost.saga",
    "StepContext": "fencepost.context",
    "StepDeadlineError": "fencepost.errors",
    "TaskContext": "fencepost.durable",
    "TransactionalContext": "fencepost.context",
    "Unknown": "fencepost.effects",
    "WaitTimeoutError": "fencepost.errors",
    "effect": "fencepost.effects",
    "install": "fencepost.celery",
    "start": "fencepost.celery",
    "step": "fencepost.saga",
    "task": "fencepost.durable",
}

__all__ = [
    "STAYS",
    "AllSucceed",
    "Approval",
    "ApprovalRejectedError",
    "BusinessKeyConflictError",
    "ChildResult",
    "ChildrenFailedError",
    "Collect",
    "DurableTask",
    "Effect",
    "EffectCall",
    "EffectKeyConflictError",
    "EffectKind",
    "EffectRefusedError",
    "ErrorBranch",
    "ExecutionFailedError",
    "ExecutionLeaseLostError",
    "Failure",
    "FenceError",
    "FenceToken",
    "FencedSink",
    "Fencepost",
    "FencepostError",
    "FencepostSettings",
    "FirstFailure",
    "Handle",
    "Landed",
    "Limit",
    "LoopBoundError",
    "NeedsPerson",
    "NotLanded",
    "Phase",
    "Quorum",
    "RetryPolicy",
    "Saga",
    "Signal",
    "StaleLeaseFenceError",
    "Status",
    "Step",
    "StepContext",
    "StepDeadlineError",
    "TaskContext",
    "TransactionalContext",
    "Unknown",
    "WaitTimeoutError",
    "__version__",
    "effect",
    "install",
    "start",
    "step",
    "task",
]


# Hidden from type checkers, which would take any misspelt name for a known one.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
