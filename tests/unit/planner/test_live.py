"""The live path against an OpenAI-compatible server on this machine."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from fencepost import NeedsPerson
from tasks.planner import PlannerUnavailableError, plan_recovery
from tasks.planner.offline import OfflineTransport

KEY = "sk-test-5f0c1e77d2"


@dataclass
class Recorded:
    """A request that the server has received."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Answer:
    """What the server sends instead of a completion."""

    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


class Server(ThreadingHTTPServer):
    """Speaks chat completions over a socket; reasons as the offline model does.

    Attributes:
        troubles: Sent first, one for each request.
        rule: Sent instead of an answer where it returns something for a request's body.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[Recorded] = []
        self.troubles: list[Answer] = []
        self.rule: Callable[[dict[str, Any]], Answer | None] = lambda body: None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(content)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(Recorded(self.path, headers, body))
        trouble = self.server.troubles.pop(0) if self.server.troubles else self.server.rule(body)
        if trouble is None:
            url = f"http://model{self.path}"
            answer = OfflineTransport().handle_request(httpx2.Request("POST", url, content=content))
            trouble = Answer(answer.status_code, json.loads(answer.content))
        payload = trouble.body if isinstance(trouble.body, str) else json.dumps(trouble.body)
        self.send_response(trouble.status)
        self.send_header("Content-Type", trouble.content_type)
        self.send_header("Content-Length", str(len(payload.encode())))
        for name, value in trouble.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Quiet."""


@pytest.fixture
def server(world, monkeypatch) -> Iterator[Server]:
    """A server, and a worker's environment that points to it."""
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("FACTORY_PLANNER", "live")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("FACTORY_PLANNER_MODEL", "acme/planner-1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server
        server.shutdown()
        thread.join()


def busy(status: int) -> Answer:
    # The client waits as long as it is told to; one millisecond keeps the test fast.
    return Answer(status, {"error": {"message": "busy"}}, {"retry-after-ms": "1"})


def test_the_base_url_the_model_and_the_key_reach_the_server(world, server):
    ctx, failure = world.failed()

    planned = plan_recovery(ctx, failure)

    assert planned.plan.added_flags == ("--abi-compat=v2",)
    assert [request.path for request in server.requests] == ["/api/v1/chat/completions"] * 2
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    assert {request.body["model"] for request in server.requests} == {"acme/planner-1"}
    form = server.requests[0].body["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["strict"] is True
    assert world.plans()[0].model == "acme/planner-1"


def test_the_key_is_in_no_log_and_no_record(world, server, caplog):
    caplog.set_level(logging.DEBUG)
    for name in ("openai", "httpx2", "httpcore2", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    server.troubles = [busy(500)]
    ctx, failure = world.failed()

    plan_recovery(ctx, failure)

    assert "chat/completions" in caplog.text or "HTTP" in caplog.text
    assert KEY not in caplog.text
    assert KEY not in "".join(str((c.request, c.answer, c.name)) for c in world.calls())
    assert KEY not in "".join(str(record.__dict__) for record in caplog.records)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_passing_troubles_are_retried(world, server, status):
    server.troubles = [busy(status), busy(status)]
    ctx, failure = world.failed()

    assert plan_recovery(ctx, failure).plan.added_flags == ("--abi-compat=v2",)
    assert len(server.requests) == 2 + 2


@pytest.mark.parametrize("status", [429, 503])
def test_retries_are_bounded(world, server, monkeypatch, status):
    monkeypatch.setenv("FACTORY_PLANNER_RETRIES", "2")
    server.rule = lambda body: busy(status)
    ctx, failure = world.failed()

    with pytest.raises(PlannerUnavailableError, match=f"answered {status}"):
        plan_recovery(ctx, failure)

    assert len(server.requests) == 3
    assert world.calls() == []


def test_the_last_try_of_the_step_leads_to_a_person(world, server, monkeypatch):
    monkeypatch.setenv("FACTORY_PLANNER_RETRIES", "0")
    server.rule = lambda body: busy(503)
    ctx, failure = world.failed()

    with pytest.raises(NeedsPerson, match="can't be reached"):
        plan_recovery(world.context(ctx.execution_id, attempt=4), failure)


def test_a_server_that_is_not_there(world, server, monkeypatch):
    monkeypatch.setenv("FACTORY_PLANNER_RETRIES", "0")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    ctx, failure = world.failed()

    with pytest.raises(PlannerUnavailableError, match=r"127\.0\.0\.1:1"):
        plan_recovery(ctx, failure)


def test_a_wrong_key_leads_to_a_person_and_is_not_repeated(world, server):
    message = f"Incorrect API key provided: {KEY}"
    server.rule = lambda body: Answer(401, {"error": {"message": message}})
    ctx, failure = world.failed()

    with pytest.raises(NeedsPerson, match="OPENAI_API_KEY") as caught:
        plan_recovery(ctx, failure)

    assert "[key]" in str(caught.value)
    error: BaseException | None = caught.value
    while error is not None:
        assert KEY not in str(error)
        assert not hasattr(error, "request")
        error = error.__cause__
    assert len(server.requests) == 1


def test_used_up_credit_is_not_retried_for_ever(world, server, monkeypatch):
    monkeypatch.setenv("FACTORY_PLANNER_RETRIES", "1")
    error = {"message": "You exceeded your current quota", "code": "insufficient_quota"}
    server.rule = lambda body: Answer(429, {"error": error}, {"retry-after-ms": "1"})
    ctx, failure = world.failed()

    with pytest.raises(NeedsPerson, match="exceeded your current quota"):
        plan_recovery(ctx, failure)


@pytest.mark.parametrize(
    ("refused", "form"),
    [({"json_schema"}, "json_object"), ({"json_schema", "json_object"}, None)],
)
@pytest.mark.parametrize("status", [400, 404, 422])
def test_servers_that_lack_structured_output_are_asked_more_simply(
    world, server, status, refused, form
):
    def rule(body):
        wanted = body.get("response_format", {}).get("type")
        error = {"error": {"message": "response_format is not supported"}}
        return Answer(status, error) if wanted in refused else None

    server.rule = rule
    ctx, failure = world.failed()

    assert plan_recovery(ctx, failure).plan.added_flags == ("--abi-compat=v2",)
    last = server.requests[-1].body
    assert last.get("response_format", {}).get("type") == form
    # What the server doesn't know is found out once, not for each request.
    assert len(server.requests) == len(refused) + 2
    assert '"added_flags"' in last["messages"][0]["content"]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, "<html>It works!</html>", content_type="text/html"),
        Answer(302, {}, {"Location": "http://127.0.0.1:1/v1/chat/completions"}),
        Answer(404, {"error": {"message": "no such model"}}),
    ],
)
def test_what_is_no_chat_completion_server_leads_to_a_person(world, server, answer):
    server.rule = lambda body: answer
    ctx, failure = world.failed()

    with pytest.raises(NeedsPerson, match="the planner can't ask its model"):
        plan_recovery(ctx, failure)

    assert len(server.requests) <= 3


@pytest.mark.parametrize("body", [{"error": {"message": "upstream failed"}}, {"choices": []}, "{"])
def test_broken_answers_are_passing_troubles(world, server, body):
    server.rule = lambda _: Answer(200, body)
    ctx, failure = world.failed()

    with pytest.raises(PlannerUnavailableError):
        plan_recovery(ctx, failure)


def test_a_server_that_counts_no_tokens(world, server):
    def rule(body):
        content = json.dumps({"root_cause": "x", "added_flags": ["--abi-compat=v2"]})
        message = {"role": "assistant", "content": content}
        return (
            Answer(200, {"choices": [{"message": message, "finish_reason": "stop", "index": 0}]})
            if body["messages"][-1]["role"] == "tool"
            else None
        )

    server.rule = rule
    ctx, failure = world.failed()

    plan_recovery(ctx, failure)

    assert all(call.tokens_in > 0 for call in world.calls() if call.kind == "model")
