"""The command line; `fencepost --help` lists the commands."""

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script and of `python -m fencepost`."""
    from fencepost.cli.app import app

    app(prog_name="fencepost")
