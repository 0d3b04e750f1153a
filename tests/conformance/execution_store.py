"""What every execution store must do: subclass it and give the fixtures."""

from __future__ import annotations

from tests.conformance.commits import Commits
from tests.conformance.deciding import Deciding
from tests.conformance.families import Families
from tests.conformance.joins import Joins
from tests.conformance.ownership import Ownership
from tests.conformance.placement import Placement
from tests.conformance.signals import Signals
from tests.conformance.sweeps import Sweeps
from tests.conformance.transactions import Transactions
from tests.conformance.turning import Turning
from tests.conformance.waits import Waits


class ExecutionStoreConformance(
    Ownership,
    Commits,
    Transactions,
    Families,
    Joins,
    Turning,
    Waits,
    Signals,
    Deciding,
    Placement,
    Sweeps,
):
    """The whole contract.

    Fixtures to give: `store`; `ledger`, the caller's own writes in the same database (see
    `transactions.Ledger`); `passed`, which puts a time on an execution's row into the past (see
    `waits.Passed`).
    """
