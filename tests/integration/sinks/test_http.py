"""The client's side of fenced HTTP: header fields, answers, and servers that only seem to help."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import FenceToken
from fencepost.errors import (
    ConfigurationError,
    EffectKeyConflictError,
    PayloadError,
    ServiceUnavailableError,
    StaleLeaseFenceError,
)
from fencepost.sinks import Claim, SinkBusyError, sfv
from fencepost.sinks.http import (
    HeaderError,
    HttpAnswer,
    HttpSink,
    check_answer,
    fence_headers,
    idempotency_headers,
    parse_fence,
    parse_idempotency_key,
)
from fencepost.testing.sinks import call, owner

EXECUTION = UUID("8e03978e-40d5-43e8-bc93-6894a57f9324")
TOKEN = FenceToken(EXECUTION, 2, "w1@host:ab12", f"{EXECUTION}:pay:1")

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1)


# -- header fields ----------------------------------------------------------------------------


def test_the_fields_are_structured() -> None:
    assert idempotency_headers("order:42") == {"Idempotency-Key": '"order:42"'}
    assert fence_headers(TOKEN, "order:42") == {
        "Fencing-Token": f'"{EXECUTION}";epoch=2;owner="w1@host:ab12";resource="order:42"'
        f';step="{EXECUTION}:pay:1"'
    }


def test_an_api_may_want_its_key_bare() -> None:
    bare = idempotency_headers('or"der 42\\é', structured=False)
    assert bare == {"Idempotency-Key": 'or"der 42\\%C3%A9'}


@given(NAMES.filter(lambda name: len(name) <= 255))
def test_any_name_survives_its_header(name: str) -> None:
    (key,) = idempotency_headers(name).values()
    assert key.isascii()
    assert key.isprintable()
    assert parse_idempotency_key(key) == name
    (field,) = fence_headers(TOKEN, name).values()
    assert parse_fence(field) == (TOKEN, name)


@given(st.text(max_size=60))
def test_a_field_is_read_or_refused(field: str) -> None:
    for parse in (parse_idempotency_key, parse_fence, sfv.parse_item):
        with suppress(HeaderError):
            parse(field)


@pytest.mark.parametrize(
    ("field", "value", "parameters"),
    [
        ('"a\\"b\\\\c"', 'a"b\\c', {}),
        ('"a";x;y=1;z=tok/en;x="s"', "a", {"x": "s", "y": 1, "z": "tok/en"}),
        ("*token;a=-5 ", "*token", {"a": -5}),
        ('  "a"; b=2', "a", {"b": 2}),
        ("12", 12, {}),
    ],
)
def test_items_are_read_as_the_rfc_has_them(
    field: str, value: object, parameters: dict[str, object]
) -> None:
    assert sfv.parse_item(field) == (value, parameters)


@pytest.mark.parametrize(
    "field",
    [
        "",
        '"',
        '"a',
        '"a"b',
        '"a";',
        '"a";B=1',
        '"a";b=',
        '"a" ;b=1',
        "1.5",
        '"\x07"',
        '"é"',
        '"%FF"',
    ],
)
def test_what_is_no_item_is_refused(field: str) -> None:
    with pytest.raises(HeaderError) as caught:
        sfv.parse_item(field)
    assert caught.value.code == "sink.invalid-header"


@pytest.mark.parametrize(
    "field",
    [
        f'"{EXECUTION}"',
        f'"{EXECUTION}";epoch=1;owner="o"',
        f'"{EXECUTION}";epoch=0;owner="o";resource="r"',
        f'"{EXECUTION}";epoch="1";owner="o";resource="r"',
        f'"{EXECUTION}";epoch;owner="o";resource="r"',
        f'"{EXECUTION}";epoch=1;owner=5;resource="r"',
        f'"{EXECUTION}";epoch=1;owner="o";resource=""',
        '"not-a-uuid";epoch=1;owner="o";resource="r"',
        f'"{EXECUTION}";epoch=1;owner="o";resource="r", "another"',
    ],
)
def test_a_token_that_lacks_something_is_refused(field: str) -> None:
    with pytest.raises(HeaderError):
        parse_fence(field)


@pytest.mark.parametrize("field", ["", '""', "k" * 256, '"k";a=1', '"a", "b"', '"open'])
def test_a_key_that_is_none_is_refused(field: str) -> None:
    with pytest.raises(HeaderError):
        parse_idempotency_key(field)


def test_a_bare_key_is_read_as_it_is() -> None:
    assert parse_idempotency_key(" 8e03978e-40d5%20 ") == "8e03978e-40d5%20"


def test_names_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(PayloadError):
        idempotency_headers("")
    with pytest.raises(PayloadError):
        fence_headers(TOKEN, "r" * 256)


# -- answers ----------------------------------------------------------------------------------

CALL = Claim(key="k", token=TOKEN, resource="r", digest="sha256:mine")


def problem(status: int, kind: str, **fields: Any) -> HttpAnswer:
    body = json.dumps({"type": kind, **fields}).encode()
    return HttpAnswer(status, {"content-type": "application/problem+json"}, body)


def test_what_answers_mean() -> None:
    assert check_answer(CALL, HttpAnswer(200)) is False
    assert check_answer(CALL, HttpAnswer(201, {"Idempotent-Replayed": "true"})) is True
    with pytest.raises(StaleLeaseFenceError) as stale:
        check_answer(CALL, problem(412, "fence.stale-epoch", current=5))
    assert (stale.value.held, stale.value.current) == (2, 5)
    with pytest.raises(EffectKeyConflictError) as conflict:
        check_answer(CALL, problem(422, "effect.key-conflict", recorded_digest="sha256:theirs"))
    assert conflict.value.fields["recorded_digest"] == "sha256:theirs"
    assert conflict.value.fields["digest"] == "sha256:mine"
    with pytest.raises(SinkBusyError):
        check_answer(CALL, problem(409, "sink.busy"))


def test_a_type_may_be_a_full_uri() -> None:
    with pytest.raises(StaleLeaseFenceError):
        check_answer(CALL, problem(412, "https://shop.example/problems/fence.stale-epoch"))


@pytest.mark.parametrize(
    "answer",
    [
        HttpAnswer(412),
        HttpAnswer(422, {"Content-Type": "text/html"}, b"<h1>"),
        HttpAnswer(409, {"Content-Type": "application/json"}, b"not json"),
        HttpAnswer(409, {"Content-Type": "application/json"}, b"[]"),
        problem(412, "about:blank"),
        problem(500, "oh"),
    ],
)
def test_other_errors_are_left_to_the_caller(answer: HttpAnswer) -> None:
    assert check_answer(CALL, answer) is False
    assert HttpSink("http://x").apply(CALL, lambda _headers: answer).result is answer


# -- servers ----------------------------------------------------------------------------------


@contextmanager
def server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer(self)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_address[1]}"
    finally:
        running.shutdown()
        running.server_close()


def says(status: int, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        says(200),
        says(204),
        says(204, Fencing_Epoch="1"),
        says(302, Location="/elsewhere"),
        says(404),
        says(401),
        says(500),
    ],
)
def test_only_an_answer_that_names_the_epoch_has_raised_the_fence(
    answer: Callable[[BaseHTTPRequestHandler], None],
) -> None:
    """A server that knows nothing of fences may be friendly all the same."""
    with server(answer) as url, pytest.raises(ServiceUnavailableError, match="answered"):
        HttpSink(url).advance("r", TOKEN)


def test_the_fence_is_raised_below_the_applications_own_path() -> None:
    asked: list[tuple[str, str, str | None]] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append((handler.command, handler.path, handler.headers["Authorization"]))
        says(204, Fencing_Epoch="2")(handler)

    with server(answer) as url:
        sink = HttpSink(f"{url}/api/", headers=lambda: {"Authorization": "Bearer x"})
        sink.advance("r", TOKEN)
    assert asked == [("POST", "/api/.well-known/fencepost/fence", "Bearer x")]


def test_a_server_that_is_away_is_unavailable() -> None:
    with server(says(204)) as url:
        pass
    with pytest.raises(ServiceUnavailableError, match="doesn't answer"):
        HttpSink(url).advance("r", TOKEN)


def test_only_http_is_spoken() -> None:
    for url in ("file:///etc", "shop.example", "ftp://x"):
        with pytest.raises(ConfigurationError):
            HttpSink(url)


def test_the_callers_own_errors_pass() -> None:
    def write(_headers: dict[str, str]) -> HttpAnswer:
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError):
        HttpSink("http://x").apply(call("r", owner(1)), write)
