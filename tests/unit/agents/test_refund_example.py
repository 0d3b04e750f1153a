"""The refund example's model, and what its report calls a broken word."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from rich.console import Console

from examples.refund_agent import demo, model, report
from examples.refund_agent.play import Cell, told_cents
from examples.refund_agent.provider import Mode
from examples.refund_agent.shop import Complaint, Order, OrderNotFound, Orders, conversation
from examples.refund_agent.windows import WINDOWS

FACTS = {"order_id": "A-1", "total_cents": 10_000, "arrived": True, "days_late": 0}
TOOLS = [{"function": {"name": name}} for name in ("look_up_order", "refund_by_key")]


def asked(text: str = "Where is my order A-1?") -> list[dict[str, Any]]:
    return conversation(Complaint(id="t", text=text, provider="dedupes"))


def with_result(messages: list[dict[str, Any]], result: dict[str, Any]) -> list[dict[str, Any]]:
    said = model.answer(messages, TOOLS, "mood")
    call_id = said["tool_calls"][0]["id"]
    shown = {"role": "tool", "tool_call_id": call_id, "content": json.dumps(result)}
    return [*messages, said, shown]


def wish(message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    function = message["tool_calls"][0]["function"]
    return function["name"], json.loads(function["arguments"])


@pytest.mark.parametrize(
    ("facts", "due"),
    [
        ({"condition": "fine"}, None),
        ({"condition": "fine", "days_late": 3}, None),
        ({"condition": "damaged"}, 4_000),
        ({"condition": "fine", "arrived": False}, 10_000),
    ],
)
def test_the_model_decides_from_the_facts(facts: dict[str, Any], due: int | None) -> None:
    messages = asked()
    assert wish(model.answer(messages, TOOLS, "m")) == ("look_up_order", {"order_id": "A-1"})
    messages = with_result(messages, {"result": FACTS | facts})
    said = model.answer(messages, TOOLS, "m")
    if due is None:
        assert told_cents(said["content"]) == 0
        return
    name, wanted = wish(said)
    assert (name, wanted["order_id"], wanted["amount_cents"]) == ("refund_by_key", "A-1", due)
    messages = with_result(messages, {"result": wanted | {"id": "re_1"}})
    assert told_cents(model.answer(messages, TOOLS, "m")["content"]) == due


def test_the_model_is_fickle_where_it_may_be() -> None:
    messages = with_result(asked(), {"result": FACTS | {"condition": "fine", "days_late": 9}})
    amounts = {wish(model.answer(messages, TOOLS, str(n)))[1]["amount_cents"] for n in range(20)}
    assert len(amounts) > 15
    assert min(amounts) >= 1_000
    assert max(amounts) <= 3_000


@pytest.mark.parametrize("error", ["look_up_order", "refund"])
def test_the_model_says_so_when_it_could_not(error: str) -> None:
    trouble = {"error": {"code": "x", "message": "y"}}
    messages = asked()
    if error == "refund":
        messages = with_result(messages, {"result": FACTS | {"condition": "damaged"}})
    messages = with_result(messages, trouble)
    assert told_cents(model.answer(messages, TOOLS, "m")["content"]) == 0


def test_a_model_without_the_order_number_asks_for_it() -> None:
    assert "number" in model.answer(asked("Where is it?"), TOOLS, "m")["content"]


def test_the_real_client_reaches_the_model_and_calls_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REFUND_MODEL_LOG", str(tmp_path))
    monkeypatch.delenv("REFUND_MODEL", raising=False)
    for _ in range(2):
        client: Any = model.connect()
        reply = client.chat.completions.create(model="m", messages=asked(), tools=[])
        assert reply.usage.total_tokens > 0
    assert [call["again"] for call in model.calls_made(tmp_path)] == [0, 1]
    assert {call["order"] for call in model.calls_made(tmp_path)} == {"A-1"}


class ModelServer(BaseHTTPRequestHandler):
    """The same model behind a socket."""

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        request = httpx2.Request("POST", f"http://x{self.path}", content=self.rfile.read(length))
        answer = model.OfflineTransport().handle_request(request)
        self.send_response(answer.status_code)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(answer.read())

    def log_message(self, *_: Any) -> None: ...


def test_live_is_any_server_that_speaks_chat_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    server = HTTPServer(("127.0.0.1", 0), ModelServer)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("REFUND_MODEL", "live")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    client: Any = model.connect()
    try:
        reply = client.chat.completions.create(model="m", messages=asked(), tools=[])
    finally:
        client.close()
        server.shutdown()
        server.server_close()
    assert reply.choices[0].finish_reason == "stop"


def test_orders_keep_to_their_folder(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "orders")
    order = Order(order_id="A-1", total_cents=5, arrived=True, days_late=0, condition="fine")
    orders.add(order)
    assert orders.find("A-1") == order
    for bad in ("A-2", "../A-1", "a/b", ""):
        with pytest.raises(OrderNotFound):
            orders.find(bad)


# -- the report ------------------------------------------------------------------------------

GOOD = Cell(
    window=WINDOWS[0].name,
    mode="blind",
    side="fencepost",
    refunds=[4_000],
    state="succeeded",
    told="$40.00 was refunded.",
    refused=[],
    model_calls=3,
    deliveries=1,
)
PARKED = replace(GOOD, state="parked", told="effect 'refund' (k) at bank: no answer; 1 call(s)")


@pytest.mark.parametrize(
    ("cell", "kept"),
    [
        (GOOD, True),
        (replace(GOOD, refunds=[4_000, 4_000], told="$80.00"), False),
        (replace(GOOD, refunds=[]), False),
        (replace(GOOD, refunds=[], told="nothing"), False),
        (replace(GOOD, told="$39.00 was refunded."), False),
        (replace(GOOD, state="failed"), False),
        (PARKED, True),
        (replace(PARKED, refunds=[]), True),
        (replace(PARKED, refunds=[1, 1]), False),
        (replace(PARKED, settled=[4_000]), True),
        (replace(PARKED, settled=[4_000, 4_000]), False),
        (replace(PARKED, refunds=[], settled=[]), False),
    ],
)
def test_what_breaks_the_word_of_fencepost(cell: Cell, kept: bool) -> None:
    assert cell.kept_its_word is kept
    out = io.StringIO()
    plain = replace(GOOD, side="plain")
    assert demo.conclude([plain, cell], Console(file=out, width=200)) is kept
    assert ("broke its word" in out.getvalue()) is not kept


def test_the_table_says_what_was_counted() -> None:
    cells = [
        replace(GOOD, side="plain", refunds=[1, 1]),
        PARKED,
        replace(GOOD, window=WINDOWS[1].name, side="plain", state="failed"),
        replace(GOOD, window=WINDOWS[1].name),
        replace(GOOD, window=WINDOWS[2].name, side="plain", told="nothing"),
    ]
    out = io.StringIO()
    console = Console(file=out, width=130)
    console.print(report.table(WINDOWS[:3], [Mode.BLIND], cells))
    report.print_legend(console, cells)
    rows = [row.strip() for row in out.getvalue().splitlines()]
    (first,) = [row for row in rows if row.startswith(WINDOWS[0].title)]
    (second,) = [row for row in rows if row.startswith(WINDOWS[1].title)]
    (third,) = [row for row in rows if row.startswith(WINDOWS[2].title)]
    assert first.split()[-3:] == ["2", "1", "parked"]
    assert second.split()[-3:] == ["1", "failed", "1"]
    assert third.split()[-2:] == ["1", "mistold"]
    assert any("effect 'refund': no answer" in row for row in rows)
