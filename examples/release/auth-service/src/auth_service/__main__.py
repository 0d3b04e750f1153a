"""`python -m auth_service SUBJECT SCOPE`: print a token signed with $AUTH_SIGNING_KEY."""

import os
import sys

from auth_service.tokens import issue


def main() -> int:
    """Issue one token."""
    subject, scope = sys.argv[1:]
    print(issue(os.environ["AUTH_SIGNING_KEY"].encode(), subject, scope))
    return 0


if __name__ == "__main__":
    sys.exit(main())
