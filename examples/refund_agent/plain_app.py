"""The same agent on Celery alone: `celery -A examples.refund_agent.plain_app worker`.

Built as Celery's documentation advises for work that must not get lost, and as carefully as it
can be without a store of its own beside Celery:

- late acks, and a task whose worker process is lost is given back (`task_reject_on_worker_lost`);
- a copy of a task that has succeeded isn't run again (`worker_deduplicate_successful_tasks`);
- errors that may pass are retried with back-off;
- the task's id, which all its copies and retries share, is the idempotency key where the provider
  knows keys, and the reference where it can be asked: there the refund is looked for first;
- where the provider offers nothing, a refund whose outcome is unknown is not retried: the task
  fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from celery import Celery
from pydantic import ValidationError

from examples.refund_agent import environment, model
from examples.refund_agent.payments import (
    PaymentRefused,
    PaymentUnclear,
    Refunded,
    RefundRequest,
)
from examples.refund_agent.shop import Complaint, Order, OrderNotFound, OrderQuery, conversation

MAX_TURNS = 16

app = Celery(
    "plain-refund-agent",
    broker=environment.broker(),
    backend=environment.broker(),
    set_as_current=False,
)
app.conf.update(
    broker_transport_options=environment.broker_options(),
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_deduplicate_successful_tasks=True,
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=True,
    task_track_started=True,
    broker_connection_retry_on_startup=True,
)
client = model.connect()


class MayPass(Exception):
    """Worth a retry."""


class OutcomeUnknown(Exception):
    """The money may have moved, and the provider can't tell."""


def look_up_order(query: OrderQuery, _task_id: str, _provider: str) -> Order:
    """What the shop knows about an order."""
    return environment.orders().find(query.order_id)


def refund(request: RefundRequest, task_id: str, provider: str) -> Refunded:
    """Refund an order, in part or in full."""
    payments = environment.payments(provider)
    try:
        match provider:
            case "dedupes" | "fences":
                return payments.refund(request, key=task_id)
            case "queryable":
                found = payments.find(task_id)
                return found or payments.refund(request, reference=task_id)
            case _:
                return payments.refund(request, reference=task_id)
    except (PaymentUnclear, OSError) as problem:
        if provider == "blind":
            raise OutcomeUnknown(str(problem)) from problem
        raise MayPass(str(problem)) from problem


Tool = tuple[type[Any], Callable[[Any, str, str], Any]]
TOOLS: dict[str, Tool] = {
    "look_up_order": (OrderQuery, look_up_order),
    "refund": (RefundRequest, refund),
}
DEFINITIONS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": function.__doc__,
            "parameters": arguments.model_json_schema(),
        },
    }
    for name, (arguments, function) in TOOLS.items()
]


@app.task(
    bind=True,
    name="handle_complaint",
    autoretry_for=(MayPass,),
    retry_backoff=1,
    retry_backoff_max=8,
    max_retries=8,
)
def handle_complaint(self: Any, complaint: dict[str, Any]) -> str:
    """Let the agent decide and act; returns what the customer is told."""
    wanted = Complaint.model_validate(complaint)
    messages = conversation(wanted)
    for _ in range(MAX_TURNS):
        reply = client.chat.completions.create(
            model=model.name(),
            messages=messages,  # type: ignore[arg-type] # dictionaries, as they come from JSON
            tools=DEFINITIONS,  # type: ignore[arg-type]
            temperature=model.TEMPERATURE,
        )
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            assert call.type == "function"
            content = use(call.function.name, call.function.arguments, self.request.id, wanted)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    raise RuntimeError(f"the model still calls tools after {MAX_TURNS} turns")


def use(name: str, arguments: str, task_id: str, complaint: Complaint) -> str:
    """Run a tool; what the model got wrong and what the provider refused is told to the model."""
    if name not in TOOLS:
        return json.dumps({"error": {"code": "unknown-tool", "message": name}})
    kind, function = TOOLS[name]
    try:
        value = kind.model_validate_json(arguments)
        result = function(value, task_id, complaint.provider)
    except (ValidationError, OrderNotFound, PaymentRefused) as problem:
        return json.dumps({"error": {"code": type(problem).__name__, "message": str(problem)}})
    return json.dumps({"result": result.model_dump(mode="json")})
