"""What is no step can't be a place of a saga, and the error says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost import EffectCall, EffectKind, ErrorBranch, Saga, effect
from fencepost.errors import SagaDefinitionError


@effect(kind=EffectKind.IDEMPOTENT, sink="bank")
def pay(_call: EffectCall, cents: int) -> int:
    return cents


def plain(cents: int) -> int:
    return cents


@pytest.mark.parametrize("no_step", [pay, plain, None])
@pytest.mark.parametrize("method", ["then", "pivot", "continue_as_new"])
def test_it_is_refused_where_the_saga_is_built(no_step: Any, method: str) -> None:
    with pytest.raises(SagaDefinitionError, match="is not a step: put @step on the function"):
        getattr(Saga("payments", input=int), method)(no_step)


def test_in_an_error_branch_too() -> None:
    branch: ErrorBranch[Any, Any] = ErrorBranch(ValueError)
    with pytest.raises(SagaDefinitionError, match="is not a step"):
        branch.then(pay)  # type: ignore[arg-type]
