"""A model that decides, behind the real client, and a bank that counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx2
from openai import OpenAI
from pydantic import BaseModel, Field

from fencepost import (
    Effect,
    EffectCall,
    EffectKind,
    FenceToken,
    Landed,
    NotLanded,
    StaleLeaseFenceError,
    effect,
    step,
    task,
)
from fencepost.agents import MODEL_RETRIES, AgentResult, Tools, model_step, run_agent
from fencepost.durable import DurableTask, TaskContext
from fencepost.retry import RetryPolicy

Messages = list[dict[str, Any]]
Brain = Callable[[Messages, list[dict[str, Any]]], dict[str, Any] | httpx2.Response]


class Model(httpx2.BaseTransport):
    """Answers as `brain` decides, and counts.

    Attributes:
        asked: The conversations that were answered.
    """

    def __init__(self, brain: Brain) -> None:
        self.brain = brain
        self.asked: list[Messages] = []
        self.client = OpenAI(
            api_key="none",
            base_url="http://model.invalid/v1",
            http_client=httpx2.Client(transport=self),
            max_retries=0,
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.read())
        self.asked.append(body["messages"])
        message = self.brain(body["messages"], body.get("tools", []))
        if isinstance(message, httpx2.Response):
            return message
        return completion(message)


def completion(message: dict[str, Any] | None) -> httpx2.Response:
    said = [] if message is None else [{"role": "assistant", **message}]
    choices = [{"index": 0, "finish_reason": "stop", "message": one} for one in said]
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    common = {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
    # With escapes, as some servers write halves of characters.
    text = json.dumps({**common, "choices": choices, "usage": usage})
    return httpx2.Response(200, text=text, headers={"content-type": "application/json"})


def calling(*calls: tuple[str, dict[str, Any] | str]) -> dict[str, Any]:
    """A message that calls tools."""
    return {
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": given if isinstance(given, str) else json.dumps(given),
                },
            }
            for number, (name, given) in enumerate(calls, 1)
        ],
    }


def saying(text: str) -> dict[str, Any]:
    return {"content": text}


def shown(messages: Messages) -> list[dict[str, Any]]:
    """Results of tools, as the model sees them."""
    return [json.loads(m["content"]) for m in messages if m["role"] == "tool"]


class OrderQuery(BaseModel):
    order_id: str


class Order(BaseModel):
    order_id: str
    paid_cents: int


class RefundRequest(BaseModel):
    order_id: str
    cents: int = Field(gt=0)


class Receipt(BaseModel):
    number: int
    cents: int


class Declined(Exception):
    pass


class Bank:
    """Keeps to what each kind of effect asks of its sink, and no more.

    Attributes:
        booked: Amounts, in the order of their landing.
    """

    def __init__(self) -> None:
        self.booked: list[int] = []
        self.calls: Counter[str] = Counter()
        self._keys: dict[str, Receipt] = {}
        self._marks: dict[tuple[str, str], int] = {}

    def book(self, cents: int) -> Receipt:
        if cents > 10_000:
            raise Declined("more than was paid")
        self.booked.append(cents)
        return Receipt(number=len(self.booked), cents=cents)

    def once(self, call: EffectCall, cents: int) -> Receipt:
        self.calls[call.key] += 1
        if call.key not in self._keys:
            self._keys[call.key] = self.book(cents)
        return self._keys[call.key]

    def advance(self, resource: str, token: FenceToken) -> None:
        mark = (resource, str(token.execution_id))
        current = self._marks.get(mark, 0)
        if token.epoch < current:
            raise StaleLeaseFenceError(token.execution_id, held=token.epoch, current=current)
        self._marks[mark] = token.epoch

    def find(self, call: EffectCall, _request: RefundRequest) -> Landed[Receipt] | NotLanded:
        found = self._keys.get(call.key)
        return NotLanded() if found is None else Landed(found)

    def unkeyed(self, call: EffectCall, cents: int) -> Receipt:
        receipt = self._keys[call.key] = self.book(cents)
        return receipt


def refund_at(bank: Bank, kind: EffectKind) -> Effect[RefundRequest, Receipt]:
    """The refund tool for a bank of this kind."""
    options: dict[EffectKind, dict[str, Any]] = {
        EffectKind.FENCED: {"fence": bank},
        EffectKind.RECONCILABLE: {"probe": bank.find},
    }
    keyed = kind in (EffectKind.FENCED, EffectKind.IDEMPOTENT)

    @effect(kind=kind, sink="bank", name="refund", refused=(Declined,), **options.get(kind, {}))
    def refund(call: EffectCall, request: RefundRequest) -> Receipt:
        """Refund an order."""
        if kind is EffectKind.FENCED:
            bank.advance(call.resource, call.token)
        return bank.once(call, request.cents) if keyed else bank.unkeyed(call, request.cents)

    return refund


class Agent:
    """A durable task that runs an agent over a model and a bank.

    Attributes:
        looked_up: Order numbers, one for each time that the step ran.
    """

    def __init__(
        self,
        brain: Brain,
        *,
        kind: EffectKind = EffectKind.IDEMPOTENT,
        keys: dict[str, Callable[[Any], str]] | None = None,
        retry: RetryPolicy | None = None,
        max_turns: int = 8,
        bank: Bank | None = None,
    ) -> None:
        self.model, self.bank, self.looked_up = Model(brain), bank or Bank(), list[str]()

        @step
        def look_up_order(query: OrderQuery) -> Order:
            """What is known about an order."""
            self.looked_up.append(query.order_id)
            if query.order_id == "none":
                raise LookupError("no such order")
            return Order(order_id=query.order_id, paid_cents=2_000)

        refund = refund_at(self.bank, kind)
        self.tools = Tools(look_up_order, refund, keys=keys)
        ask = model_step(
            self.model.client, model="m", tools=self.tools, retry=retry or MODEL_RETRIES
        )

        @task(name="agent", effects=(refund,))
        def agent(ctx: TaskContext, words: str) -> AgentResult:
            opening = [{"role": "user", "content": words}]
            return run_agent(ctx, ask, self.tools, opening, max_turns=max_turns)

        self.task: DurableTask[str, AgentResult] = agent


def careful(messages: Messages, _tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Looks the order up, refunds a quarter, and says so."""
    results = [one["result"] for one in shown(messages)]
    order_id = messages[0]["content"].split()[-1]
    if not results:
        return calling(("look_up_order", {"order_id": order_id}))
    if len(results) == 1:
        cents = results[0]["paid_cents"] // 4
        return calling(("refund", {"order_id": order_id, "cents": cents}))
    return saying(f"refunded {results[1]['cents']}")
