"""Every construct of the saga language has a test here in which a worker is killed.

A public method, join or option that isn't in the table is a failure: write its test first.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import get_args

from fencepost import ErrorBranch, Saga, Step
from fencepost.saga.joins import Join

FOLDER = Path(__file__).parent

TESTS = {
    "Saga.then": ["test_sequence", "test_compensation"],
    "Saga.pivot": ["test_pivot"],
    "Saga.continue_as_new": ["test_continue_as_new", "test_continue_as_new_in_its_second"],
    "Saga.map": ["test_all_succeed", "test_children_are_undone_when_only_the_parent_fails"],
    "Saga.child": ["test_child", "test_a_child_is_undone_when_only_the_parent_fails"],
    "Saga.branch": ["test_branch", "test_branch_is_decided_once"],
    "Saga.loop": ["test_loop", "test_loop_bound"],
    "Saga.sleep": ["test_sleep", "test_a_timer_longer_than_the_visibility_timeout"],
    "Saga.until": ["test_until"],
    "Saga.wait_for": ["test_sent_during_the_wait", "test_no_signal_in_time"],
    "Saga.approval": ["test_yes", "test_no", "test_no_answer_in_time"],
    "Saga.on_error": ["test_error_branch_by_inheritance", "test_error_branch_by_default"],
    "Saga(deadline=)": ["test_the_deadline_of_a_saga"],
    "ErrorBranch.compensate": ["test_error_branch_continues_as_new"],
    "ErrorBranch.then": ["test_error_branch_continues_as_new"],
    "ErrorBranch.finish": ["test_error_branch_by_inheritance"],
    "ErrorBranch.continue_as_new": ["test_error_branch_continues_as_new"],
    "AllSucceed": ["test_all_succeed"],
    "FirstFailure": ["test_first_failure"],
    "Quorum": ["test_quorum"],
    "Collect": ["test_collect"],
    "Step(retry=)": ["test_retry_policy"],
    "Step(deadline=)": ["test_step_deadline"],
    "Step(compensate=)": ["test_compensation"],
}

# Where else a worker is killed, or frozen, while it matters.
ELSEWHERE = {
    "Saga(queue=)": "fleet/test_queues.py",
    "Step(timeout=)": "test_steps.py",
    "Step(transactional=)": "test_steps.py",
    "Step(effects=)": "effects",
    "Step(queue=)": "fleet/test_queues.py",
    "Step(limit=)": "fleet/test_limits.py",
}

NO_CONSTRUCTS = {"Saga(input=)", "Step(name=)"}


def builders(kind: type) -> set[str]:
    """Public methods that return another of the same kind; an overloaded one says `Any`."""
    return {
        f"{kind.__name__}.{name}"
        for name, method in vars(kind).items()
        if inspect.isfunction(method) and not name.startswith("_")
        if re.fullmatch(rf"{kind.__name__}\[.*\]|Any", method.__annotations__["return"])
    }


def options(kind: type) -> set[str]:
    """Keyword arguments of a constructor."""
    parameters = inspect.signature(kind).parameters.values()
    return {f"{kind.__name__}({p.name}=)" for p in parameters if p.kind is p.KEYWORD_ONLY}


def test_every_construct_is_in_the_table() -> None:
    joins = {join.__name__ for join in get_args(Join)}
    language = builders(Saga) | builders(ErrorBranch) | options(Saga) | options(Step) | joins
    assert set(TESTS) | set(ELSEWHERE) | NO_CONSTRUCTS == language


def test_every_test_in_the_table_is_there() -> None:
    there = {
        node.name
        for path in FOLDER.rglob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert {name for names in TESTS.values() for name in names} <= there
    assert all((FOLDER.parent / where).exists() for where in ELSEWHERE.values())
