from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledger.policy import apply_plan, check_plan, next_flags
from ledger.vocabulary import GateSpec, ModuleSpec, RecoveryPlan, ReleasePolicy, ReleaseRequest


def request(**changes: Any) -> ReleaseRequest:
    values: dict[str, Any] = {
        "name": "shop",
        "version": "1",
        "modules": (ModuleSpec(name="a", directory=Path("/a")),),
        "flags": ("--opt-level=3", "--deterministic"),
        "policy": ReleasePolicy(allowed_flags=("--abi-compat=*", "--opt-level=2", "--opt-level=3")),
        "gate": GateSpec(check=Path("/check.py")),
    }
    return ReleaseRequest.model_validate(values | changes)


def plan(*added: str, removed: tuple[str, ...] = ()) -> RecoveryPlan:
    return RecoveryPlan(root_cause="it broke", added_flags=added, removed_flags=removed)


def codes(proposal: RecoveryPlan, of: ReleaseRequest, tried: Any = ()) -> list[str]:
    return [violation.code for violation in check_plan(proposal, of, tried)]


def test_an_allowed_flag_may_be_added() -> None:
    assert codes(plan("--abi-compat=v2"), request()) == []


def test_an_allowed_flag_may_replace_its_old_value() -> None:
    proposal = plan("--opt-level=2", removed=("--opt-level=3",))
    assert codes(proposal, request()) == []
    assert next_flags(proposal, request()) == ("--deterministic", "--opt-level=2")


@pytest.mark.parametrize(
    ("proposal", "expected"),
    [
        (plan("--fast"), ["plan.flag-not-allowed"]),
        (plan("--abi-compat"), ["plan.bad-flag", "plan.flag-not-allowed"]),
        (plan("--abi-compat=newest"), ["plan.bad-flag"]),
        (plan("--abi-compat=v2; rm -rf /"), ["plan.bad-flag"]),
        (plan(removed=("--deterministic",)), ["plan.flag-not-allowed"]),
        (plan("--abi-compat=v2", removed=("--abi-compat=v1",)), ["plan.removes-absent"]),
        (plan("--opt-level=2"), ["plan.flag-conflict"]),
        (plan("--abi-compat=v2", "--abi-compat=v3"), ["plan.flag-conflict"]),
        (plan(), ["plan.no-op"]),
        (plan("--opt-level=3"), ["plan.no-op"]),
        (plan("--opt-level=3", removed=("--opt-level=3",)), ["plan.no-op"]),
    ],
)
def test_a_bad_plan_is_refused(proposal: RecoveryPlan, expected: list[str]) -> None:
    assert codes(proposal, request()) == expected
    with pytest.raises(ValueError, match=r"."):
        apply_plan(proposal, request())


def test_the_last_attempt_gets_no_plan() -> None:
    assert codes(plan("--abi-compat=v2"), request(attempt=3)) == ["plan.attempt-limit"]


def test_flags_that_failed_before_are_not_tried_again() -> None:
    tried = [("--abi-compat=v2", "--deterministic", "--opt-level=3")]
    assert codes(plan("--abi-compat=v2"), request(), tried) == ["plan.already-tried"]


def test_a_violation_says_what_would_be_right() -> None:
    (violation,) = check_plan(plan("--fast"), request())
    assert violation.field == "added_flags"
    assert "--abi-compat=*" in violation.message


def test_the_next_request_differs_in_flags_and_attempt_only() -> None:
    before = request()
    after = apply_plan(plan("--abi-compat=v2"), before)
    assert after.flags == ("--opt-level=3", "--deterministic", "--abi-compat=v2")
    assert after.attempt == 2
    same = {"flags", "attempt"}
    assert after.model_dump(exclude=same) == before.model_dump(exclude=same)
