"""`python -m tests.chaos`: a seeded nemesis on real servers, and a judgment."""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chaos import site
from tests.chaos.run import Result, run

OK, WRONG, BROKEN = 0, 1, 2

EPILOG = """\
exit codes: 0 all is as it must be; 1 something is wrong, the folder is kept; 2 bad arguments or
the run itself could not be carried out.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for; returns the exit code."""
    given = _parser().parse_args(arguments)
    seed = given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    options = site.Options(
        minutes=given.minutes,
        seed=seed,
        database=given.database,
        unfenced=given.unfenced,
        workers=given.workers,
        rate=given.rate,
    )
    folder = Path(given.keep).resolve() if given.keep else site.temporary_folder()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        print(f"{folder} isn't empty: --keep wants a folder of this run's own", file=sys.stderr)
        return BROKEN
    out = sys.stderr if given.json else sys.stdout

    def say(line: str) -> None:
        print(line, file=out, flush=True)

    # Whoever ends us wants workers and servers to be ended with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(BROKEN))
    say(f"seed {seed}; to repeat: {options.command()}")
    try:
        result = run(options, folder, say)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return BROKEN
    keep = bool(given.keep) or not result.ok
    if given.json:
        print(json.dumps({**result.data(), "folder": str(folder) if keep else None}, indent=2))
    else:
        for line in _told(result):
            say(line)
        if keep:
            say(f"kept: {folder} (history.jsonl, logs/)")
    if not keep:
        site.remove(folder)
    return OK if result.ok else WRONG


def _told(result: Result) -> list[str]:
    lines = ["", *_figures(result.figures), ""]
    lines += [f"wrong: {finding}" for finding in result.findings[:50]]
    if len(result.findings) > 50:
        lines.append(f"... and {len(result.findings) - 50} more")
    verdict = "all is as it must be" if result.ok else f"{len(result.findings)} things are wrong"
    lines.append(f"{verdict}; {result.seconds:.0f} s; to repeat: {result.command}")
    return lines


def _figures(figures: dict[str, Any]) -> list[str]:
    lines = []
    for name, value in figures.items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {key}: {_flat(each)}" for key, each in value.items()]
        else:
            lines.append(f"{name}: {value}")
    return lines


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {key}" for key, count in value.items())
    return str(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Real workers and real servers, a nemesis with a seed, and a judgment.",
        epilog=EPILOG,
    )
    parser.add_argument("--minutes", type=_positive, default=3.0, help="how long it acts (3)")
    parser.add_argument("--seed", type=int, help="what it draws from; by default a new one")
    parser.add_argument("--database", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument(
        "--unfenced", action="store_true", help="without the guards: this has to go wrong"
    )
    parser.add_argument("--workers", type=int, choices=range(2, 9), default=3, help="how many (3)")
    parser.add_argument("--rate", type=_positive, default=1.0, help="starts each second (1)")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.add_argument("--keep", metavar="DIR", help="keep history, logs and databases there")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
