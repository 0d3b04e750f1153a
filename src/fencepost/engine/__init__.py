"""The protocol at work: running executions, keeping leases alive, reaping what was lost."""

from fencepost.engine.core import Engine, EngineOptions, Outcome

__all__ = ["Engine", "EngineOptions", "Outcome"]
