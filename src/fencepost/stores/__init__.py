"""Implementations of the ports: SQL, Redis, in memory."""
