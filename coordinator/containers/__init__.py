"""The runtime of containers: a fleet that `docker compose up` has started."""

from __future__ import annotations

from coordinator.containers.runtime import compose_runtime

__all__ = ["compose_runtime"]
