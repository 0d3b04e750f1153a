"""One run: start everything, let the nemesis act, heal, wait until it is quiet, judge."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from fencepost.verify import verify
from tests.chaos import checker
from tests.chaos.checker import Finding
from tests.chaos.facts import Facts, Reader
from tests.chaos.history import History
from tests.chaos.nemesis import Nemesis
from tests.chaos.plan import plan
from tests.chaos.site import Options, Site
from tests.chaos.watch import Watch
from tests.chaos.workload import Workload

PROGRESS_EVERY = 10.0
STUCK_AFTER = 400.0
"""Seconds without any execution's end or checkpoint after which what is open counts as stuck.

The reaper's wait grows to 320 s where one message after the other was lost.
"""

SETTLE = timedelta(seconds=90)
"""How long the verifier waits for messages that nobody needs to be taken by somebody."""

REFUSED = ("execution.lease-lost", "ZOMBIE_WRITE_REJECTED")

NAMES = re.compile(r" \([0-9a-f-]{36}[^)]*\)")
"""Which execution's, in a reason: figures count reasons."""

Say = Callable[[str], None]


@dataclass
class Result:
    """What came of a run.

    Attributes:
        options: What it was.
        command: What repeats it.
        seconds: How long it took, all in all.
        findings: What is wrong.
        figures: Counts, by what is counted.
    """

    options: Options
    command: str
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def data(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "ok": self.ok,
            "command": self.command,
            "seconds": round(self.seconds, 1),
            "options": asdict(self.options),
            "figures": self.figures,
            "findings": [asdict(finding) for finding in self.findings],
        }


def run(options: Options, folder: Path, say: Say) -> Result:
    """Do all of it; the folder keeps the history, logs and databases."""
    began = time.monotonic()
    history = History(folder / "history.jsonl")
    result = Result(options, options.command())
    try:
        with Site(folder, options, history) as site:
            _Run(site, history, result, say).go()
    finally:
        history.close()
    result.seconds = time.monotonic() - began
    return result


class _Run:
    def __init__(self, site: Site, history: History, result: Result, say: Say) -> None:
        self._site, self._history, self._result, self._say = site, history, result, say
        self._options = result.options
        self._reader = Reader(site.database_url, site.warehouse_url, site.bank)
        self._watch = Watch(self._reader)

    def go(self) -> None:
        options, site, history = self._options, self._site, self._history
        site.supervisor.start()
        self._phase(f"{options.workers} workers are up; the nemesis has {options.minutes:g} min")
        planned = plan(options.seed, options.database, list(site.supervisor.slots))
        nemesis = Nemesis(site, planned, history)
        workload = Workload(site.fp, options.seed, options.rate, history, lambda: self._watch.open)
        self._watch.start()
        workload.start()
        nemesis.start()
        wrong = self._wait(options.minutes * 60)
        if wrong:
            self._phase("something is wrong: stopping")
            site.supervisor.patience = 0.0
            nemesis.stop(5.0)
        else:
            nemesis.stop()
        site.heal()
        if not wrong:
            self._phase("the nemesis has stopped, all is healed; waiting until it is quiet")
            if not workload.stop():
                self._result.findings.append(Finding("client", "the client can't start its work"))
            self._quiet()
            self._result.findings += [Finding("client", each) for each in workload.surprises]
        self._watch.stop()
        try:
            self._judge(wrong)
        finally:
            workload.stop(1.0)
            self._reader.close()

    def _wait(self, seconds: float) -> bool:
        """Let time go by, with a line now and then; True as soon as something is wrong."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._watch.wrong.wait(min(PROGRESS_EVERY, left)):
                return True
            self._progress()
        return False

    def _quiet(self) -> None:
        """Wait until all has ended, for as long as anything moves."""
        moved = told = time.monotonic()
        before: object = None
        while time.monotonic() - moved < STUCK_AFTER and not self._watch.wrong.is_set():
            if self._reader.unsettled() == 0:
                return
            now = self._reader.statuses(), self._reader.length()
            if now != before:
                before, moved = now, time.monotonic()
            if time.monotonic() - told >= PROGRESS_EVERY:
                told = time.monotonic()
                self._progress()
            time.sleep(0.5)

    def _judge(self, wrong: bool) -> None:
        """All findings of a whole run; of one that was stopped, those it was stopped for."""
        violations: Sequence[str] = ()
        if wrong:
            self._result.findings += self._watch.found
        else:
            self._phase("quiet; judging")
            url, redis_url = self._site.database_url, self._site.redis_server.url
            report = verify(url, redis_url, redis_url, settle=SETTLE)
            violations = [str(violation) for violation in report.violations]
        facts = self._reader.facts(self._history.entries(), violations)
        if not wrong:
            self._result.findings += self._watch.found
            self._result.findings += checker.judge(facts)
        self._result.figures = self._figures(facts)

    def _figures(self, facts: Facts) -> dict[str, Any]:
        executions: dict[str, Counter[str]] = {}
        for execution in facts.executions.values():
            executions.setdefault(execution.saga, Counter())[execution.status] += 1
        actions = self._history.entries("action")
        done = Counter(entry.name for entry in actions if entry.facts["done"])
        return {
            "started": len([w for w in facts.wanted.values() if w.execution_id]),
            "executions": {saga: dict(sorted(c.items())) for saga, c in executions.items()},
            "parked": dict(
                Counter(
                    NAMES.sub("", e.parked_reason or "")[:60]
                    for e in facts.executions.values()
                    if e.status == "parked"
                )
            ),
            "effects at the sinks": len(facts.rows),
            "takeovers": facts.events.get("execution.recovered", 0),
            "zombie writes refused by the store": sum(facts.events.get(n, 0) for n in REFUSED),
            "stale calls refused by sinks": self._reader.refusals(),
            "answers to commits lost": sum(link.lost for link in self._site.network.links.values()),
            "workers started": len(
                [e for e in self._history.entries("worker") if e.name == "start"]
            ),
            "actions": dict(sorted(done.items())),
            "actions that found nothing to hurt": len(actions) - sum(done.values()),
        }

    def _phase(self, words: str) -> None:
        self._history.add("phase", words)
        self._say(f"{self._history.now():7.1f} s  {words}")

    def _progress(self) -> None:
        actions = [entry for entry in self._history.entries("action") if entry.facts["done"]]
        started = len(self._history.entries("started"))
        try:
            statuses = ", ".join(f"{n} {s}" for s, n in sorted(self._reader.statuses().items()))
        except Exception:  # noqa: BLE001 - it is down right now
            statuses = "the database doesn't answer"
        up = sum(slot.up for slot in self._site.supervisor.slots.values())
        last = actions[-1] if actions else None
        doing = f"; {last.name} {last.target}" if last else ""
        self._say(
            f"{self._history.now():7.1f} s  {started} started: {statuses}; {up} workers up;"
            f" {len(actions)} actions{doing}"
        )
