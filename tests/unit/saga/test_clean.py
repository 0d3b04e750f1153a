"""The release factory and every example pass the check without any finding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BROKER = "redis://localhost:6379/0"
TARGETS = {
    "saga.module",
    "saga.release",
    "coordinator.app",
    "examples.adopt_existing.after.tasks",
    "examples.data_pipeline.app",
    "examples.data_pipeline.saga",
    "examples.order_saga.app",
    "examples.order_saga.saga",
    "examples.refund_agent.fencepost_app",
}
DEFINES = ("= Saga(", "    Saga(", "fencepost.task(", "fencepost.install(", "@task")


def test_every_module_with_sagas_is_checked_here() -> None:
    found = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in (ROOT / "examples").rglob("*.py")
        if any(text in file.read_text("utf-8") for text in DEFINES)
    }
    assert found == {target for target in TARGETS if target.startswith("examples.")}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_it_has_no_findings(target: str, tmp_path: Path) -> None:
    environment = {
        "CELERY_BROKER_URL": BROKER,
        "FENCEPOST_BROKER_URL": BROKER,
        "FENCEPOST_DATABASE_URL": f"sqlite:///{tmp_path}/never-opened.sqlite3",
        "REFUND_VISIBILITY_TIMEOUT": "60",
        "SHOP_BROKER": BROKER,
    }
    told = subprocess.run(
        [sys.executable, "-m", "fencepost", "check", "--strict", target],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        cwd=ROOT,
        check=False,
    )
    assert (told.stdout, told.stderr) == ("0 errors, 0 warnings\n", "")
    assert told.returncode == 0
