"""The release factory's own records: attempts, artifacts, diagnostics, locks, promotions, plans."""

from __future__ import annotations

__all__ = ["check", "migrate"]


def migrate(url: str) -> None:
    """Bring the ledger's tables to this version's schema; does nothing if they are there.

    Args:
        url: `postgresql://...` or `sqlite:///...`.

    Raises:
        fencepost.errors.ServiceUnavailableError: The database doesn't answer.
    """
    from ledger import migrations

    migrations.migrate(url)


def check(url: str) -> None:
    """Compare the database's schema version with this code's.

    Args:
        url: `postgresql://...` or `sqlite:///...`.

    Raises:
        fencepost.errors.SchemaError: They differ; says what to do.
        fencepost.errors.ServiceUnavailableError: The database doesn't answer.
    """
    from ledger import migrations

    migrations.check(url)
