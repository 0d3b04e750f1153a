"""Waiting for a time, a signal or a person, without holding a worker or a lease."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fencepost import serde
from fencepost.commands import Wait, Wake
from fencepost.errors import (
    ApprovalRejectedError,
    PayloadError,
    SagaDefinitionError,
    Suspended,
    WaitTimeoutError,
)
from fencepost.records import CheckpointKind, SentSignal
from fencepost.saga import Approval, WaitKind, WaitNode

if TYPE_CHECKING:
    from fencepost.engine.saga_run import SagaRun


def go_on(run: SagaRun, command: Wait | Wake) -> None:
    """Begin to wait, or see whether the wait is over."""
    if isinstance(command, Wait):
        _begin(run, command)
    else:
        _end(run, command)


def _begin(run: SagaRun, command: Wait) -> None:
    """Put the wait on record, and give the execution up until it is over."""
    node, visit = command.node, command.visit
    try:
        length, moment = _until(node, command.value)
    except Exception as error:  # noqa: BLE001 - the functions are the user's code
        run.failed(node.name, visit, error)
        return
    signal = None if node.signal is None else node.signal.name
    run.own.commit(
        CheckpointKind.WAIT,
        node.name,
        visit,
        {
            "seconds": None if length is None else length.total_seconds(),
            "until": None if moment is None else moment.isoformat(),
            "signal": signal,
        },
        waits=True,
        wake_in=length,
        wake_at=moment,
        waits_for=signal,
    )
    run.let_go()
    execution = run.own.execution
    if signal and run.store.pending_signals(execution.execution_id, signal):
        run.engine.dispatch(execution)
    raise Suspended(f"{node.name!r} waits")


def _until(node: WaitNode, stored: Any) -> tuple[timedelta | None, datetime | None]:
    """How long to wait at most, or until when."""
    match node.kind:
        case WaitKind.SIGNAL | WaitKind.APPROVAL:
            return node.timeout, None
        case WaitKind.SLEEP if isinstance(node.duration, timedelta):
            return node.duration, None
        case _:
            value = serde.load(stored, node.argument_type, what=f"input of {node.name!r}")
    if node.at is None:
        assert callable(node.duration)
        return max(node.duration(value), timedelta(0)), None
    moment = node.at(value)
    if moment.tzinfo is None:
        raise SagaDefinitionError(
            f"{node.name!r}: its moment, {moment}, has no time zone", step=node.name
        )
    return None, moment


def _end(run: SagaRun, command: Wake) -> None:
    """Take the signal that has come, or see that the time has."""
    node, visit = command.node, command.visit
    for signal in _pending(run, node):
        payload = _payload(run, node, signal)
        if payload is not None:
            _take(run, command, signal, payload[0])
            return
    wake_at = run.own.execution.wake_at
    if wake_at is None or wake_at > run.own.now():
        run.wait_on(f"{node.name!r} still waits")
    if node.signal is not None:
        waited = command.since.result["seconds"]
        error = WaitTimeoutError(
            f"{node.name!r} has waited {waited:g} s for {node.signal.name!r}", step=node.name
        )
        run.failed(node.name, visit, error)
        return
    woken = {"by": "time", "signal_id": None, "payload": None}
    run.own.commit(CheckpointKind.WOKEN, node.name, visit, woken)


def _pending(run: SagaRun, node: WaitNode) -> list[SentSignal]:
    if node.signal is None:
        return []
    return run.store.pending_signals(run.own.execution.execution_id, node.signal.name)


def _payload(run: SagaRun, node: WaitNode, signal: SentSignal) -> tuple[Any] | None:
    """A signal's payload, or None for one that nobody can take."""
    assert node.signal is not None
    what = f"payload of signal {signal.name!r}"
    try:
        return (serde.load(signal.payload, node.signal.payload, what=what),)
    except PayloadError as problem:
        run.store.reject_signal(signal.signal_id, problem.message)
        return None


def _take(run: SagaRun, command: Wake, signal: SentSignal, payload: Any) -> None:
    node, visit = command.node, command.visit
    if node.kind is WaitKind.APPROVAL:
        assert isinstance(payload, Approval)
        if not payload.approved:
            error = ApprovalRejectedError(
                f"{payload.by} has rejected {node.name!r}: {payload.why}",
                step=node.name,
                by=payload.by,
                why=payload.why,
            )
            run.failed(node.name, visit, error, consumes=signal.signal_id)
            return
    woken = {
        "by": "signal",
        "signal_id": str(signal.signal_id),
        "payload": signal.payload,
    }
    run.own.commit(CheckpointKind.WOKEN, node.name, visit, woken, consumes=signal.signal_id)
