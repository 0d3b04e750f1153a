"""What the check passes doesn't fail for a reason that the check claims to cover."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost import Approval, Saga, Signal, Status, serde
from fencepost.errors import PayloadError
from fencepost.findings import errors_in
from fencepost.records import Execution, NewSignal
from fencepost.saga import WaitNode
from fencepost.saga.checks import check
from tests.unit.effects.fleet import Fleet
from tests.unit.saga.generated import Maker, constructs_of, plain
from tests.unit.saga.pool import values

COVERED = ("payload.invalid", "saga.invalid-definition", "checkpoint.fork")
"""Codes of the errors that the check claims to keep out."""

EXAMPLES = 400

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

CONSTRUCTS = (
    "step",
    "compensation",
    "pivot",
    "child",
    "AllSucceed",
    "FirstFailure",
    "Collect",
    "branch",
    "loop",
    "sleep",
    "until",
    "signal",
    "approval",
    "error branch with steps",
    "error branch without steps",
)

tried: Counter[str] = Counter()
"""Of the sagas that were passed and run: how many have each construct, and how they ended."""


class Everything(Fleet):
    """A fleet that remembers all of its executions."""

    def __init__(self, *sagas: Saga[Any, Any]) -> None:
        super().__init__(*sagas)
        self.known: dict[UUID, None] = {}

    def dispatch(self, execution: Execution) -> None:
        self.known[execution.execution_id] = None
        super().dispatch(execution)

    def fan_out(self, children: Sequence[Execution]) -> None:
        self.known |= dict.fromkeys(child.execution_id for child in children)
        super().fan_out(children)

    def executions(self) -> list[Execution]:
        return [self.row(execution_id) for execution_id in self.known]


def answer(fleet: Everything, execution_id: UUID, signal: Signal[Any], data: st.DataObject) -> None:
    """Send what the saga will wait for: it is kept until then."""
    if signal.payload is Approval:
        said = Approval(approved=data.draw(st.booleans()), by="ada", why="so", at=NOON)
    else:
        said = data.draw(values(plain(signal.payload)))
    payload = serde.dump(said, signal.payload, what="payload")
    fleet.store.send_signal(
        NewSignal(signal_id=uuid4(), execution_id=execution_id, name=signal.name, payload=payload)
    )


def run(saga: Saga[Any, Any], value: Any, data: st.DataObject) -> Everything:
    fleet = Everything(saga)
    execution_id = fleet.start(saga, value)
    fleet.known[execution_id] = None
    for node in saga.all_nodes():
        if isinstance(node, WaitNode) and node.signal is not None:
            answer(fleet, execution_id, node.signal, data)
    fleet.deliver(execution_id)
    fleet.settle(execution_id)
    row = fleet.row(execution_id)
    tried[f"ended as {row.status}"] += 1
    if row.status is Status.SUCCEEDED:
        serde.load(row.result, saga.output_type, what="result")
    return fleet


def complaints(fleet: Everything) -> list[str]:
    """Everything on record that names one of the errors that can't be."""
    said = []
    for row in fleet.executions():
        chain = fleet.store.chain(row.execution_id)
        events = fleet.store.events([row.execution_id])
        told: list[Any] = [row.error, row.parked_reason, *(entry.result for entry in chain)]
        told += [event.details for event in events]
        text = json.dumps(told, default=str)
        said += [f"{code} in {text}" for code in COVERED if f'"{code}"' in text]
    return said


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=QUIET)
@given(st.data())
def generated(data: st.DataObject) -> None:
    saga = Maker(data).saga()
    errors = errors_in(check(saga))
    if errors:
        tried.update({"refused", *(error.code for error in errors)})
        return
    tried.update({"passed", *constructs_of(saga)})
    value = data.draw(values(plain(saga.input_type)))
    assert complaints(run(saga, value, data)) == []


def test_what_passes_never_fails_for_what_is_covered() -> None:
    tried.clear()
    generated()
    assert tried["passed"] > EXAMPLES // 5, tried
    assert tried["refused"] > EXAMPLES // 10, tried
    rare = [name for name in CONSTRUCTS if not tried[name]]
    assert len(rare) < 4, f"nothing was tried of {rare}: {tried}"


@settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=QUIET)
@given(st.data())
def refused(data: st.DataObject) -> None:
    saga = Maker(data).saga()
    errors = errors_in(check(saga))
    if not errors or not all(error.code.startswith("types.") for error in errors):
        return
    tried["refused"] += 1
    value = data.draw(values(plain(saga.input_type)))
    try:
        said = complaints(run(saga, value, data))
    except PayloadError as problem:
        said = [problem.message]
    tried["failed"] += bool(said)


def test_what_is_refused_for_its_types_would_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not always: often a value happens to be right. But if never, the check would be needless."""
    monkeypatch.setattr("fencepost.engine.registry.check", lambda _saga: [])
    tried.clear()
    refused()
    assert tried["failed"] > tried["refused"] // 10 > 0, tried
