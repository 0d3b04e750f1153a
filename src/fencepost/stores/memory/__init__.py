"""All stores in memory, by a clock that a test can move."""

from fencepost.stores.memory.effects import MemoryEffectStore
from fencepost.stores.memory.executions import MemoryExecutionStore
from fencepost.stores.memory.leases import MemoryLeaseStore
from fencepost.stores.memory.limits import MemoryLimitStore
from fencepost.stores.memory.transactions import MemorySession

__all__ = [
    "MemoryEffectStore",
    "MemoryExecutionStore",
    "MemoryLeaseStore",
    "MemoryLimitStore",
    "MemorySession",
]
