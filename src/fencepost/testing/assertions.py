"""What must hold at the end of a test, with everything that doesn't in the message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fencepost.testing.fleet import Fleet

if TYPE_CHECKING:
    from fencepost.celery import Fencepost
    from fencepost.testing.explore import Budget, Explored, Scenario
    from fencepost.verify import Invariant, Report


def assert_verified(
    target: Fleet | Fencepost | str,
    redis_url: str | None = None,
    broker_url: str | None = None,
    *,
    messages: bool = False,
    settle: float = 10.0,
    extra: Sequence[Invariant] = (),
    at_least: int = 1,
) -> Report:
    """Let the verifier look at all that is stored.

    Args:
        target: A fleet, your `Fencepost`, or a database's URL.
        redis_url: Where the leases are, if the target is a URL; without it they aren't looked at.
        broker_url: The same for the messages.
        messages: Whether a fleet's or an app's broker is read too. What a killed worker had taken
            lies there until Celery's visibility timeout has passed; give `settle` as long.
        settle: Seconds that late copies of messages and the like may take to go away.
        extra: Your own checks.
        at_least: How many executions there have to be: where there is none, nothing is proved.

    Returns:
        The report.

    Raises:
        AssertionError: A rule is broken, or there are fewer executions; lists every violation
            with the facts that show it.
    """
    from fencepost.verify import verify

    if not isinstance(target, str):
        target, redis_url, broker = _urls_of(target)
        broker_url = broker if messages else None
    report = verify(
        target, redis_url, broker_url, settle=timedelta(seconds=settle), extra=tuple(extra)
    )
    # Raised, not asserted: pytest would lay the message out anew.
    if not report.ok:
        raise AssertionError(_told(report))
    stored = sum(report.executions.values())
    if stored < at_least:
        raise AssertionError(
            f"{report.database} has {stored} executions, and {at_least} were expected: have the"
            " workers and the test the same FENCEPOST_DATABASE_URL?"
        )
    return report


def _urls_of(target: Fleet | Fencepost) -> tuple[str, str | None, str | None]:
    if isinstance(target, Fleet):
        given = target.environment
        broker = given.get("CELERY_BROKER_URL")
        return target.ledger.database_url, given.get("FENCEPOST_REDIS_URL", broker), broker
    url = target.settings.database_url.get_secret_value()
    return url, target.lease_url, str(target.app.conf.broker_url)


def _told(report: Report) -> str:
    count = len(report.violations)
    lines = [f"{count} violation{'s' if count > 1 else ''} in {report.database}:"]
    for line in report.invariants:
        if line.violations:
            lines.append(f"  invariant {line.number}, {line.title}:")
        for violation in line.violations:
            lines.append(f"    {violation}")
            if violation.facts:
                lines.append(f"      {json.dumps(violation.facts, default=str, sort_keys=True)}")
    return "\n".join(lines)


def assert_explored(
    scenario: Scenario,
    *budgets: Budget,
    most: int | None = None,
    seconds: float | None = None,
) -> list[Explored]:
    """Run every schedule of a scenario within each budget, and let none of them break a rule.

    Args:
        scenario: Yours: sagas, what is started, and what must come of it.
        *budgets: How much may happen in one run; by default the scenario's own.
        most: Schedules after which each budget is left, incomplete.
        seconds: The same for time.

    Returns:
        What was run, by budget.

    Raises:
        AssertionError: A schedule breaks a rule; tells what happens in the shortest one found,
            and how it is played again. Or none was run.
    """
    from fencepost.testing.explore import explore, told

    found: list[Any] = []
    for budget in budgets or tuple(scenario.budgets):
        explored = explore(scenario, budget, most=most, seconds=seconds)
        if explored.failure is not None:
            record = list(explored.failure.record)
            raise AssertionError(
                f"{scenario}: schedule {explored.schedules} within the budget {budget} breaks"
                f" a rule\n{told(scenario, explored.failure)}\n"
                f"play it again: replay(scenario, {record}, Budget.parse({str(budget)!r}))"
            )
        if not explored.schedules:
            raise AssertionError(f"{scenario}: no schedule was run within the budget {budget}")
        found.append(explored)
    return found
