"""The reference lists what the kit has: nothing missing, nothing invented."""

from __future__ import annotations

import ast
import inspect
import re

import pytest

import fencepost.testing
from fencepost.testing import fleet, plugin
from fencepost.testing.crash_points import CrashPoints, Fault
from fencepost.testing.worker import Worker
from tests.docs.pages import DOCS, code_in, table_rows

PAGE = DOCS / "reference" / "testing.md"


def test_every_fixture_is_listed_with_its_scope() -> None:
    scopes = {}
    for function in ast.parse(inspect.getsource(plugin)).body:
        if not isinstance(function, ast.FunctionDef) or function.name.startswith("_"):
            continue
        for decorator in map(ast.unparse, function.decorator_list):
            if decorator.startswith("pytest.fixture"):
                scopes[function.name] = "session" if "session" in decorator else "test"
    listed = {code_in(row[0]): row[1] for row in table_rows(PAGE, "fixture")}
    assert listed == scopes


def test_every_option_is_listed(pytestconfig: pytest.Config) -> None:
    source = inspect.getsource(plugin.pytest_addoption)
    added = re.findall(r'addoption\(\s*"([\w-]+)"', source)
    assert [code_in(row[0]) for row in table_rows(PAGE, "option")] == sorted(added)


def test_what_is_listed_can_be_called() -> None:
    homes = {
        "fleet": fleet.Fleet,
        "worker": Worker,
        "fault": Fault,
        "fencepost_faults": CrashPoints,
    }
    calls = [row[0] for row in table_rows(PAGE, "call")]
    named = re.findall(r"(\w+)\.(\w+)", " ".join(calls))
    assert len(named) >= 20
    for home, name in named:
        made_in_init = name in ("workers",)
        assert made_in_init or hasattr(homes[home], name), f"{home}.{name}"
    functions = re.findall(r"`(\w+)\(", " ".join(c for c in calls if "." not in c.split("(")[0]))
    assert functions
    assert set(functions) <= set(fencepost.testing.__all__) | set(dir(Worker))


def test_every_public_name_is_there() -> None:
    for name in fencepost.testing.__all__:
        assert getattr(fencepost.testing, name).__module__.startswith("fencepost.testing")
    assert set(fencepost.testing.__all__) == set(fencepost.testing._HOMES)
    with pytest.raises(AttributeError, match="no attribute 'embeded_redis'"):
        fencepost.testing.embeded_redis  # type: ignore[attr-defined] # noqa: B018
