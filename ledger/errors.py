"""What the release factory raises. All carry a stable code and fields; all are picklable."""

from __future__ import annotations

from uuid import UUID

from fencepost.errors import FencepostError
from ledger.vocabulary import ModuleFailed


class ReleaseGateFailedError(FencepostError):
    """The integration check of a candidate failed. Compensation follows, then a plan.

    Fields: `diagnostics_id`, `attempt_id`, `release`, `version`, `attempt`, `exit_code`, `reason`.
    """

    code = "release.gate-failed"


class ModuleFailedError(FencepostError):
    """A module's content can't become an artifact. Trying again doesn't help.

    Attributes:
        failure: What is wrong, and the fix.
    """

    code = "release.module-failed"

    def __init__(self, failure: ModuleFailed) -> None:
        place = f" ({failure.path}" + (f":{failure.line})" if failure.line else ")")
        super().__init__(
            f"module {failure.module}: {failure.problem}{place if failure.path else ''};"
            f" {failure.fix}",
            **failure.model_dump(mode="json"),
        )
        self.failure = failure


class ArtifactDamagedError(FencepostError):
    """A staged or published archive isn't what the ledger says. Fields: `path`, `module`."""

    code = "artifact.damaged"


class UnsafeArchiveError(FencepostError):
    """An archive holds something that must not be unpacked. Fields: `member`."""

    code = "artifact.unsafe-archive"


class CandidateLockedError(FencepostError):
    """Another candidate of the same release is under way. Fields: `release`, `holder`."""

    code = "release.candidate-locked"


class AlreadyPromotedError(FencepostError):
    """This version of the release is out already."""

    code = "release.already-promoted"

    def __init__(self, release: str, version: str, attempt_id: UUID) -> None:
        super().__init__(
            f"{release} {version} was promoted already, by execution {attempt_id};"
            " give the next release another version",
            release=release,
            version=version,
            attempt_id=str(attempt_id),
        )


class AttemptNotFoundError(FencepostError):
    """The ledger has no attempt with that execution id. Fields: `attempt_id`."""

    code = "release.attempt-not-found"
