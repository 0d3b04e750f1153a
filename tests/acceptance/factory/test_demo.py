"""The three acts, on real processes and real servers, as the program tells them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.factory.conftest import FinishedRun
from tests.acceptance.factory.program import (
    ROOT,
    broken,
    coordinator,
    environment,
    only_folder,
)

MODULES = ["auth-service", "payment-engine", "telemetry-collector"]


def claims(report: Any) -> dict[str, Any]:
    return {claim["what"]: claim for claim in report["claims"]}


def test_the_demo_proves_what_it_promises(finished_demo: FinishedRun) -> None:
    report = finished_demo.report
    assert (report["ok"], report["exit_code"], report["guards"]) == (True, 0, True)
    assert len(report["claims"]) == 12
    assert all(claim["held"] for claim in report["claims"])
    found = claims(report)
    assert found["epoch 1, then 2, and no other"]["shown"] == "1 → 2"
    assert len(found["step 1 (prepare) ran once"]["found"]) == 1
    assert found["6 or more checkpoints in one line"]["shown"].count("→") == 5
    struck = report["struck"]
    assert (struck["module"], struck["attempt"]) == ("payment-engine", 2)
    assert struck["owner_before"].partition(":")[0] != struck["owner_after"].partition(":")[0]
    assert report["lease_ttl"] - 2 < struck["latency_seconds"] <= report["lease_ttl"] + 1


def test_all_nine_invariants_hold_and_none_was_left_out(finished_demo: FinishedRun) -> None:
    lines = finished_demo.report["invariants"]["invariants"]
    assert [(line["number"], line["verdict"]) for line in lines] == [
        (n, "ok") for n in range(1, 10)
    ]
    assert all(sum(line["examined"].values()) for line in lines)


def test_the_zombie_was_refused_twice_with_what_it_tried_to_write(
    finished_demo: FinishedRun,
) -> None:
    report = finished_demo.report
    refusals = report["refusals"]
    assert [(r["name"], r["sink"], r["epoch"], r["current_epoch"]) for r in refusals] == [
        ("ZOMBIE_WRITE_REJECTED", "ledger", 1, 2),
        ("execution.lease-lost", "checkpoint-store", 1, 2),
    ]
    key = f"{report['struck']['execution_id']}:stage:1"
    assert {refusal["step_key"] for refusal in refusals} == {key}
    assert {refusal["owner"] for refusal in refusals} == {report["struck"]["owner_before"]}
    assert all(refusal["payload_digest"] for refusal in refusals)


def test_the_second_attempt_follows_the_plan(finished_demo: FinishedRun) -> None:
    first, second = finished_demo.report["attempts"]
    assert (first["status"], second["status"]) == ("COMPENSATED", "PROMOTED")
    assert first["gate"]["exit_code"] == 1
    assert "wire ABI" in first["gate"]["reason"]
    assert first["plan"]["added_flags"] == ["--abi-compat=v2"]
    assert first["plan"]["tokens_in"] > 0
    assert first["plan"]["tokens_out"] > 0
    assert second["flags"] == [*first["flags"], "--abi-compat=v2"]


def test_the_story_can_be_read_in_a_log(finished_demo: FinishedRun) -> None:
    told = finished_demo.done.err
    assert "\x1b" not in told
    for words in (
        "Act I",
        "Act II",
        "Act III",
        "FROZEN: SIGSTOP",
        "at stage.archive-written",
        "takes over from",
        "THAWED: SIGCONT",
        "ZOMBIE_WRITE_REJECTED",
        "execution.lease-lost",
        "all nine invariants hold",
    ):
        assert words in told
    countdown = [line for line in told.splitlines() if "the lease in Redis" in line]
    assert 3 <= len(countdown) <= 6  # one line a second


def test_a_run_leaves_its_report_its_events_its_logs_and_its_artifacts(
    finished_demo: FinishedRun,
) -> None:
    folder, report = finished_demo.folder, finished_demo.report
    assert json.loads((folder / "report.json").read_text()) == report
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    names = {entry["name"] for entry in events if entry["type"] == "event"}
    assert {"execution.started", "lease.acquired", "execution.recovered"} <= names
    assert sum(entry["type"] == "checkpoint" for entry in events) == 65
    logs = {path.name: path.read_text() for path in (folder / "logs").iterdir()}
    assert set(logs) == {"worker-a.log", "worker-b.log"}
    assert all(" ready." in log for log in logs.values())
    published = [path.name for path in (folder / "artifacts" / "published").rglob("*.tar.gz")]
    assert sorted(name.rpartition("-")[0] for name in published) == MODULES
    staged = {path.parents[1].name for path in (folder / "artifacts" / "staging").rglob("*.gz")}
    assert staged == {"2"}


def test_nothing_is_left_running(finished_demo: FinishedRun) -> None:
    folder = str(finished_demo.folder)
    left = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        known = [*(process.info["cmdline"] or ()), *(process.info["environ"] or {}).values()]
        if any(folder in word for word in known):
            left.append(process)
    assert left == []


def test_a_kept_run_can_be_shown_and_verified_later(finished_demo: FinishedRun) -> None:
    shown = coordinator("status", finished_demo.folder, "--json")
    assert (shown.exit_code, shown.json["status"]) == (0, "succeeded")
    assert [m["name"] for m in shown.json["attempts"][1]["modules"]] == MODULES
    runs, name = finished_demo.folder.parent, finished_demo.folder.name
    verified = coordinator("verify", name, "--runs", runs, "--json")
    assert (verified.exit_code, verified.json["ok"]) == (0, True)


def test_the_demo_on_postgresql(tmp_path: Path) -> None:
    done = coordinator("demo", "--postgres", "--json", "--runs", tmp_path / "runs")
    assert done.exit_code == 0, done.err + done.out
    report = done.json
    assert report["servers"]["database"] == "postgresql"
    assert all(claim["held"] for claim in report["claims"])
    lines = report["invariants"]["invariants"]
    assert [line["verdict"] for line in lines] == ["ok"] * 9
    secret = (only_folder(tmp_path / "runs") / "servers/postgres/postgres-password").read_text()
    assert secret not in done.out + done.err


def test_without_guards_the_verifier_names_what_broke(tmp_path: Path) -> None:
    done = coordinator("demo", "--unfenced", "--json", "--runs", tmp_path / "runs")
    assert done.exit_code == 3, done.err + done.out
    report = done.json
    assert (report["ok"], report["guards"], report["refusals"]) == (False, False, [])
    # A stale epoch landed, the chain fell back, a promoted module was undone by a zombie.
    assert {2, 3, 4, 6, 7, 9} <= set(broken(report["invariants"]))
    damage = "\n".join(report["damage"])
    assert "had ended as succeeded; now it is compensated" in damage
    assert "was overwritten by" in damage
    assert "payment-engine is out in the world, and its artifact is COMPENSATED" in damage
    assert "broken invariants: 2, 3, 4, 6, 7, 9" in done.err


def test_the_guards_are_never_off_on_somebodys_server(tmp_path: Path) -> None:
    named = ("--database-url", "sqlite:///mine.db", "--redis-url", "redis://localhost:1/0")
    done = coordinator("demo", "--unfenced", *named, "--runs", tmp_path)
    assert done.exit_code == 78
    assert "--database-url, --redis-url" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_demo_leaves_nothing_running(number: signal.Signals, tmp_path: Path) -> None:
    mark = f"interrupted-{number.name}-{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "coordinator", "demo", "--runs", str(tmp_path)],
        cwd=ROOT,
        env=environment(TEST_MARK=mark, PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "FROZEN" in line:
            break
    process.send_signal(number)
    process.stdout.read()
    code = process.wait(30)
    if number is signal.SIGKILL:
        # Its workers, the frozen one included, and its servers follow it by themselves.
        deadline = time.monotonic() + 10
        while carrying(mark) and time.monotonic() < deadline:
            time.sleep(0.1)
    else:
        assert code == 128 + number
    assert carrying(mark) == []


def carrying(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["environ", "status"]):
        ended = process.info["status"] == psutil.STATUS_ZOMBIE
        if not ended and (process.info["environ"] or {}).get("TEST_MARK") == mark:
            found.append(process)
    return found
