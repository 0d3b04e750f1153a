"""Errors as stored data."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field

from fencepost import serde
from fencepost.errors import FencepostError, PayloadError

In = TypeVar("In")

MESSAGE_LIMIT = 4_000
"""Characters of an error's message that are stored; the rest is in the worker's log."""


class ErrorInfo(BaseModel):
    """What is recorded of an exception."""

    error_type: str
    code: str
    message: str
    details: dict[str, Any] = Field(default_factory=dict)


class Failure(ErrorInfo, Generic[In]):
    """Why a saga failed: the input of an error branch's first step.

    Attributes:
        input: The saga's own input.
        step: The step that failed for good.
        visit: Which visit of it.
    """

    input: In
    step: str
    visit: int


def error_info(error: BaseException) -> ErrorInfo:
    """Describe an exception; its details are kept where they are JSON-compatible."""
    code = error.code if isinstance(error, FencepostError) else "step.raised"
    details: dict[str, Any] = {}
    if isinstance(error, FencepostError):
        for name, value in error.fields.items():
            try:
                details[name] = serde.dump(value, Any, what=f"error field {name!r}")
            except PayloadError:
                details[name] = repr(value)
    kind = type(error)
    return ErrorInfo(
        error_type=f"{kind.__module__}.{kind.__qualname__}",
        code=code,
        message=str(error)[:MESSAGE_LIMIT] or kind.__name__,
        details=details,
    )


PARENT_FAILED: dict[str, Any] = ErrorInfo(
    error_type="", code="saga.parent-failed", message="the parent execution failed"
).model_dump(mode="json")
"""Why a descendant is turned back, where nothing else is said. In its stored form."""
