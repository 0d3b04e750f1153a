"""`python -m telemetry_collector`: frames on standard input, one JSON line for each record."""

import json
import sys

from telemetry_collector.frames import FrameError, decode


def main() -> int:
    """Decode everything; exit code 65 (data error) if a frame can't be read."""
    try:
        for record in decode(sys.stdin.buffer.read()):
            print(json.dumps(record, sort_keys=True))
    except FrameError as problem:
        print(f"telemetry-collector: {problem}", file=sys.stderr)
        return 65
    return 0


if __name__ == "__main__":
    sys.exit(main())
