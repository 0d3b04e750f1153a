"""What comes out of a step's body."""

from __future__ import annotations


class BodyFailedError(Exception):
    """Carries a body's error out of its transaction."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
