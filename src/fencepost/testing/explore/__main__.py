"""`python -m fencepost.testing.explore MODULE[:NAME]`: explores the scenarios of a module."""

from fencepost.testing.explore.program import main

if __name__ == "__main__":
    raise SystemExit(main())
