"""The example's check fails for what is in the artifacts, and for nothing else."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ledger.release_file import load_release
from ledger.unpacking import open_archive
from ledger.vocabulary import CheckReport
from tasks.checking import command_for, run_check
from tasks.stage import _write_archive
from tests.unit.factory.support import EXAMPLES, compiled, task_for


def check(tmp_path: Path, **flags: tuple[str, ...]) -> CheckReport:
    """Archives of all modules, unpacked beside each other, and the example's own check."""
    request = load_release(EXAMPLES / "release.toml")
    for module in request.modules:
        packed = io.BytesIO()
        chosen = flags.get(module.name.replace("-", "_"), flags["others"])
        _write_archive(packed, compiled(task_for(module.directory, *chosen, name=module.name)))
        archive = tmp_path / f"{module.name}.tar.gz"
        archive.write_bytes(packed.getvalue())
        open_archive(archive, into=tmp_path / "modules" / module.name)
    return run_check(
        command_for(request.gate.check, tmp_path / "modules"),
        folder=tmp_path / "modules",
        home=tmp_path,
        timeout=request.gate.timeout,
        still_wanted=lambda: None,
    )


def test_without_the_flag_the_collector_cannot_read_the_frames(tmp_path: Path) -> None:
    report = check(tmp_path, others=("--opt-level=3", "--deterministic"))
    assert report.exit_code == 1
    assert "payment-engine booked the refund" in report.stdout
    assert "wire ABI v1" in report.stderr
    assert "minimum is wire ABI v2" in report.stderr


@pytest.mark.parametrize("level", ["0", "3"])
def test_with_the_flag_all_services_work_together(tmp_path: Path, level: str) -> None:
    report = check(tmp_path, others=(f"--opt-level={level}", "--abi-compat=v2"))
    assert report.passed, report.stderr
    assert "all services work together" in report.stdout


def test_it_is_the_sender_that_matters(tmp_path: Path) -> None:
    report = check(tmp_path, others=(), payment_engine=("--abi-compat=v2",))
    assert report.passed, report.stderr


def test_an_abi_that_nobody_speaks_fails_with_its_name(tmp_path: Path) -> None:
    report = check(tmp_path, others=("--abi-compat=v9",))
    assert report.exit_code == 1
    assert "ABI v9" in report.stderr
