"""What every execution store must do: subclass it and give the fixtures."""

from __future__ import annotations

from tests.conformance.commits import Commits
from tests.conformance.families import Families
from tests.conformance.ownership import Ownership
from tests.conformance.sweeps import Sweeps
from tests.conformance.transactions import Transactions


class ExecutionStoreConformance(Ownership, Commits, Transactions, Families, Sweeps):
    """The whole contract.

    Fixtures to give: `store`; `ledger`, the caller's own writes in the same database (see
    `transactions.Ledger`).
    """
