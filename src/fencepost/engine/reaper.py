"""Finds what nobody is working on, and asks for a worker again.

Dispatching twice is harmless, and each claim hides its finding from the other reapers for a
while that doubles, so a fleet of reapers makes no storm.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from fencepost.decide import DEADLINE_PASSED, told
from fencepost.engine.core import Engine
from fencepost.errors import ExecutionStateError
from fencepost.records import EventName, Execution

logger = logging.getLogger(__name__)

BATCH = 100
"""Executions that one reaper claims at a time."""

CLAIM = timedelta(seconds=2)
"""How long a claimed execution is hidden from other reapers at first; doubles with each claim."""

CLAIM_DUE = timedelta(seconds=10)
"""The same for what may simply be waiting in a long queue."""

HIDDEN = timedelta(minutes=1)
"""How long an expired lease is hidden once SQL knows of it."""


class Reaper:
    """One pass over what has expired, what is due, what waits and what is late.

    Args:
        engine: The engine whose stores are looked at.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def expired(self) -> int:
        """Dispatch executions whose lease has run out; returns how many."""
        engine = self._engine
        expired = engine.leases.claim_expired(BATCH, HIDDEN)
        if not expired:
            return 0
        # From here on SQL decides when it is dispatched again, should this message be lost.
        owed = engine.executions.claim(expired, CLAIM)
        for execution in owed:
            logger.warning("the lease of execution %s has run out", execution.execution_id)
        self._dispatch(owed)
        engine.leases.discard(set(expired) - {execution.execution_id for execution in owed})
        return len(owed)

    def due(self) -> int:
        """Dispatch executions whose time has come; returns how many."""
        engine = self._engine
        known = self._known()
        claimed = engine.executions.claim_due(BATCH, CLAIM_DUE, known=known)
        return self._dispatch_unowned(claimed)

    def waiting(self) -> int:
        """Fill free places, and wake whose children, time or signal has come; returns how many."""
        engine = self._engine
        dispatched = 0
        for parent in engine.executions.claim_waiting(BATCH, CLAIM, known=self._known()):
            admitted = engine.executions.admit(parent.execution_id, engine.unattended)
            if admitted:
                # The claim was for the places. When the children have ended, the parent must be
                # found without a wait that has grown with each place filled.
                engine.executions.defer(parent.execution_id, parent.epoch, timedelta(0))
            dispatched += self._dispatch(admitted or [parent])
        return dispatched

    def overdue(self) -> int:
        """Turn back what has not ended by its deadline; returns how many."""
        engine = self._engine
        late = engine.executions.overdue(BATCH)
        for execution in late:
            cause = told(DEADLINE_PASSED, f"its deadline, {execution.deadline_at}, has passed")
            try:
                turned = engine.executions.turn_back(
                    execution.execution_id,
                    cause,
                    EventName.DEADLINE_PASSED,
                    {"deadline": str(execution.deadline_at)},
                    only_forward=True,
                )
            except ExecutionStateError:
                continue  # it has ended, or passed its pivot, since we looked
            logger.warning("the deadline of execution %s has passed", execution.execution_id)
            engine.dispatch(turned)
        return len(late)

    def _known(self) -> set[tuple[str, str]]:
        return {(saga.name, saga.version) for saga in self._engine.registry}

    def _dispatch_unowned(self, claimed: Sequence[Execution]) -> int:
        engine = self._engine
        if not claimed:
            return 0
        states = engine.leases.state([execution.execution_id for execution in claimed])
        unowned = []
        for execution, state in zip(claimed, states, strict=True):
            if state is not None:
                engine.executions.defer(
                    execution.execution_id, execution.epoch, engine.options.lease_ttl
                )
            else:
                unowned.append(execution)
        return self._dispatch(unowned)

    def _dispatch(self, claimed: Sequence[Execution]) -> int:
        """Publish; returns how many.

        What the broker doesn't take is due again soon, as if it had not been claimed: else a
        broker that is away for minutes would be missed for as long again. After the first
        refusal no more are tried.
        """
        for number, execution in enumerate(claimed):
            if not self._engine.dispatch(execution):
                for left in claimed[number:]:
                    self._engine.executions.defer(left.execution_id, left.epoch, CLAIM)
                return number
        return len(claimed)
