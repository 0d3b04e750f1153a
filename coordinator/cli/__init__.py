"""`python -m coordinator`: what it understands, and how it says that it can't."""

from coordinator.cli.program import app, main

__all__ = ["app", "main"]
