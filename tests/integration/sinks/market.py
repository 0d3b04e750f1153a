"""One saga for each sink, whose only step writes there once.

Environment: `MARKET_BROKER` is the Redis URL of the broker, `MARKET_SINKS` has the sinks' addresses
as JSON; Fencepost reads its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from celery import Celery
from pydantic import BaseModel

import fencepost
from fencepost import EffectCall, EffectKind, RetryPolicy, Saga, StepContext, effect, faults, step
from fencepost.testing.sinks import SinkUnderTest
from tests.conformance.sinks.harnesses import (
    FilesUnderTest,
    ObjectsUnderTest,
    RedisUnderTest,
    ServerUnderTest,
    SqlUnderTest,
)

OPEN: dict[str, Callable[..., SinkUnderTest]] = {
    "postgres": SqlUnderTest,
    "sqlite": SqlUnderTest,
    "redis": RedisUnderTest,
    "files": lambda folder: FilesUnderTest(Path(folder)),
    "objects": ObjectsUnderTest,
    "server": lambda database, address: ServerUnderTest(database, address=address),
}


class Order(BaseModel):
    """What is written where."""

    reference: str


def saga_for(name: str, sink: SinkUnderTest) -> Saga[Order, str]:
    """A saga that appends the reference to the resource of the same name."""

    @effect(
        kind=EffectKind.FENCED,
        sink=name,
        name=f"append-{name}",
        fence=sink,
        resource=lambda order: order.reference,
        retry=RetryPolicy(first_delay=timedelta(seconds=0.1), retry_on=(Exception,)),
    )
    def append(call: EffectCall, order: Order) -> str:
        faults.reach("sink.writing", sink=name, reference=order.reference)
        return sink.write(call, order.reference).result

    @step(name=f"write-{name}", effects=[append])
    def write(ctx: StepContext, order: Order) -> str:
        return ctx.perform(append, order)

    return Saga(f"market-{name}", input=Order).then(write)


def sagas_for(addresses: Mapping[str, list[str]]) -> dict[str, Saga[Order, str]]:
    """A saga for each address."""
    return {name: saga_for(name, OPEN[name](*where)) for name, where in addresses.items()}


def make(
    broker: str, sagas: Mapping[str, Saga[Order, str]], **settings: Any
) -> fencepost.Fencepost:
    """Fencepost on a new app."""
    app = Celery("market", broker=broker, backend=broker, set_as_current=False)
    return fencepost.install(app, sagas=sagas.values(), **settings)


if "MARKET_BROKER" in os.environ:
    market_sagas = sagas_for(json.loads(os.environ["MARKET_SINKS"]))
    app = make(os.environ["MARKET_BROKER"], market_sagas).app
