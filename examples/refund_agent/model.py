"""The agent's model: the real `openai` client, and a stand-in for the server at its other end.

The stand-in sees what a model would see, the request's JSON, and nothing else: it reads the order
number in the customer's words, calls the tools that it is offered, reads their results, and
decides by the shop's policy. Where the policy leaves it room, it is as fickle as a model is at a
temperature above zero: asked the same thing again, it names another amount.

Live: `REFUND_MODEL=live`, `OPENAI_API_KEY`, and if need be `OPENAI_BASE_URL`, `REFUND_MODEL_NAME`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import httpx2
from openai import OpenAI

CALLS = "calls.jsonl"
"""The stand-in's log, in the folder `REFUND_MODEL_LOG`: one line for each answer it gave."""

TIMEOUT = 60.0
TEMPERATURE = 0.7
OFFLINE = "http://offline.invalid/v1"

_ORDER = re.compile(r"\border ([A-Za-z0-9-]*[A-Za-z0-9])")


def name() -> str:
    """The model that is asked for."""
    return os.environ.get("REFUND_MODEL_NAME", "gpt-4.1-mini")


def connect() -> OpenAI:
    """The client. Offline, only its transport differs, and no socket is ever opened."""
    if os.environ.get("REFUND_MODEL") == "live":
        return OpenAI(timeout=TIMEOUT)
    log = os.environ.get("REFUND_MODEL_LOG")
    transport = OfflineTransport(Path(log) if log else None)
    http = httpx2.Client(transport=transport)
    return OpenAI(api_key="offline", base_url=OFFLINE, http_client=http, max_retries=0)


def calls_made(log: Path) -> list[dict[str, Any]]:
    """The stand-in's answers: `order`, and `again` (how often it had been asked the same)."""
    path = log / CALLS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class OfflineTransport(httpx2.BaseTransport):
    """Answers `POST .../chat/completions`.

    Args:
        log: A folder in which all processes note their answers; None to note them nowhere.
    """

    def __init__(self, log: Path | None = None) -> None:
        self._log = log
        self._asked: dict[str, int] = {}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one HTTP request as an OpenAI-compatible server would."""
        body = json.loads(request.read())
        if not request.url.path.endswith("/chat/completions"):
            return httpx2.Response(404, json={"error": {"message": "no such endpoint"}})
        messages: list[dict[str, Any]] = body["messages"]
        digest = hashlib.sha256(json.dumps(messages, sort_keys=True).encode()).hexdigest()
        again = self._note(digest, order_of(messages))
        fickle = float(body.get("temperature", 1.0)) > 0
        mood = f"{digest}:{again if fickle else 0}"
        message = answer(messages, body.get("tools") or [], mood)
        tokens = {"prompt_tokens": _tokens(messages), "completion_tokens": _tokens(message)}
        choice = {
            "index": 0,
            "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
            "message": message,
        }
        return httpx2.Response(
            200,
            json={
                "id": f"chatcmpl-{digest[:24]}",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [choice],
                "usage": {**tokens, "total_tokens": sum(tokens.values())},
            },
        )

    def _note(self, digest: str, order: str | None) -> int:
        """Note the answer; returns how often the same had been asked before."""
        if self._log is None:
            again = self._asked.get(digest, 0)
            self._asked[digest] = again + 1
            return again
        self._log.mkdir(parents=True, exist_ok=True)
        again = sum(call["digest"] == digest for call in calls_made(self._log))
        line = json.dumps({"order": order, "digest": digest, "again": again, "pid": os.getpid()})
        with (self._log / CALLS).open("a") as log:
            log.write(line + "\n")
        return again


def order_of(messages: list[dict[str, Any]]) -> str | None:
    """The order number in the customer's words."""
    for message in messages:
        found = _ORDER.search(message["content"] or "") if message["role"] == "user" else None
        if found:
            return found[1]
    return None


def answer(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]], mood: str
) -> dict[str, Any]:
    """The next message of the assistant.

    Args:
        messages: The conversation.
        tools: What may be called; found by what their names begin with.
        mood: Decides where the policy leaves room.
    """
    order_id = order_of(messages)
    if order_id is None:
        return _say("Please tell us the number of your order.")
    results = _results(messages)
    facts = results.get("look_up_order")
    if facts is None:
        return _call(tools, "look_up_order", {"order_id": order_id}, mood)
    if "error" in facts:
        return _say(f"We can't find your order {order_id}; nothing was refunded.")
    refunded = next((r for name, r in results.items() if name.startswith("refund")), None)
    if refunded is not None:
        return _say(_about(refunded))
    due = refund_due(facts["result"], mood)
    if due is None:
        return _say("By our policy, nothing was refunded.")
    wanted = {"order_id": order_id, "amount_cents": due[0], "reason": due[1]}
    return _call(tools, "refund", wanted, mood)


def _about(refunded: dict[str, Any]) -> str:
    if "error" in refunded:
        return "Nothing was refunded: our payment provider refused. A colleague will write."
    result = refunded["result"]
    dollars = result["amount_cents"] / 100
    return f"We are sorry about your order {result['order_id']}: ${dollars:.2f} was refunded."


def refund_due(order: dict[str, Any], mood: str) -> tuple[int, str] | None:
    """What the policy gives, in cents, and why."""
    total: int = order["total_cents"]
    if not order["arrived"]:
        return total, "never arrived"
    if order["condition"] == "damaged":
        return total * 40 // 100, "arrived damaged"
    if order["days_late"] > 3:
        drawn = int.from_bytes(hashlib.sha256(mood.encode()).digest()[:4], "big") / 2**32
        return int(total * (0.10 + 0.20 * drawn)), "arrived late"
    return None


def _results(messages: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last result of each tool, by its name."""
    names = {
        call["id"]: call["function"]["name"]
        for message in messages
        for call in message.get("tool_calls") or []
    }
    return {
        names[message["tool_call_id"]]: json.loads(message["content"])
        for message in messages
        if message["role"] == "tool"
    }


def _call(
    tools: list[dict[str, Any]], prefix: str, arguments: dict[str, Any], mood: str
) -> dict[str, Any]:
    for tool in tools:
        name = tool["function"]["name"]
        if name.startswith(prefix):
            call_id = "call_" + hashlib.sha256(f"{name}:{mood}".encode()).hexdigest()[:24]
            function = {"name": name, "arguments": json.dumps(arguments)}
            calls = [{"id": call_id, "type": "function", "function": function}]
            return {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}
    return _say("I can't do that myself; nothing was refunded. A colleague will write.")


def _say(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "refusal": None}


def _tokens(value: Any) -> int:
    """Roughly: four characters each."""
    return len(json.dumps(value)) // 4
