"""The options that this package was built with; a source tree runs with the defaults."""

try:
    from payment_engine._build import ABI, DETERMINISTIC, OPT_LEVEL
except ModuleNotFoundError:
    ABI, DETERMINISTIC, OPT_LEVEL = "v1", False, 0

__all__ = ["ABI", "DETERMINISTIC", "OPT_LEVEL"]
