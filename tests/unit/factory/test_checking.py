from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from ledger import redact
from ledger.vocabulary import CheckReport
from tasks.checking import KEPT_BYTES, command_for, run_check


def nothing() -> None:
    pass


def run(tmp_path: Path, program: str, *, timeout: float = 20.0) -> CheckReport:
    script = tmp_path / "check.py"
    script.write_text(program)
    return run_check(
        command_for(script, tmp_path),
        folder=tmp_path,
        home=tmp_path,
        timeout=timeout,
        still_wanted=nothing,
    )


def test_a_check_gets_the_modules_folder_and_is_reported(tmp_path: Path) -> None:
    report = run(
        tmp_path, "import sys; print(sys.argv[1]); print('bad', file=sys.stderr); sys.exit(3)"
    )
    assert (report.exit_code, report.timed_out, report.passed) == (3, False, False)
    assert (report.stdout, report.stderr) == (f"{tmp_path}\n", "bad\n")
    assert report.stderr_bytes == 4
    assert report.command[0] == sys.executable


def test_a_good_check_passes(tmp_path: Path) -> None:
    assert run(tmp_path, "").passed


def test_a_check_sees_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdef0123")
    monkeypatch.setenv("FENCEPOST_DATABASE_URL", "postgresql://u:pw@h/d")
    names = set(run(tmp_path, "import os; print(*os.environ, sep='\\n')").stdout.split())
    assert "PATH" in names
    assert not {"OPENAI_API_KEY", "FENCEPOST_DATABASE_URL", "PYTHONPATH"} & names


def gone(pid: int, *, within: float) -> bool:
    """Whether the process has ended by then: a killed one may be on a core for a moment yet."""
    give_up = time.monotonic() + within
    while time.monotonic() < give_up:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_a_check_past_its_deadline_is_killed_with_all_it_started(tmp_path: Path) -> None:
    child = "import time; time.sleep(60)"
    program = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "print(p.pid, flush=True)\ntime.sleep(60)\n"
    )
    started = time.monotonic()
    report = run(tmp_path, program, timeout=1.5)
    assert (report.exit_code, report.timed_out, report.passed) == (None, True, False)
    assert time.monotonic() - started < 15
    assert gone(int(report.stdout), within=10.0)


def test_what_a_check_leaves_running_does_not_hold_it_up(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    )
    report = run(tmp_path, program)
    assert report.passed
    assert report.duration_ms < 10_000


def test_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    report = run(
        tmp_path,
        f"print('x' * 79 + '\\n' * 1, end='') or print('y\\n' * {KEPT_BYTES}); print('end')",
    )
    assert report.stdout.endswith("y\n\nend\n")
    assert len(report.stdout) == redact.TAIL_CHARACTERS
    assert report.stdout_bytes > 2 * KEPT_BYTES


def test_a_program_that_cannot_start_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "check"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    report = run_check(
        command_for(script, tmp_path),
        folder=tmp_path,
        home=tmp_path,
        timeout=5,
        still_wanted=nothing,
    )
    assert report.exit_code is None
    assert "can't start" in report.stderr


def test_a_check_that_nobody_wants_any_more_is_stopped(tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text(
        "import os, time; print(os.getpid(), file=open('pid', 'w'), flush=True); time.sleep(60)"
    )

    class LostError(Exception):
        pass

    def until_it_runs() -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise LostError

    with pytest.raises(LostError):
        run_check(
            command_for(script, tmp_path),
            folder=tmp_path,
            home=tmp_path,
            timeout=30,
            still_wanted=until_it_runs,
        )
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize(
    "text",
    [
        "password=hunter2hunter2",
        'DB_PASSWORD: "hunter2hunter2"',
        "postgresql://user:hunter2hunter2@host/db",
        "Authorization: Bearer hunter2hunter2",
        "AUTH_SIGNING_KEY=hunter2hunter2",
        "{'api_key': 'hunter2hunter2'}",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2hunter2\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nhunter2hunter2",
    ],
)
def test_secrets_are_taken_out(text: str) -> None:
    cleaned = redact.redact(f"before\n{text}\nafter")
    assert "hunter2" not in cleaned
    assert cleaned.startswith("before")


@pytest.mark.parametrize(
    "token",
    ["sk-proj-0123456789abcdefghij", "ghp_0123456789abcdefghijKLMNOP", "AKIA0123456789ABCDEF"],
)
def test_well_known_tokens_are_taken_out(token: str) -> None:
    assert redact.redact(f"got {token} here") == f"got {redact.REDACTED} here"


def test_values_of_secret_variables_are_taken_out() -> None:
    secrets = redact.secret_values({"MY_TOKEN": "abcdefgh", "PATH": "/usr/bin", "X_KEY": "short"})
    assert secrets == ["abcdefgh"]
    assert redact.redact("say abcdefgh twice: abcdefgh", secrets).count("abcdefgh") == 0


def test_plain_diagnostics_stay_readable() -> None:
    text = "telemetry-collector: offset 0: wire ABI v1 (header of 12 bytes)\nexit code 65"
    assert redact.redact(text) == text


def test_any_bytes_become_storable_text() -> None:
    assert "\x00" not in redact.storable(b"a\x00b\xff")
    assert redact.storable(b"ord=tail-of-a-secret\nrest", cut=True) == "rest"
