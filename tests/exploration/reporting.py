"""Where tests leave lines that are shown when all tests have run."""

import pytest

LINES = pytest.StashKey[list[str]]()
