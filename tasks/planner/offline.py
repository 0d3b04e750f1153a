"""A deterministic model behind the real client: an HTTP transport that speaks chat completions.

It sees what a model at the other end of a network would see, the request's JSON, and nothing
else. It first asks for the diagnostics with the tool that it is offered, then answers with
what `deduction` makes of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import httpx2

from tasks.planner.deduction import Deduction, deduce
from tasks.planner.tokens import count_tokens

_TASK = re.compile(r"```json\n(.*?)\n```", re.DOTALL)
_DIAGNOSTICS = re.compile(
    r"-----BEGIN DIAGNOSTICS (?P<mark>[0-9a-f]+)-----\n(?P<text>.*)\n"
    r"-----END DIAGNOSTICS (?P=mark)-----",
    re.DOTALL,
)


class OfflineTransport(httpx2.BaseTransport):
    """Answers `POST .../chat/completions` without a network; everything else is a 404."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one HTTP request as an OpenAI-compatible server would."""
        if request.method != "POST" or not request.url.path.endswith("/chat/completions"):
            return _problem(404, f"no such endpoint: {request.method} {request.url.path}")
        try:
            body = json.loads(request.read())
            messages: list[dict[str, Any]] = body["messages"]
            message = _answer(messages, body.get("tools") or [])
        except (ValueError, KeyError, TypeError) as problem:
            return _problem(400, f"not a chat completion request: {problem}")
        prompt, completion = count_tokens(messages), count_tokens(message)
        return httpx2.Response(
            200,
            json={
                "id": "chatcmpl-offline-" + hashlib.sha256(request.content).hexdigest()[:24],
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
                        "logprobs": None,
                        "message": message,
                    }
                ],
                "usage": {
                    "prompt_tokens": prompt,
                    "completion_tokens": completion,
                    "total_tokens": prompt + completion,
                },
            },
        )


def _answer(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    task = _task(messages)
    shown = [m["content"] for m in messages if m["role"] == "tool"]
    if not shown and tools:
        return _call(tools[0]["function"], task)
    found = _DIAGNOSTICS.search(shown[-1]) if shown else None
    text = found["text"] if found else ""
    deduced = deduce(text, allowed=task["allowed_flags"], current=task["current_flags"])
    plan = {
        "root_cause": _root_cause(text, deduced),
        "explanation": _explanation(deduced),
        "added_flags": list(deduced.added),
        "removed_flags": list(deduced.removed),
        "confidence": 0.9 if deduced.added else 0.1,
    }
    return {"role": "assistant", "content": json.dumps(plan), "refusal": None}


def _root_cause(text: str, deduced: Deduction) -> str:
    if deduced.evidence:
        return " / ".join(dict.fromkeys(deduced.evidence))[:1000]
    last = text.strip().rpartition("\n")[2]
    return f"Unknown; the diagnostics end with: {last[:500]}" if last else "No diagnostics"


def _explanation(deduced: Deduction) -> str:
    if not deduced.added:
        return "Nothing in the diagnostics calls for a flag that is allowed and not set yet."
    return f"Built with {' '.join(deduced.added)}, the modules meet what the diagnostics ask for."


def _call(function: dict[str, Any], task: dict[str, Any]) -> dict[str, Any]:
    wanted = function["parameters"]["properties"]
    arguments = json.dumps({name: task[name] for name in wanted})
    call_id = "call_" + hashlib.sha256(arguments.encode()).hexdigest()[:24]
    return {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": function["name"], "arguments": arguments},
            }
        ],
    }


def _task(messages: list[dict[str, Any]]) -> dict[str, Any]:
    for message in messages:
        found = _TASK.search(message["content"] or "") if message["role"] == "user" else None
        if found:
            task: dict[str, Any] = json.loads(found[1])
            return task
    raise ValueError("no message of the user holds the task as JSON")


def _problem(status: int, message: str) -> httpx2.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return httpx2.Response(status, json={"error": error})
