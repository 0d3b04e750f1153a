"""Says at the end how many schedules were explored."""

from __future__ import annotations

import pytest

from tests.exploration.reporting import LINES


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash.get(LINES, [])
    if lines:
        terminalreporter.section("schedules explored")
        for line in lines:
            terminalreporter.write_line(line)
