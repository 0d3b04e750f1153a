"""The command line: `fencepost migrate | check | status | events | verify | retry`."""

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script and of `python -m fencepost`."""
    from fencepost.cli.app import app

    app(prog_name="fencepost")
