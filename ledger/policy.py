"""The deterministic policy that a recovery plan must pass before it runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ledger import flags as build_flags
from ledger.vocabulary import RecoveryPlan, ReleaseRequest


@dataclass(frozen=True, slots=True)
class Violation:
    """One way in which a plan breaks the policy.

    Attributes:
        code: Stable dotted code.
        field: The field of the plan at fault.
        message: What is wrong and what would be right, for a person or a model.
    """

    code: str
    field: str
    message: str


def check_plan(
    plan: RecoveryPlan, request: ReleaseRequest, tried: Iterable[Sequence[str]] = ()
) -> list[Violation]:
    """Everything that forbids a plan; empty if it may run.

    Args:
        plan: The proposal.
        request: Of the attempt that failed.
        tried: Flags of earlier attempts of the same line, so that no failed set comes again.
    """
    return [
        *_attempt_limit(request),
        *_form("added_flags", plan.added_flags),
        *_not_allowed("added_flags", plan.added_flags, request),
        *_not_allowed("removed_flags", plan.removed_flags, request),
        *_absent(plan, request),
        *_outcome(plan, request, tried),
    ]


def next_flags(plan: RecoveryPlan, request: ReleaseRequest) -> tuple[str, ...]:
    """The flags that a plan leads to: the kept ones in their order, then the added ones."""
    kept = [flag for flag in request.flags if flag not in plan.removed_flags]
    return tuple(dict.fromkeys([*kept, *plan.added_flags]))


def apply_plan(plan: RecoveryPlan, request: ReleaseRequest) -> ReleaseRequest:
    """The next attempt's request.

    Raises:
        ValueError: The plan breaks the policy; see `check_plan`.
    """
    violations = check_plan(plan, request)
    if violations:
        raise ValueError("; ".join(violation.message for violation in violations))
    return ReleaseRequest.model_validate(
        request.model_dump() | {"flags": next_flags(plan, request), "attempt": request.attempt + 1}
    )


def _attempt_limit(request: ReleaseRequest) -> list[Violation]:
    limit = request.policy.max_attempts
    if request.attempt < limit:
        return []
    message = f"attempt {request.attempt} was the last of {limit} that the policy allows"
    return [Violation("plan.attempt-limit", "attempt", message)]


def _form(field: str, flags: Sequence[str]) -> list[Violation]:
    problems = (build_flags.problem_with(flag) for flag in flags)
    return [Violation("plan.bad-flag", field, problem) for problem in problems if problem]


def _not_allowed(field: str, flags: Sequence[str], request: ReleaseRequest) -> list[Violation]:
    allowed = request.policy.allowed_flags
    listed = ", ".join(allowed) or "none"
    return [
        Violation("plan.flag-not-allowed", field, f"{flag!r} is not among the allowed: {listed}")
        for flag in flags
        if not build_flags.allows(allowed, flag)
    ]


def _absent(plan: RecoveryPlan, request: ReleaseRequest) -> list[Violation]:
    present = ", ".join(request.flags) or "none"
    return [
        Violation(
            "plan.removes-absent", "removed_flags", f"{flag!r} is not set; the flags are: {present}"
        )
        for flag in plan.removed_flags
        if flag not in request.flags
    ]


def _outcome(
    plan: RecoveryPlan, request: ReleaseRequest, tried: Iterable[Sequence[str]]
) -> list[Violation]:
    after = next_flags(plan, request)
    found = [
        Violation(
            "plan.flag-conflict",
            "added_flags",
            f"{name} would be set more than once: remove the old value in removed_flags",
        )
        for name in build_flags.conflicts(after)
    ]
    if set(after) == set(request.flags):
        found.append(
            Violation("plan.no-op", "added_flags", "the plan changes nothing: it would fail again")
        )
    elif any(set(after) == set(earlier) for earlier in tried):
        found.append(
            Violation(
                "plan.already-tried",
                "added_flags",
                f"these flags failed in an earlier attempt: {' '.join(after)}",
            )
        )
    return found
