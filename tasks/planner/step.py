"""The step that turns a failed gate into the next attempt."""

from __future__ import annotations

import os
from datetime import timedelta

from fencepost import Failure, NeedsPerson, RetryPolicy, StepContext, step
from fencepost.errors import ServiceUnavailableError
from ledger import attempts, database
from ledger.policy import Violation, apply_plan, check_plan
from ledger.vocabulary import PlannedAttempt, RecoveryPlan, ReleaseRequest
from tasks.planner import prompt
from tasks.planner.client import connect
from tasks.planner.conversation import Conversation, Limits
from tasks.planner.errors import (
    PlannerConfigurationError,
    PlannerRefusedError,
    PlannerUnavailableError,
    RecoveryExhaustedError,
)
from tasks.planner.inspection import Inspector
from tasks.planner.journal import Journal
from tasks.planner.model import Model
from tasks.planner.settings import PlannerSettings

RETRIES = RetryPolicy(
    attempts=4,
    first_delay=timedelta(seconds=2),
    max_delay=timedelta(minutes=1),
    retry_on=(PlannerUnavailableError, ServiceUnavailableError),
)
"""On top of the client's own retries, which are over within seconds."""


@step(retry=RETRIES, timeout=timedelta(minutes=15))
def plan_recovery(ctx: StepContext, failure: Failure[ReleaseRequest]) -> PlannedAttempt:
    """Have a model plan the next attempt from the diagnostics of the failed one.

    What the model is asked and answers is in the ledger before it is used: a run that is
    repeated on another worker asks only what was not answered yet.

    Raises:
        RecoveryExhaustedError: The policy allows no further attempt.
        AttemptNotFoundError: The failed attempt isn't in the ledger, or isn't undone.
        PlannerUnavailableError: The model can't be reached now; the step is retried.
        NeedsPerson: No acceptable plan, or no usable model.
    """
    request = failure.input
    if request.attempt >= request.policy.max_attempts:
        raise RecoveryExhaustedError(
            request.name, attempts=request.attempt, limit=request.policy.max_attempts
        )
    journal = Journal(ctx, database.session)
    plan = journal.accepted() or _ask_for_plan(ctx, failure, journal)
    return PlannedAttempt(request=apply_plan(plan, request), plan=plan)


def next_attempt(planned: PlannedAttempt) -> ReleaseRequest:
    """The input of the execution that continues the line: the request with the plan applied."""
    return planned.request


def _ask_for_plan(
    ctx: StepContext, failure: Failure[ReleaseRequest], journal: Journal
) -> RecoveryPlan:
    request = failure.input
    with database.session() as session:
        tried = attempts.compensated_candidate(session, ctx.execution_id).tried_flags

    def judge(plan: RecoveryPlan) -> list[Violation]:
        return check_plan(plan, request, tried)

    try:
        settings = PlannerSettings.from_environ(os.environ)
        with connect(settings) as client:
            conversation = Conversation(
                _task(ctx, failure, tried),
                model=Model(client, settings, before_request=ctx.check),
                model_name=f"{settings.model} at {settings.base_url}",
                inspector=Inspector(ctx.lineage_id, request.attempt, database.session),
                judge=judge,
                journal=journal,
                limits=Limits(tokens=settings.token_budget),
            )
            return conversation.run()
    except PlannerUnavailableError as problem:
        if ctx.attempt < RETRIES.attempts:
            raise
        raise NeedsPerson(f"the planner's model can't be reached: {problem}") from problem
    except (PlannerConfigurationError, PlannerRefusedError) as problem:
        # The release is undone and waits: a wrong setting must not end its line of attempts.
        raise NeedsPerson(f"the planner can't ask its model: {problem}") from problem


def _task(
    ctx: StepContext, failure: Failure[ReleaseRequest], tried: tuple[tuple[str, ...], ...]
) -> prompt.Task:
    request = failure.input
    return prompt.Task(
        lineage_id=ctx.lineage_id,
        attempt=request.attempt,
        max_attempts=request.policy.max_attempts,
        failed_step=failure.step,
        error_code=failure.code,
        current_flags=request.flags,
        allowed_flags=request.policy.allowed_flags,
        tried_flags=tried,
    )
