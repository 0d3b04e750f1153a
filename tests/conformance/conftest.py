"""The suites are modules of their own; their assertions explain themselves like a test's."""

import pytest

for suite in (
    "lease_store",
    "execution_store",
    "ownership",
    "commits",
    "transactions",
    "families",
    "sweeps",
    "protocol",
    "support",
):
    pytest.register_assert_rewrite(f"tests.conformance.{suite}")
