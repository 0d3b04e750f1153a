"""The verifier: checks the nine invariants against the stored facts, independently of the engine.

`verify` runs the engine's checks (1 to 8, as far as executions, chains, the audit trail, Redis
and the broker show them). An application adds what only it knows, its ledger and its files:

    def no_lock_held(facts: Facts, found: Findings) -> None:
        for lock in read_locks(facts.roots):
            found.examined("locks")
            if lock.holder is not None:
                found.violated("orphan.lock", lock.holder, "it has ended and holds the lock")

    report = verify(database_url, redis_url, broker_url, run=run,
                    extra=[Invariant(7, no_lock_held)])
"""

from fencepost.verify.checks import ENGINE_INVARIANTS
from fencepost.verify.facts import (
    CheckpointFact,
    EffectFact,
    EventFact,
    ExecutionFact,
    Facts,
    LeaseFact,
    MessageFact,
    SignalFact,
)
from fencepost.verify.invariant import TITLES, Check, Findings, Invariant
from fencepost.verify.report import InvariantReport, Report, Verdict, Violation
from fencepost.verify.timeline import Tenure, Timeline
from fencepost.verify.verifier import verify

__all__ = [
    "ENGINE_INVARIANTS",
    "TITLES",
    "Check",
    "CheckpointFact",
    "EffectFact",
    "EventFact",
    "ExecutionFact",
    "Facts",
    "Findings",
    "Invariant",
    "InvariantReport",
    "LeaseFact",
    "MessageFact",
    "Report",
    "SignalFact",
    "Tenure",
    "Timeline",
    "Verdict",
    "Violation",
    "verify",
]
