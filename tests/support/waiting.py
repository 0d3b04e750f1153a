"""Waiting for stored facts: what the testing kit gives to users."""

from fencepost.testing.waiting import POLL_SECONDS, wait_for

__all__ = ["POLL_SECONDS", "wait_for"]
