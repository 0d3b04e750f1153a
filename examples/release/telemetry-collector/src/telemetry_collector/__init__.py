"""Decodes the telemetry frames of the other services. Reads wire ABI v2 and later."""

from telemetry_collector.frames import MINIMUM_ABI, FrameError, decode

__all__ = ["MINIMUM_ABI", "FrameError", "decode"]
