from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from coordinator.runs import RunNotFoundError, locate
from coordinator.settings import SettingsMissingError

RUN = "11111111-2222-3333-4444-555555555555"
SERVERS = {"FENCEPOST_DATABASE_URL": "sqlite:///x.db", "FENCEPOST_BROKER_URL": "redis://h/0"}


def kept(folder: Path, report: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def report(file: str | None = "fencepost.sqlite3") -> dict[str, Any]:
    return {"execution_id": RUN, "lease_ttl": 5.0, "servers": {"database_file": file}}


@pytest.mark.parametrize("by_name", [True, False])
def test_a_kept_run_is_found_by_its_folder_and_by_its_name(tmp_path: Path, by_name: bool) -> None:
    folder = kept(tmp_path / "runs" / "20260102-x", report())
    found = locate(folder.name if by_name else str(folder), tmp_path / "runs", {})
    assert found.run == UUID(RUN)
    assert found.database == f"sqlite:///{folder}/fencepost.sqlite3"
    assert (found.broker, found.leases) == (None, None)
    assert found.staging == folder / "artifacts" / "staging"
    assert found.published == folder / "artifacts" / "published"


def test_of_a_repeated_scenario_the_last_release_is_meant(tmp_path: Path) -> None:
    other = report() | {"execution_id": "00000000-0000-0000-0000-000000000000"}
    folder = kept(tmp_path / "run", {"repeats": [other, report()]})
    assert locate(str(folder), tmp_path, {}).run == UUID(RUN)


def test_a_run_on_other_peoples_servers_has_only_its_artifacts_in_its_folder(
    tmp_path: Path,
) -> None:
    folder = kept(tmp_path / "run", report(None))
    found = locate(str(folder), tmp_path, SERVERS)
    assert (found.run, found.database, found.broker) == (UUID(RUN), "sqlite:///x.db", "redis://h/0")
    assert found.staging == folder / "artifacts" / "staging"
    with pytest.raises(SettingsMissingError):
        locate(str(folder), tmp_path, {})


def test_an_execution_is_looked_for_on_the_servers_of_the_environment(tmp_path: Path) -> None:
    found = locate(RUN, tmp_path, SERVERS)
    assert (found.run, found.database, found.broker) == (UUID(RUN), "sqlite:///x.db", "redis://h/0")
    with pytest.raises(SettingsMissingError):
        locate(RUN, tmp_path, {})


def test_anything_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError, match="nonsense"):
        locate("nonsense", tmp_path, SERVERS)
