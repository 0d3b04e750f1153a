"""What can go wrong while a recovery plan is made."""

from __future__ import annotations

from fencepost import FencepostError


class PlannerConfigurationError(FencepostError):
    """A setting of the planner is missing or wrong. Names the environment variable."""

    code = "planner.configuration"

    def __init__(self, variable: str, problem: str) -> None:
        super().__init__(f"{variable} {problem}", variable=variable)


class PlannerUnavailableError(FencepostError):
    """The model's server could not be reached, or kept failing; trying later may help."""

    code = "planner.unavailable"


class PlannerRefusedError(FencepostError):
    """The model's server refused the request for good (a wrong key, an unknown model)."""

    code = "planner.refused"


class RecoveryExhaustedError(FencepostError):
    """The release has used up the attempts that its policy allows."""

    code = "release.recovery-exhausted"

    def __init__(self, release: str, *, attempts: int, limit: int) -> None:
        super().__init__(
            f"release {release!r} failed in attempt {attempts} and its policy allows {limit}:"
            " no further attempt is planned",
            release=release,
            attempts=attempts,
            limit=limit,
        )
