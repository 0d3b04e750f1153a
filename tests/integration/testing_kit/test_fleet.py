"""A user's fleet under the plugin: every fault, failure reports, and nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.testing import assert_verified, wait_for
from tests.docs.pages import DOCS, blocks_of
from tests.integration.testing_kit.conftest import nothing_left
from tests.support.leftovers import left_by

pytest_plugins = ("pytester",)

FLEET = """
    import pytest
    from fencepost.testing import assert_verified

    seen = []

    @pytest.fixture
    def fleet(fencepost_fleet):
        assert not [worker for worker in seen if worker.processes()], "an earlier test's"
        fleet = fencepost_fleet("sums_app")
        seen.extend(fleet.ready(2))
        return fleet
"""


def documented(name: str, version: int) -> str:
    """A file as the how-to shows it: the first or a later version."""
    blocks = blocks_of(DOCS / "how-to" / "test-your-app.md")
    found = [b.text for b in blocks if b.verb == "file" and b.argument == name]
    return found[version]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_naive_refund_goes_red_and_fencepost_s_green(project: pytest.Pytester) -> None:
    for name in ("shop.py", "test_refunds.py", "tasks.py"):
        (project.path / name).write_text(documented(name, 0))
    naive = project.runpytest_subprocess()
    naive.assert_outcomes(failed=1)
    naive.stdout.fnmatch_lines(
        [
            "E * AssertionError: the customer has been paid 2 times",
            "*- workers -*",
            "== w1@test (*",
            "== w2@test (*",
        ]
    )
    assert "signal 9 (SIGKILL)" in naive.stdout.str()
    assert nothing_left(project.path)

    (project.path / "tasks.py").write_text(documented("tasks.py", 1))
    project.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_workers_are_killed_frozen_thawed_and_terminated(project: pytest.Pytester) -> None:
    project.makepyfile(
        FLEET
        + """
    def test_faults(fleet, fencepost_faults):
        import sums_app

        assert sums_app.add.delay(2, 3).get(timeout=60) == 5

        fault = fencepost_faults.arm("sums.doubling", "freeze", match={"x": 2})
        frozen = fleet.fp.start(sums_app.sums, 1)
        victim = fault.victim()
        assert victim.frozen() and victim.running
        (other,) = [worker for worker in fleet.alive if worker is not victim]
        takeover = fleet.await_event(frozen, "execution.recovered")
        assert fleet.worker_of(takeover.owner) is other
        assert fleet.await_end(frozen).result == 4
        victim.thaw()
        fleet.await_event(frozen, "execution.lease-lost")

        fault = fencepost_faults.arm("sums.doubling", "kill")
        killed = fleet.fp.start(sums_app.sums, 2)
        fault.victim().wait()
        assert len(fleet.alive) == 1
        (survivor,) = fleet.alive
        assert killed.result(timeout=60) == 6
        assert len(fleet.ledger.events(killed, "execution.recovered")) == 1

        survivor.terminate()
        assert survivor.wait(60) == 0
        assert_verified(fleet)
        assert_verified(fleet.fp)

    def test_the_next_test_is_clean(fleet):
        import sums_app

        handle = fleet.fp.start(sums_app.sums, 3)
        assert handle.result(timeout=60) == 8
        assert assert_verified(fleet).executions == {"succeeded": 1}
        with pytest.raises(ValueError, match="execution.recoverd"):
            fleet.await_event(handle, "execution.recoverd")
        with pytest.raises(AssertionError, match="execution.parked") as late:
            fleet.await_event(handle, "execution.parked", timeout=0.1)
        assert "w1@test ready" in str(late.value)
        assert "is succeeded" in str(late.value)
    """
    )
    project.runpytest_subprocess().assert_outcomes(passed=2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_worker_is_cut_off_from_redis_or_the_database(project: pytest.Pytester) -> None:
    project.makepyfile(
        FLEET
        + """
    @pytest.mark.parametrize("service", ["redis", "database"])
    def test_cut(fleet, fencepost_faults, service):
        import sums_app

        fault = fencepost_faults.arm("sums.doubling", "pause")
        handle = fleet.fp.start(sums_app.sums, 1)
        victim = fault.victim()
        victim.cut("redis", service)
        takeover = fleet.await_event(handle, "execution.recovered")
        assert fleet.worker_of(takeover.owner) is not victim
        fault.go()
        assert fleet.await_end(handle).result == 4
        victim.heal()
        fleet.await_event(handle, "execution.lease-lost") if service == "redis" else None
        assert fleet.fp.start(sums_app.sums, 2).result(timeout=60) == 6
        assert_verified(fleet)

    def test_reset(fleet):
        import sums_app

        one, two = fleet.workers
        one.cut(how="reset")
        fleet.wait_for(lambda: "onnection" in one.log().split("ready.")[1], 60, "an error")
        assert fleet.fp.start(sums_app.sums, 2).result(timeout=60) == 6
        with pytest.raises(ValueError, match="can't be cut off from 'bank'"):
            two.cut("bank")
    """
    )
    project.runpytest_subprocess().assert_outcomes(passed=3)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_a_test_leaves_is_kept(project: pytest.Pytester) -> None:
    project.makepyfile(
        FLEET
        + """
    def test_kept(fleet, fencepost_faults):
        import sums_app

        fault = fencepost_faults.arm("sums.doubling", "raise")
        handle = fleet.fp.start(sums_app.sums, 2)
        assert fleet.await_end(handle).status == "failed"
        assert fault.wait()["facts"] == {"x": "3"}
        assert "database" not in fleet.workers[0].links
        with pytest.raises(ValueError, match="'database'"):
            fleet.workers[0].cut("database")
    """
    )
    ran = project.runpytest_subprocess("--fencepost-keep", "--fencepost-database=sqlite")
    ran.assert_outcomes(passed=1)
    ran.stdout.fnmatch_lines(["fencepost: kept in *"])
    [kept] = (project.path / ".fencepost-kept").iterdir()
    assert assert_verified(f"sqlite:///{kept / 'ledger.sqlite3'}").executions == {"failed": 1}
    assert "w1@test ready." in (kept / "fleet-1" / "w1.log").read_text()
    assert list((kept / "faults").glob("*.fired-1"))


# A shell's background job ignores them, and so does all that it starts.
HEEDS_INTERRUPTS = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(["-p", "no:cacheprovider"]))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_nothing_runs_when_pytest_is_interrupted(
    project: pytest.Pytester, end: signal.Signals
) -> None:
    """Ctrl-C, and a death that no code of ours sees: the same nothing is left."""
    project.makepyfile(
        FLEET
        + """
    def test_endless(fleet):
        import pathlib, time

        fleet.workers[0].freeze()
        pathlib.Path("running").touch()
        while True:
            time.sleep(0.1)
    """
    )
    path = os.pathsep.join([str(project.path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    with (project.path / "out").open("wb") as out:
        pytest_itself = subprocess.Popen(
            [sys.executable, "-c", HEEDS_INTERRUPTS],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=project.path,
            env=environment,
            start_new_session=True,
        )
    try:
        wait_for(Path(project.path / "running").exists, 240, "workers that run")
        assert len(left_by(project.path)) > 4
        pytest_itself.send_signal(end)
        pytest_itself.wait(60)
    finally:
        pytest_itself.kill()
        pytest_itself.wait()
    if end is signal.SIGINT:
        assert "KeyboardInterrupt" in (project.path / "out").read_text()
    assert nothing_left(project.path)
