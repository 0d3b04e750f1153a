"""Do the three services work together? Runs them as processes, from the directory given.

    python integration_check.py MODULES

MODULES holds one directory for each module, unpacked from its archive. Exit code 0: a refund was
requested with a token of auth-service, booked by payment-engine and read by telemetry-collector.
"""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

ORDER, PAID, REFUNDED = "order-42", 12_900, 4_900


class CheckFailedError(Exception):
    """A service didn't do its part."""


def run(modules: Path, arguments: list[str], *, stdin: bytes = b"") -> bytes:
    """Run `python -m ARGUMENTS` with the modules on its path; its standard output."""
    paths = [str(module / "src") for module in sorted(modules.iterdir())]
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        input=stdin,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        timeout=20,
        check=False,
    )
    if done.returncode != 0:
        sys.stderr.write(done.stderr.decode(errors="replace"))
        raise CheckFailedError(f"{arguments[0]} ended with exit code {done.returncode}")
    return done.stdout


def check(modules: Path) -> None:
    """The whole way of one refund."""
    os.environ["AUTH_SIGNING_KEY"] = secrets.token_hex(32)
    token = run(modules, ["auth_service", "support@example.com", "refund"])
    print("auth-service issued a token")
    refund = ["payment_engine", ORDER, str(PAID), str(REFUNDED)]
    frames = run(modules, refund, stdin=token)
    print(f"payment-engine booked the refund and sent {len(frames)} bytes of telemetry")
    lines = run(modules, ["telemetry_collector"], stdin=frames).splitlines()
    records = [json.loads(line) for line in lines]
    print(f"telemetry-collector read {len(records)} records")
    booked = [record for record in records if record["event"] == "refund.booked"]
    if [(r["order"], r["remaining"]) for r in booked] != [(ORDER, PAID - REFUNDED)]:
        raise CheckFailedError(f"the refund isn't in the telemetry as it was booked: {records}")


def main() -> int:
    """Check the directory named on the command line."""
    try:
        check(Path(sys.argv[1]).resolve())
    except CheckFailedError as problem:
        print(f"integration check failed: {problem}", file=sys.stderr)
        return 1
    print("all services work together")
    return 0


if __name__ == "__main__":
    sys.exit(main())
