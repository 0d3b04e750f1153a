"""A saga as a person, a program or Mermaid reads it. Pure."""

from fencepost.saga.describe.data import describe
from fencepost.saga.describe.mermaid import as_mermaid
from fencepost.saga.describe.text import as_text

__all__ = ["as_mermaid", "as_text", "describe"]
