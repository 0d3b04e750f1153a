"""The public API as a type checker sees it in a user's project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]
SAMPLES = Path(__file__).parent / "samples"

ERROR = re.compile(r"^(?P<file>.+?):(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]$")


@pytest.fixture(scope="module")
def reported() -> dict[str, dict[int, set[str]]]:
    """For each file the codes of its errors by line, from one run over all samples."""
    samples = sorted(SAMPLES.glob("*.py"))
    out, err, _ = api.run(
        [
            "--strict",
            # As in a project that knows nothing of ours: no plugin, no relaxed setting.
            "--config-file=",
            f"--cache-dir={ROOT / '.mypy_cache' / 'samples'}",
            "--no-error-summary",
            *map(str, samples),
        ]
    )
    assert not err
    found: dict[str, dict[int, set[str]]] = {path.name: {} for path in samples}
    for line in out.splitlines():
        if ": note: " in line:
            continue
        error = ERROR.match(line)
        assert error is not None, out
        lines = found.setdefault(Path(error["file"]).name, {})
        lines.setdefault(int(error["line"]), set()).add(error["code"])
    return found


def test_what_users_write_is_taken_without_a_word(reported: dict[str, dict[int, set[str]]]) -> None:
    assert reported["right.py"] == {}


def test_every_mistake_is_seen_where_it_is_made(reported: dict[str, dict[int, set[str]]]) -> None:
    lines = (SAMPLES / "wrong.py").read_text().splitlines()
    expected = {
        number: set(line.partition("# E: ")[2].split())
        for number, line in enumerate(lines, start=1)
        if "# E: " in line
    }
    assert len(expected) >= 12
    assert reported["wrong.py"] == expected


def test_no_error_lies_in_the_package_itself(reported: dict[str, dict[int, set[str]]]) -> None:
    assert set(reported) == {"right.py", "wrong.py"}
