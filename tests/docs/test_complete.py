"""What the reference lists is what the code has: nothing missing, nothing invented."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import typer

import fencepost
from coordinator.cli import app as coordinator_program
from fencepost import errors
from fencepost.celery.hardening import TASK_OPTIONS, hardened
from fencepost.cli.app import app as fencepost_program
from fencepost.cli.exits import Exit
from fencepost.decide import CANCELLED, DEADLINE_PASSED, PARENT_FAILED, STOPPED
from fencepost.effects import EffectKind, EffectStatus
from fencepost.engine.parked import SKIPPED
from fencepost.errors import FencepostError
from fencepost.failure import error_info
from fencepost.records import CheckpointKind, EventName, Phase, Status
from fencepost.settings import FencepostSettings
from fencepost.stores.sql.schema import metadata
from tests.docs.pages import DOCS, ROOT, code_in, name_of, prose_of, table_rows

GLOSSARY = DOCS / "glossary.md"
SETTINGS = DOCS / "reference" / "settings.md"
TABLES = DOCS / "reference" / "tables.md"
ENGINE = ROOT / "src" / "fencepost"


def column(page: Path, heading: str, number: int = 0) -> list[str]:
    return [code_in(row[number]) for row in table_rows(page, heading)]


def same(listed: Iterable[str], real: Iterable[str]) -> bool:
    listed, real = list(listed), set(real)
    assert len(listed) == len(set(listed)), "something is listed twice"
    assert set(listed) == real, f"missing {real - set(listed)}, invented {set(listed) - real}"
    return True


def error_classes() -> list[type[FencepostError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, FencepostError)
    ]


def test_every_error_code_is_in_the_glossary_beside_its_class() -> None:
    rows = [row for row in table_rows(GLOSSARY, "code") if len(row) == 3]
    listed = {(code_in(code), code_in(name)) for code, name, _ in rows}
    assert listed == {(cls.code, cls.__name__) for cls in error_classes()}


def test_codes_of_recorded_errors_are_in_the_glossary() -> None:
    rows = [row for row in table_rows(GLOSSARY, "code") if len(row) == 2]
    same(
        (code_in(row[0]) for row in rows),
        {
            error_info(ValueError("x")).code,
            PARENT_FAILED,
            STOPPED,
            CANCELLED,
            DEADLINE_PASSED,
            SKIPPED,
        },
    )


@pytest.mark.parametrize(
    ("heading", "values"),
    [("event", EventName), ("status", Status), ("phase", Phase), ("kind", CheckpointKind)],
)
def test_every_stored_name_is_in_the_glossary(heading: str, values: type[StrEnum]) -> None:
    assert same(column(GLOSSARY, heading), [str(value) for value in values])


def test_every_state_and_kind_of_an_effect_is_listed() -> None:
    page = DOCS / "effects.md"
    assert same(column(page, "effect status"), [str(status) for status in EffectStatus])
    assert same(column(page, "kind"), [str(kind) for kind in EffectKind])


def test_every_public_name_is_in_the_reference() -> None:
    public = set(fencepost.__all__) - {"__version__"}
    assert same(column(DOCS / "reference" / "api.md", "name"), public)


def test_every_setting_is_listed_with_its_default() -> None:
    rows = [row for row in table_rows(SETTINGS, "variable") if len(row) == 4]
    listed = {code_in(row[0]): row[1].strip("`") for row in rows}
    fields = FencepostSettings.model_fields
    assert same(listed, [f"FENCEPOST_{name.upper()}" for name in fields])
    for name, field in fields.items():
        said = listed[f"FENCEPOST_{name.upper()}"]
        if field.is_required():
            assert said == "required"
        elif field.default is not None:
            assert said == str(field.default)


def flat(settings: dict[str, Any]) -> dict[str, str]:
    """Settings as the table writes them: Python, with double quotes."""
    written: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            written |= {f'{name}["{key}"]': inner for key, inner in flat(value).items()}
        else:
            written[name] = repr(value).replace("'", '"')
    return written


def test_the_celery_settings_are_those_that_install_sets() -> None:
    listed = {code_in(row[0]): code_in(row[1]) for row in table_rows(SETTINGS, "setting")}
    assert listed == flat(
        hardened(timedelta(seconds=FencepostSettings.model_fields["lease_ttl"].default))
    )


def test_the_task_options_are_those_of_our_tasks() -> None:
    listed = {code_in(row[0]): code_in(row[1]) for row in table_rows(SETTINGS, "option")}
    assert listed == flat(TASK_OPTIONS)


def test_every_finding_about_settings_is_listed() -> None:
    source = (ENGINE / "celery" / "hardening.py").read_text("utf-8")
    assert same(column(SETTINGS, "code"), re.findall(r'"(settings\.[a-z-]+)"', source))


def test_every_crash_point_is_listed() -> None:
    sources = "\n".join(path.read_text("utf-8") for path in ENGINE.rglob("*.py"))
    reached = re.findall(r'\breach\(\s*"([a-z.-]+)",', sources)
    assert same(column(DOCS / "reference" / "crash-points.md", "point"), reached)


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=str)
def test_every_column_is_listed(table: sa.Table) -> None:
    _, _, after = prose_of(TABLES).partition(f"## `{table.name}`")
    section = after.partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert same(listed, [column.name for column in table.columns])


def commands_of(program: typer.Typer) -> set[str]:
    return set(typer.main.get_group(program).commands)


def test_every_command_is_listed() -> None:
    listed = column(DOCS / "reference" / "cli.md", "command")
    assert {one.split()[1] for one in listed if one.startswith("fencepost ")} == commands_of(
        fencepost_program
    )
    factory = "python -m coordinator "
    assert {one.split()[3] for one in listed if one.startswith(factory)} == commands_of(
        coordinator_program
    )


def test_the_exit_codes_are_those_of_the_program() -> None:
    _, _, after = prose_of(DOCS / "reference" / "cli.md").partition("## `fencepost`")
    section = after.partition("\n## ")[0]
    listed = re.findall(r"^\| `(\d+)` \|", section, re.MULTILINE)
    assert listed == [str(int(code)) for code in Exit]


def test_the_changelog_has_an_unreleased_section_with_entries() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    unreleased = text.partition("## [Unreleased]")[2].partition("\n## [")[0]
    assert re.search(r"^- ", unreleased, re.MULTILINE)


def test_names_in_a_table_are_code() -> None:
    for page in (GLOSSARY, SETTINGS, TABLES):
        assert "``" not in prose_of(page), name_of(page)
