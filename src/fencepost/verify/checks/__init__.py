"""The engine's checks, by the invariants that they prove."""

from __future__ import annotations

from fencepost.verify.checks import (
    chain,
    compensation,
    effects,
    epochs,
    forks,
    identity,
    joins,
    orphans,
    refusals,
    stale,
    turning,
    waits,
)
from fencepost.verify.invariant import Invariant

ENGINE_INVARIANTS = (
    Invariant(1, identity.check),
    Invariant(1, forks.check),
    Invariant(2, epochs.check),
    Invariant(3, chain.check),
    Invariant(3, joins.check),
    Invariant(3, waits.check),
    Invariant(4, stale.check),
    Invariant(5, effects.check),
    Invariant(6, compensation.check),
    Invariant(6, turning.check),
    Invariant(7, orphans.check),
    Invariant(8, refusals.check),
)
"""What can be told without knowing the application. 9, and the parts of 6 and 7 that concern
files and ledgers, are the application's to add."""
