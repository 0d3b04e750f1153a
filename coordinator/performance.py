"""Plays a scenario from the servers' start to the report, once or several times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import sqlalchemy as sa
from rich.console import Console

from coordinator import claims, late_write, outage, readiness, scenarios, story, tables
from coordinator.acts import STORY, Acts
from coordinator.composition import Factory, compose
from coordinator.containers import compose_runtime
from coordinator.fleet import ROOT
from coordinator.narrator import Narrator
from coordinator.play import Play
from coordinator.processes import process_runtime
from coordinator.report import REPORT_FILE, RunReport, latencies
from coordinator.runs import RunLocation
from coordinator.runtime import Runtime, Target, UnsupportedError
from coordinator.site import Servers, Site, new_folder, opened, visibility_timeout
from coordinator.verifier import verify_run
from fencepost.verify import Report
from ledger.release_file import load_release
from ledger.vocabulary import ReleaseRequest

EXAMPLE = ROOT / "examples" / "release" / "release.toml"
EXAMPLE_TARGET = Target("payment-engine", attempt=2)
LATE_TARGET = Target("payment-engine", attempt=1)

EX_FAILED = 1
EX_BROKEN = 3
"""Exit code when the verifier finds an invariant broken."""

SETTLE_GRACE = 5.0
_VERSION_KEPT = 32

Name = Literal["freeze", "kill", "term", "late-write", "partition", "redis-restart"]
RuntimeName = Literal["processes", "compose"]

PLAYS: Mapping[RuntimeName, frozenset[Name]] = {
    "processes": frozenset({"freeze", "kill", "term", "late-write"}),
    "compose": frozenset({"freeze", "kill", "late-write", "partition", "redis-restart"}),
}


@dataclass(frozen=True)
class Options:
    """What is to be played, and on what.

    Attributes:
        runtime: Where the workers are.
        file: The release file; None for the example, whose first attempt fails at the gate.
        lease_ttl: Seconds; a fleet that runs already has its own.
        repeat: How many releases, one after the other.
        servers: Those that are there already.
        postgres: Start a PostgreSQL where no database is given.
        guards: False to show what happens without them.
        planner: Environment of the workers' planner.
        runs: Where the run's folder is made.
    """

    scenario: Name
    runtime: RuntimeName = "processes"
    file: Path | None = None
    lease_ttl: float = 5.0
    repeat: int = 1
    servers: Servers = field(default_factory=Servers)
    postgres: bool = False
    guards: bool = True
    planner: Mapping[str, str] = field(default_factory=dict)
    runs: Path = Path("runs")


@dataclass(frozen=True)
class Result:
    """How it went.

    Attributes:
        report: What `report.json` holds.
    """

    exit_code: int
    report: dict[str, Any]


def perform(options: Options, narrator: Narrator) -> Result:
    """Play it.

    Raises:
        ReleaseFileError: The release file can't be used; nothing was started.
        UnsupportedError: The runtime can't play this scenario.
        FencepostError: A server, a worker or the scenario itself failed.
    """
    check_supported(options)
    request = load_release(options.file or EXAMPLE)
    folder = new_folder(options.runs)
    try:
        with _opened(options, folder) as (runtime, factory):
            result = _Stage(options, runtime, factory, narrator).play_all(request)
    finally:
        with suppress(OSError):
            folder.rmdir()  # only if nothing has come of it
    narrator.out.print(f"kept in   {folder}: {REPORT_FILE}, events.jsonl, logs/, artifacts/")
    return result


def check_supported(options: Options) -> None:
    """Make sure that the runtime has the means for the scenario.

    Raises:
        UnsupportedError: It hasn't; names one that has.
    """
    if options.scenario in PLAYS[options.runtime]:
        return
    other: RuntimeName = "compose" if options.runtime == "processes" else "processes"
    raise UnsupportedError(
        f"{options.scenario} can't be played on {options.runtime}: use --runtime {other}",
        scenario=options.scenario,
        runtime=options.runtime,
    )


@contextmanager
def _opened(options: Options, folder: Path) -> Iterator[tuple[Runtime, Factory]]:
    if options.runtime == "compose":
        with compose_runtime(folder) as containers:
            readiness.check_servers(containers.site.settings)
            with closing(compose(containers.site.settings)) as factory:
                yield containers, factory
        return
    place = opened(
        folder,
        lease_ttl=options.lease_ttl,
        servers=options.servers,
        postgres=options.postgres,
        guards=options.guards,
        planner=options.planner,
    )
    with place as site, closing(site.factory()) as factory:
        if options.servers.broker is not None:
            scenarios.refuse_company(factory.app)
        with process_runtime(site) as processes:
            yield processes, factory


def location_of(site: Site, run: UUID) -> RunLocation:
    """Where the facts of a run on a site are."""
    settings = site.settings
    return RunLocation(
        run=run,
        database=settings.database,
        broker=settings.broker,
        leases=settings.leases,
        staging=site.staging.root,
        published=site.published.root,
        lease_ttl=settings.lease_ttl,
    )


_JUDGES = {
    "late-write": late_write.claims_of,
    "redis-restart": outage.claims_of,
}


class _Stage:
    """Servers and workers, and the releases that are played on them."""

    def __init__(
        self, options: Options, runtime: Runtime, factory: Factory, narrator: Narrator
    ) -> None:
        self._options = options
        self._runtime = runtime
        self._site = runtime.site
        self._factory = factory
        self._narrator = narrator

    def play_all(self, request: ReleaseRequest) -> Result:
        self._runtime.hire()
        self._introduce(request)
        if self._options.repeat == 1:
            report = self._play_one(request, 1, self._narrator)
            self._verify(report)
            self._conclude(report)
            return self._written(report.exit_code, report.as_json(), [report])
        reports = []
        for number in range(1, self._options.repeat + 1):
            self._runtime.hire()
            reports.append(self._play_one(request, number, Narrator(Console(quiet=True))))
            self._tell_one(reports[-1], number)
        for report in reports:
            self._verify(report)
        return self._conclude_all(reports)

    def _introduce(self, request: ReleaseRequest) -> None:
        site, out = self._site, self._narrator.out
        database = sa.make_url(site.settings.database).render_as_string(hide_password=True)
        broker = sa.make_url(site.settings.broker).render_as_string(hide_password=True)
        workers = ", ".join(f"{w.name} ({w.place})" for w in self._runtime.workers)
        modules = ", ".join(module.name for module in request.modules)
        out.print(f"[bold]release[/]   {request.name} {request.version}: {modules}")
        out.print(f"[bold]workers[/]   {workers}; each a real `celery -A coordinator.app worker`")
        out.print(f"[bold]truth[/]     {database}")
        out.print(f"[bold]liveness[/]  {broker}; a lease lasts {site.settings.lease_ttl:g} s")
        if site.settings.unfenced:
            out.print("[bold red]guards[/]    OFF: no fence, and the last write wins")

    def _play_one(self, request: ReleaseRequest, number: int, narrator: Narrator) -> RunReport:
        options = self._options
        request = request.model_copy(update={"version": self._version(request, number)})
        target = LATE_TARGET if options.scenario == "late-write" else EXAMPLE_TARGET
        if options.file is not None:
            target = Target(request.modules[0].name, attempt=None)
        acts = Acts(
            narrator,
            self._site.settings.database,
            self._site.staging,
            STORY if options.scenario == "freeze" else None,
        )
        play = Play(self._runtime, self._factory, narrator, acts)
        report = RunReport(self._site, options.scenario)
        match options.scenario:
            case "freeze" if not options.guards:
                report.course, report.damage = story.play_unfenced(play, request, target)
            case "freeze":
                report.course = story.play_freeze(play, request, target)
            case "kill":
                report.course = scenarios.kill(play, request, target)
            case "term":
                report.course = scenarios.term(play, request, target)
            case "late-write":
                report.course = late_write.play_late_write(play, request, target)
            case "partition":
                report.course = scenarios.partition(play, request, target)
            case "redis-restart":
                report.course = outage.play_redis_restart(play, request, target)
        report.root_id, report.release = play.root_id, request.name
        if options.guards:
            play.collect()
            judged = _JUDGES.get(options.scenario, claims.claims_of)
            report.claims = judged(play, report.course)
        return report

    def _version(self, request: ReleaseRequest, number: int) -> str:
        """A version is promoted once, so that a database that stays needs another each time."""
        if number == 1 and self._site.servers.database is None:
            return request.version
        return f"{request.version[:_VERSION_KEPT]}+{self._site.run_id}.{number}"

    def _verify(self, report: RunReport) -> None:
        """Have the verifier look, and decide about the exit code."""
        settle = visibility_timeout(self._options.lease_ttl) + SETTLE_GRACE
        if not self._options.guards:
            settle = 0.0  # nothing that is broken here goes away by itself
        report.invariants = self._settled(report, settle)
        if not report.invariants.ok:
            report.exit_code = EX_BROKEN
        elif not report.ok or not self._options.guards:
            report.exit_code = EX_FAILED

    def _settled(self, report: RunReport, seconds: float) -> Report:
        """What the verifier finds once late messages are gone, and files are where it looks."""
        where = location_of(self._site, report.execution_id)
        # Whatever goes away by itself may also do so on disk, of which we may have a copy only.
        for settle in (0.0, seconds):
            self._runtime.collect(report.execution_id, report.release)
            found = verify_run(where, settle=settle)
            if found.ok:
                return found
        self._runtime.collect(report.execution_id, report.release)
        return verify_run(where, settle=0.0)

    def _conclude(self, report: RunReport) -> None:
        narrator = self._narrator
        narrator.act("The proof")
        if report.claims:
            narrator.show(tables.claims(report.claims))
        assert report.invariants is not None  # _verify() was called
        narrator.show(tables.invariants(report.invariants))
        if self._options.scenario != "freeze" and report.course is not None:
            narrator.out.print(f"{self._measured()}: {report.course.latency:.3f} s")
        self._tell_verdict(report.exit_code, report.invariants.violated)

    def _tell_one(self, report: RunReport, number: int) -> None:
        course = report.course
        assert course is not None  # it was played
        self._narrator.note(
            f"{number:>2} of {self._options.repeat}: {course.struck.worker.name} was hit,"
            f" {self._measured()} {course.latency:.3f} s, release {course.last.status}",
            style="green" if report.ok else "red",
        )

    def _measured(self) -> str:
        if self._options.scenario == "term":
            return "handed on after"
        if self._options.scenario == "late-write":
            return "undone after"
        if self._options.scenario == "redis-restart":
            return "the step in hand was done after"
        return "taken over after"

    def _conclude_all(self, reports: list[RunReport]) -> Result:
        out = self._narrator.out
        code = max(report.exit_code for report in reports)
        measured = latencies([r.course.latency for r in reports if r.course is not None])
        for report in reports:
            if report.exit_code:
                assert report.invariants is not None  # _verify() was called
                out.print(tables.claims(report.claims))
                out.print(tables.invariants(report.invariants))
        out.print(
            f"{self._measured()} [bold]min {measured['min']:.3f} s, median"
            f" {measured['median']:.3f} s, max {measured['max']:.3f} s[/] over {len(reports)} runs;"
            f" the lease lasts {self._options.lease_ttl:g} s"
        )
        broken = sorted({n for r in reports if r.invariants for n in r.invariants.violated})
        self._tell_verdict(code, broken)
        runs = [report.as_json() for report in reports]
        summary = {
            "run": self._site.run_id,
            "scenario": self._options.scenario,
            "ok": code == 0,
            "exit_code": code,
            "latency": measured,
            "repeats": runs,
        }
        return self._written(code, summary, reports)

    def _tell_verdict(self, code: int, broken: list[int]) -> None:
        out = self._narrator.out
        if broken:
            numbers = ", ".join(str(number) for number in broken)
            out.print(f"[bold red]broken invariants: {numbers}[/]")
        elif code:
            out.print("[bold red]not everything that was promised is so[/]")
        else:
            out.print("[bold green]all nine invariants hold[/]")

    def _written(self, code: int, content: dict[str, Any], reports: list[RunReport]) -> Result:
        folder = self._site.folder
        (folder / REPORT_FILE).write_text(json.dumps(content, indent=2, default=str) + "\n")
        for report in reports:
            report.write_history(self._factory.fp.engine.executions)
        return Result(code, content)
