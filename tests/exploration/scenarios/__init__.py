"""The named small configurations, explored exhaustively within their bounds."""

from __future__ import annotations

from fencepost.testing.explore import Scenario
from tests.exploration.scenarios import effects, families, flows, steps, waits

SCENARIOS: tuple[Scenario, ...] = (
    *steps.SCENARIOS,
    *effects.SCENARIOS,
    *families.SCENARIOS,
    *waits.SCENARIOS,
    *flows.SCENARIOS,
)
