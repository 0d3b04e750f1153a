"""The options that this package was built with; a source tree runs with the defaults."""

try:
    from auth_service._build import ABI, DETERMINISTIC
except ModuleNotFoundError:
    ABI, DETERMINISTIC = "v1", False

__all__ = ["ABI", "DETERMINISTIC"]
