"""Leases in Redis or Valkey."""

from fencepost.stores.redis.leases import RedisLeaseStore

__all__ = ["RedisLeaseStore"]
