"""The acts of the story: what is said between the attempts of a release."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from coordinator.narrator import Narrator
from coordinator.views import GateView, PlanView, TracesView, gate_of, plan_of, traces_of
from coordinator.watch import Fact, Watch
from ledger import attempts, database
from ledger.staging import StagingStore

STORY = {
    1: (
        "Act I: three modules are staged, and the gate says no",
        "One release, three modules, two workers. Each line below is a checkpoint in SQL.",
    ),
    2: (
        "Act II: the next attempt, and a worker that freezes in mid-step",
        "The flags are the plan's. Nothing else of attempt 1 is left to build on.",
    ),
}


LONGEST_TEXT = 240


class Acts:
    """Narrates the news of a release, with a heading for each attempt.

    Args:
        narrator: Who tells them.
        database_url: Of the ledger.
        staging: The staging store that the workers use.
        story: Headings with a sentence, by the attempt's number; others get a plain one.
    """

    def __init__(
        self,
        narrator: Narrator,
        database_url: str,
        staging: StagingStore,
        story: dict[int, tuple[str, str]] | None = None,
    ) -> None:
        self._narrator = narrator
        self._database_url = database_url
        self._staging = staging
        self._story = story or {}
        self._attempt = 0

    def __call__(self, watch: Watch, news: Sequence[Fact]) -> None:
        """Tell these facts."""
        batch: list[Fact] = []
        for fact in news:
            number = watch.attempt_of(fact.execution)
            if fact.execution.parent_id is None and number > self._attempt:
                self._narrator.facts(batch)
                batch.clear()
                self._begin(fact.execution.lineage_id, number)
            batch.append(fact)
        self._narrator.facts(batch)

    def _begin(self, lineage_id: UUID, number: int) -> None:
        if number > 1:
            self.tell_failed(lineage_id, number - 1)
        self._attempt = number
        title, sentence = self._story.get(number, (f"Attempt {number}", ""))
        self._narrator.act(title, *([sentence] if sentence else []))

    def tell_failed(self, lineage_id: UUID, number: int) -> None:
        """Say why an attempt failed, what is left of it, and what the planner made of it."""
        with database.session(self._database_url) as session:
            line = attempts.of_lineage(session, lineage_id)
            attempt = next((row for row in line if row.attempt == number), None)
            if attempt is None:
                return  # it was refused before the ledger knew of it
            gate = gate_of(session, attempt.execution_id)
            traces = traces_of(session, self._staging, attempt)
            plan = plan_of(session, attempt.execution_id)
        if gate is not None and not gate.passed:
            self._tell_gate(gate)
        self._tell_traces(number, traces, locked=traces.lock == attempt.execution_id)
        if plan is not None:
            self._tell_plan(plan, gate)

    def _tell_gate(self, gate: GateView) -> None:
        code = gate.exit_code
        ended = "was stopped" if code is None else f"ended with exit code {code}"
        self._narrator.note(f"why: the integration check {ended} after {gate.duration_ms} ms")
        self._narrator.detail(gate.reason, style="red")

    def _tell_traces(self, number: int, traces: TracesView, *, locked: bool) -> None:
        counted = ", ".join(
            f"{count} {what} {status}"
            for what, statuses in (
                ("artifacts", traces.artifacts),
                ("attestations", traces.attestations),
            )
            for status, count in statuses.items()
        )
        self._narrator.note(
            f"left of attempt {number}: {traces.files} files, {traces.promotions} promotions,"
            f" its lock {'held' if locked else 'given up'}; on record: {counted or 'nothing'}"
        )

    def _tell_plan(self, plan: PlanView, gate: GateView | None) -> None:
        added = [f"add {flag}" for flag in plan.added_flags]
        removed = [f"drop {flag}" for flag in plan.removed_flags]
        self._narrator.note(f"the planner's plan: {', '.join([*added, *removed])}")
        for text in (plan.root_cause, plan.explanation):
            # A plan often repeats what the check said.
            if text and not (gate and text in gate.reason):
                self._narrator.detail(shortened(text))
        self._narrator.detail(
            f"{plan.model}, {plan.calls} requests, {plan.tokens_in} tokens in,"
            f" {plan.tokens_out} out; the policy refused {plan.refused} answers"
        )


def shortened(text: str) -> str:
    """A text's beginning, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 1]}…"
