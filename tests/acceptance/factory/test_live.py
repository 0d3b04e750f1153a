"""The planner's live mode: a real HTTP server in place of the offline transport."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tasks.planner.offline import OfflineTransport
from tests.acceptance.factory.program import coordinator

KEY = "sk-a-key-that-must-not-be-shown"


class ModelServer(ThreadingHTTPServer):
    """An OpenAI-compatible server whose model follows the offline rules."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(json.loads(body))
        self.server.keys.add(self.headers["Authorization"])
        headers = {"Content-Type": "application/json"}
        request = httpx2.Request("POST", f"http://model{self.path}", headers=headers, content=body)
        answer = OfflineTransport().handle_request(request)
        data = answer.read()
        self.send_response(answer.status_code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Not to the test's output."""


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    server = ModelServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_live_model_plans_the_next_attempt(model_server: ModelServer, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{model_server.server_port}/v1"
    live = ("--live", "--model", "some-model", "--base-url", url)
    arguments = ("--embedded", *live, "--runs", tmp_path / "runs", "--json")
    done = coordinator("scenario", "term", *arguments, OPENAI_API_KEY=KEY)
    assert done.exit_code == 0, done.err + done.out
    assert model_server.keys == {f"Bearer {KEY}"}
    assert {asked["model"] for asked in model_server.asked} == {"some-model"}
    plan = done.json["attempts"][0]["plan"]
    assert plan["added_flags"] == ["--abi-compat=v2"]
    assert plan["calls"] == len(model_server.asked)
    kept = [p for p in tmp_path.rglob("*") if p.is_file() and KEY.encode() in p.read_bytes()]
    assert kept == []
    assert KEY not in done.out + done.err
