"""The release factory's words: every value that moves between its steps, as typed models.

All models are frozen, and stored as JSON by the engine. Digests are SHA-256 in lower-case hex.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

SAFE_NAME_PATTERN = r"^[A-Za-z0-9](?:[A-Za-z0-9._+-]{0,62}[A-Za-z0-9])?$"
FLAG_PATTERN = r"^--[a-z][a-z0-9-]{0,62}(?:=[A-Za-z0-9._:+,/@-]{1,200})?$"
DIGEST_PATTERN = r"^[0-9a-f]{64}$"

SafeName = Annotated[str, StringConstraints(pattern=SAFE_NAME_PATTERN)]
"""A name that can be one component of a path on every file system."""

Flag = Annotated[str, StringConstraints(pattern=FLAG_PATTERN)]
"""A build flag: `--name` or `--name=value`."""

Digest = Annotated[str, StringConstraints(pattern=DIGEST_PATTERN)]
"""SHA-256, 64 lower-case hexadecimal digits."""


class Word(BaseModel):
    """Base of all models here: immutable, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModuleSpec(Word):
    """One module of a release, as `release.toml` declares it.

    Attributes:
        name: Unique in the release, without regard to case.
        directory: Absolute path of its sources.
        requires: Names of modules of the same release that it needs at run time.
    """

    name: SafeName
    directory: Path
    requires: tuple[SafeName, ...] = ()


class ReleasePolicy(Word):
    """What a recovery plan may do.

    Attributes:
        allowed_flags: Flags that a plan may add or remove: exact (`--abi-compat=v2`), or with
            any value (`--abi-compat=*`).
        max_attempts: How many attempts a release gets, the first one included.
    """

    allowed_flags: tuple[str, ...] = ()
    max_attempts: Annotated[int, Field(ge=1, le=20)] = 3


class GateSpec(Word):
    """The integration check that decides about a release.

    Attributes:
        check: Absolute path. A `.py` file runs with the worker's Python, others by themselves.
        timeout: Seconds until the check and all that it started are killed.
    """

    check: Path
    timeout: Annotated[float, Field(gt=0, le=1800)] = 30.0


class ReleaseRequest(Word):
    """The release saga's input: one attempt at releasing a set of modules.

    Attributes:
        name: The release line; one candidate of it exists at a time.
        version: The label under which all modules are promoted together.
        modules: What the release consists of.
        flags: Build flags of this attempt, for all modules.
        attempt: From 1; grows with each recovery plan.
    """

    name: SafeName
    version: SafeName
    modules: Annotated[tuple[ModuleSpec, ...], Field(min_length=1, max_length=256)]
    flags: tuple[Flag, ...] = ()
    policy: ReleasePolicy = ReleasePolicy()
    gate: GateSpec
    attempt: Annotated[int, Field(ge=1)] = 1


class LockedCandidate(Word):
    """The attempt after its lock was taken: what the modules are made from.

    Attributes:
        execution_id: The release saga's execution; also the id of the attempt.
        lineage_id: The first execution of this release's line of attempts.
    """

    execution_id: UUID
    lineage_id: UUID
    request: ReleaseRequest


class ModuleTask(Word):
    """The module saga's input.

    Attributes:
        attempt_id: The release execution to which the module belongs.
    """

    attempt_id: UUID
    lineage_id: UUID
    release: SafeName
    release_version: SafeName
    attempt: int
    module: ModuleSpec
    flags: tuple[Flag, ...]


class SourceFile(Word):
    """A file of a module, as it was read.

    Attributes:
        path: Relative to the module's directory, with forward slashes.
        size: Bytes.
        executable: Whether the owner may execute it; the one bit of the mode that is kept.
    """

    path: str
    size: int
    sha256: Digest
    executable: bool = False


class PreparedModule(Word):
    """A module's real metadata.

    Attributes:
        version: From the module's `pyproject.toml`, else the release's version.
        files: Sorted by path.
        source_digest: Over paths, modes and digests of all files.
    """

    task: ModuleTask
    version: SafeName
    files: tuple[SourceFile, ...]
    source_digest: Digest


class GeneratedFile(Word):
    """A file that the builder adds to a module (`_build.py`); `path` as in `SourceFile`."""

    path: str
    text: str


class CompiledModule(Word):
    """A module whose sources compile with the attempt's flags.

    Attributes:
        generated: What the builder adds, one `_build.py` for each top-level package.
        compiled_files: How many Python files were compiled, generated ones included.
        build_digest: Over the sources' digest, the generated files and the flags.
    """

    prepared: PreparedModule
    generated: tuple[GeneratedFile, ...]
    compiled_files: int
    build_digest: Digest


class StagedModuleArtifact(Word):
    """A module's archive in the staging store; visible by its ledger row alone.

    Attributes:
        execution_id: The module saga's execution that staged it.
        epoch: The owner's epoch; part of the file's name.
        path: Relative to the staging root, with forward slashes.
        size: Bytes of the archive.
    """

    attempt_id: UUID
    lineage_id: UUID
    attempt: int
    module: SafeName
    version: SafeName
    requires: tuple[SafeName, ...]
    flags: tuple[Flag, ...]
    execution_id: UUID
    step_key: str
    epoch: int
    path: str
    sha256: Digest
    size: int
    build_digest: Digest


class InspectedArtifact(Word):
    """A staged archive that was opened again and found whole.

    Attributes:
        files: Number of files in the archive, without its manifest.
        unpacked_size: Bytes of all those files.
        manifest_sha256: Of the archive's `MANIFEST.json`.
    """

    artifact: StagedModuleArtifact
    files: int
    unpacked_size: int
    manifest_sha256: Digest


class AttestedModule(Word):
    """The module saga's result: an artifact with its provenance on record.

    Attributes:
        statement_sha256: Of the provenance statement in the ledger, in canonical JSON.
    """

    artifact: StagedModuleArtifact
    statement_step_key: str
    statement_sha256: Digest


class ModuleFailed(Word):
    """Why a module can't become an artifact: its content, not the machinery.

    Attributes:
        code: Stable dotted code, such as `module.syntax-error`.
        path: The file at fault, relative to the module's directory, if it is one file.
        line: From 1, if known.
        fix: What to do about it.
    """

    module: str
    code: str
    problem: str
    path: str | None = None
    line: int | None = None
    fix: str


class CheckReport(Word):
    """What the integration check did.

    Attributes:
        exit_code: None if it was killed at its timeout or couldn't be started.
        duration_ms: Wall time in milliseconds.
        stdout: Its end, redacted, at most `ledger.redact.TAIL_CHARACTERS` characters.
        stdout_bytes: How much it wrote in all; more than `stdout` holds if that was cut.
    """

    command: tuple[str, ...]
    exit_code: int | None
    timed_out: bool
    duration_ms: int
    stdout: str
    stderr: str
    stdout_bytes: int
    stderr_bytes: int

    @property
    def passed(self) -> bool:
        """Whether the check ended by itself with exit code 0."""
        return self.exit_code == 0 and not self.timed_out


class CheckedCandidate(Word):
    """An attempt whose artifacts were checked together.

    Attributes:
        diagnostics_id: Of the check's row in the ledger, derived from the step key.
    """

    attempt_id: UUID
    lineage_id: UUID
    release: SafeName
    version: SafeName
    attempt: int
    modules: tuple[AttestedModule, ...]
    report: CheckReport
    diagnostics_id: UUID


class PromotedModule(Word):
    """One published archive; `path` is relative to the publish directory."""

    module: SafeName
    version: SafeName
    path: str
    sha256: Digest
    size: int


class PromotedRelease(Word):
    """The release saga's result.

    Attributes:
        directory: Of all the modules, relative to the publish directory; its name is their digest.
        sha256: Over module names, versions and digests: the release's identity.
    """

    release: SafeName
    version: SafeName
    attempt_id: UUID
    lineage_id: UUID
    attempt: int
    modules: tuple[PromotedModule, ...]
    directory: str
    sha256: Digest


class CompensatedReleaseCandidate(Word):
    """What is on record of an attempt that was undone; the planner starts from it.

    Attributes:
        tried_flags: The flags of every attempt of the line so far, in order.
    """

    attempt_id: UUID
    lineage_id: UUID
    request: ReleaseRequest
    artifacts: tuple[StagedModuleArtifact, ...]
    tried_flags: tuple[tuple[Flag, ...], ...]


class RecoveryPlan(Word):
    """How the next attempt shall differ: data, until the policy has passed it.

    Attributes:
        root_cause: One sentence on why the gate failed.
        explanation: Why the change of flags helps.
        confidence: 0 to 1, the planner's own estimate.
    """

    root_cause: Annotated[str, StringConstraints(min_length=1, max_length=2000)]
    explanation: Annotated[str, StringConstraints(max_length=8000)] = ""
    added_flags: Annotated[tuple[str, ...], Field(max_length=32)] = ()
    removed_flags: Annotated[tuple[str, ...], Field(max_length=32)] = ()
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.5


class PlannedAttempt(Word):
    """An accepted plan with the request that it leads to.

    Attributes:
        request: Of the next attempt, with the plan applied.
    """

    request: ReleaseRequest
    plan: RecoveryPlan
