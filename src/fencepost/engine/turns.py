"""The turns of steps whose number or rate is limited across the fleet."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from fencepost import serde
from fencepost.engine.bodies import BodyFailedError
from fencepost.errors import FencepostError, Suspended
from fencepost.limits import Limit
from fencepost.saga import Step

if TYPE_CHECKING:
    from fencepost.engine.run import Run

logger = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=10)
"""When one that waits for its turn looks again, should nobody have called it. Far below the time
after which the store takes one for absent."""

BRIEFLY = timedelta(seconds=1)
"""A wait, or the end of a longer one, that is slept out: handed back until its turn, several
would be found by one look of the reaper, and begin together."""


def wait(run: Run, step: Step[Any, Any], name: str, stored: Any) -> None:
    """Take a permit for a limited step, or hand the execution back until its turn comes.

    Args:
        run: Whose.
        step: What it is about to run.
        name: Under which name.
        stored: Its input.

    Raises:
        BodyFailedError: The limit's key can't be told.
        Suspended: Others come first.
    """
    limit = step.limit
    if limit is None:
        return
    try:
        value = serde.load(stored, step.input_type, what=f"input of step {name!r}")
        resource = limit.resource(value)
    except Exception as error:
        raise BodyFailedError(error) from error
    run.permit = (resource, limit)
    left = _ask(run, resource, limit)
    while left is not None and left <= BRIEFLY:
        if not left:
            return
        run.engine.options.sleep(left.total_seconds())
        # Told that it has come: else it would be taken for absent, and its place be given away.
        left = _ask(run, resource, limit)
    run.hand_back(PATIENCE if left is None else left - BRIEFLY)
    if left is None and _ask(run, resource, limit) is not None:
        # Its turn came between the question and the handing back, and the call went unheard.
        run.engine.dispatch(run.own.execution)
    raise Suspended(f"step {name!r} waits for its turn")


def _ask(run: Run, resource: str, limit: Limit) -> timedelta | None:
    return run.engine.limits.take(
        run.own.execution.execution_id,
        resource,
        limit,
        head=run.own.chain[-1].checkpoint_id,
        attempt=run.own.attempt - 1,
    )


def pass_on(run: Run) -> None:
    """Once a limited attempt has ended: have those begin whose turn it is then."""
    if run.permit is None:
        return
    resource, limit = run.permit
    run.permit = None
    try:
        for execution in run.engine.limits.serve(resource, limit):
            run.engine.dispatch(execution)
    except FencepostError as problem:
        # They look themselves, a little later.
        logger.warning("those who wait for %s could not be served: %s", resource, problem)
