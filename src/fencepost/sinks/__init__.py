"""Sinks that check a fence and apply a key once. The contract is here; it loads no I/O library.

Adapters, each in a module of its own: `sinks.sql`, `sinks.redis`, `sinks.http` (the client's side),
`sinks.asgi` (the server's side), `sinks.files`, `sinks.objects`.
"""

from fencepost.sinks.contract import (
    Applied,
    ApplyingSink,
    Claim,
    FencedSink,
    Refusal,
    SinkBusyError,
    SinkCall,
)

__all__ = [
    "Applied",
    "ApplyingSink",
    "Claim",
    "FencedSink",
    "Refusal",
    "SinkBusyError",
    "SinkCall",
]
