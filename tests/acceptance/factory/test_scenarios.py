"""A worker is killed, or told to leave, in mid-step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.factory.program import coordinator, only_folder


def test_a_killed_worker_is_replaced_within_its_lease_and_a_second(tmp_path: Path) -> None:
    arguments = ("--embedded", "--lease-ttl", "2", "--repeat", "2", "--runs", tmp_path / "runs")
    done = coordinator("scenario", "kill", *arguments, "--json")
    assert done.exit_code == 0, done.err + done.out
    report = done.json
    assert len(report["repeats"]) == 2
    assert report["latency"]["max"] <= 3.0
    assert len(report["latency"]["values"]) == 2
    for run in report["repeats"]:
        assert run["struck"]["taken_over"]
        assert run["refusals"] == []  # the dead write nothing
        assert all(claim["held"] for claim in run["claims"])
        assert run["invariants"]["ok"]
    assert "min" in done.err
    assert "median" in done.err
    folder = only_folder(tmp_path / "runs")
    assert json.loads((folder / "report.json").read_text()) == report
    # Two releases on one database need two versions.
    versions = {run["attempts"][-1]["version"] for run in report["repeats"]}
    assert len(versions) == 2


def test_a_terminated_worker_hands_on_without_waiting_for_the_lease(tmp_path: Path) -> None:
    arguments = ("--postgres", "--lease-ttl", "20", "--runs", tmp_path / "runs")
    done = coordinator("scenario", "term", *arguments, "--json")
    assert done.exit_code == 0, done.err + done.out
    report = done.json
    assert not report["struck"]["taken_over"]
    assert report["struck"]["latency_seconds"] < 5.0
    assert all(claim["held"] for claim in report["claims"])
    assert report["invariants"]["ok"]


def test_any_release_file_can_be_played(tmp_path: Path) -> None:
    module = tmp_path / "app"
    module.mkdir()
    (module / "main.py").write_text("print('hello')\n")
    (tmp_path / "check.py").write_text("print('fine')\n")
    file = tmp_path / "release.toml"
    file.write_text(
        '[release]\nname = "tiny"\nversion = "1"\n[gate]\ncheck = "check.py"\n'
        '[[module]]\nname = "app"\npath = "app"\n'
    )
    arguments = ("--embedded", "--lease-ttl", "2", "--file", file, "--runs", tmp_path / "runs")
    done = coordinator("scenario", "freeze", *arguments, "--json")
    assert done.exit_code == 0, done.err + done.out
    (attempt,) = done.json["attempts"]
    assert (attempt["release"], attempt["status"]) == ("tiny", "PROMOTED")


@pytest.mark.parametrize("database", ["--embedded", "--postgres"])
def test_a_late_write_does_not_come_back_after_its_undo(tmp_path: Path, database: str) -> None:
    arguments = (database, "--runs", tmp_path / "runs")
    done = coordinator("scenario", "late-write", *arguments, "--json")
    assert done.exit_code == 0, done.err + done.out
    report = done.json
    assert all(claim["held"] for claim in report["claims"]), report["claims"]
    assert len(report["claims"]) == 8
    assert {refusal["name"] for refusal in report["refusals"]} == {
        "ZOMBIE_WRITE_REJECTED",
        "execution.lease-lost",
    }
    assert report["invariants"]["ok"]
    # A lease lasts 30 s: whoever waited for it would have been much later.
    assert report["lease_ttl"] == 30.0
