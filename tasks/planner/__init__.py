"""The recovery planner: a language model reasons, the ledger remembers, a policy decides."""

from tasks.planner.errors import (
    PlannerConfigurationError,
    PlannerRefusedError,
    PlannerUnavailableError,
    RecoveryExhaustedError,
)
from tasks.planner.settings import PlannerSettings
from tasks.planner.step import next_attempt, plan_recovery

__all__ = [
    "PlannerConfigurationError",
    "PlannerRefusedError",
    "PlannerSettings",
    "PlannerUnavailableError",
    "RecoveryExhaustedError",
    "next_attempt",
    "plan_recovery",
]
