"""The planner's tool: what a failed attempt left in the ledger, as text for a model."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy.orm import Session

from ledger import attempts, diagnostics
from tasks.planner import untrusted
from tasks.planner.journal import Sessions

OUTPUT_CHARACTERS = 4_000
"""Of a check's standard output, that a model is shown."""

ERROR_CHARACTERS = 8_000
"""Of its standard error."""


class Arguments(BaseModel):
    """What the model passes to `inspect_failed_attempt`."""

    model_config = ConfigDict(extra="forbid")

    lineage_id: UUID
    attempt: int


class Inspector:
    """`inspect_failed_attempt`, confined to one line of attempts.

    Args:
        lineage_id: The only line that can be read: the arguments come from a model that has
            read untrusted text.
        last_attempt: Of this line.
        sessions: The ledger.
    """

    def __init__(self, lineage_id: UUID, last_attempt: int, sessions: Sessions) -> None:
        self._lineage_id = lineage_id
        self._last_attempt = last_attempt
        self._sessions = sessions

    def call(self, arguments: str) -> str:
        """Run the tool on the model's arguments.

        Returns:
            The result for the model. If the arguments are wrong, it begins with `error:` and
            says what would be right.
        """
        try:
            wanted = Arguments.model_validate_json(arguments)
        except ValidationError as problem:
            first = problem.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "arguments"
            return f"error: {place}: {first['msg']}"
        if wanted.lineage_id != self._lineage_id:
            return f"error: lineage_id must be {self._lineage_id}"
        if not 1 <= wanted.attempt <= self._last_attempt:
            return f"error: attempt must be 1 to {self._last_attempt}"
        with self._sessions() as session:
            return inspect_failed_attempt(session, wanted.lineage_id, wanted.attempt)


def inspect_failed_attempt(session: Session, lineage_id: UUID, attempt: int) -> str:
    """What an attempt of a line left behind.

    Args:
        session: On the ledger.
        lineage_id: The line of attempts.
        attempt: From 1.

    Returns:
        Text for a model: our own facts first, then the check's output, marked as untrusted.
    """
    line = attempts.of_lineage(session, lineage_id)
    found = next((each for each in line if each.attempt == attempt), None)
    if found is None:
        return f"Attempt {attempt} is not in the ledger."
    flags = " ".join(found.flags) or "(none)"
    facts = [f"Attempt {attempt} of {found.release} {found.version}. Flags: {flags}"]
    checks = diagnostics.of_attempt(session, found.execution_id)
    if not checks:
        return "\n".join([*facts, "It has no diagnostics: it failed before its check was run."])
    check = checks[-1]
    ending = "was killed at its time limit" if check.timed_out else f"exit code {check.exit_code}"
    facts.append(f"Its integration check: {ending}, after {check.duration_ms} ms.")
    stdout = untrusted.capped(check.stdout, OUTPUT_CHARACTERS)
    stderr = untrusted.capped(check.stderr, ERROR_CHARACTERS)
    output = f"[standard output]\n{stdout}\n[standard error]\n{stderr}"
    return "\n".join([*facts, untrusted.fenced(output)])
