"""The names that users may rely on. Changing this list is a decision, and belongs in CHANGELOG."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fencepost

NAMES = [
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
    "STAYS",
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

DEFINE_A_SAGA = """
import sys
from fencepost import RetryPolicy, Saga, StepContext, faults, step

@step(retry=RetryPolicy(attempts=2))
def double(ctx: StepContext, number: int) -> int:
    faults.reach("double")
    return 2 * number

Saga("doubles", input=int).then(double).version
loaded = {name.partition(".")[0] for name in sys.modules}
print(*sorted(loaded & {"alembic", "celery", "kombu", "psycopg", "redis", "sqlalchemy"}))
"""


def test_the_public_names() -> None:
    assert sorted(fencepost.__all__) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_there(name: str) -> None:
    assert getattr(fencepost, name) is not None
    assert name in dir(fencepost)


def test_a_type_checker_sees_the_same_names() -> None:
    """They are imported twice: lazily at run time, and for type checkers."""
    tree = ast.parse(Path(fencepost.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.asname or alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == set(NAMES) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'stepp'"):
        _ = fencepost.stepp  # type: ignore[attr-defined]


def test_defining_a_saga_loads_no_io_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DEFINE_A_SAGA], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
