"""`python -m payment_engine ORDER PAID AMOUNT`: book a refund, report it on standard output.

Reads an access token from standard input, and its key from $AUTH_SIGNING_KEY. Writes telemetry
frames. Amounts are cents.
"""

import os
import sys
from dataclasses import asdict

from payment_engine.framing import encode
from payment_engine.refunds import Book, book


def main() -> int:
    """Book one refund."""
    order, paid, amount = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    key = os.environ["AUTH_SIGNING_KEY"].encode()
    token = sys.stdin.read().strip()
    refund = book(Book({order: paid}), key, token, order, amount)
    frames = [
        encode({"event": "refund.requested", "order": order, "amount": amount}),
        encode({"event": "refund.booked", **asdict(refund)}),
    ]
    sys.stdout.buffer.write(b"".join(frames))
    return 0


if __name__ == "__main__":
    sys.exit(main())
