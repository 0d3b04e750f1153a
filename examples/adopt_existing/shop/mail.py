"""A stand-in for the mail server: what it has taken it delivers, and it forgets at once."""

from __future__ import annotations

from examples.adopt_existing.shop import crash_if_told, folder

OUTBOX = "outbox"


def send(address: str, text: str) -> None:
    """Hand a mail over."""
    with (folder() / OUTBOX).open("a") as outbox:
        outbox.write(f"{address}: {text}\n")
    crash_if_told("mailed")


def sent() -> list[str]:
    """Every mail that was handed over."""
    outbox = folder() / OUTBOX
    return outbox.read_text().splitlines() if outbox.exists() else []
