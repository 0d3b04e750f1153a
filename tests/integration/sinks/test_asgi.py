"""The ASGI middleware: what a server answers, what it keeps, and what it can't promise."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from fencepost import FenceToken
from fencepost.errors import StaleLeaseFenceError
from fencepost.sinks.asgi import App, FenceMiddleware, Message, Receive, Scope, Send
from fencepost.sinks.asgi_store import scoped
from fencepost.sinks.http import (
    FENCE_PATH,
    HttpAnswer,
    HttpSink,
    fence_headers,
    idempotency_headers,
)
from fencepost.sinks.sql import SqlSink
from fencepost.sinks.tables import applied, fences
from fencepost.testing.sinks import call, owner, successor
from tests.conformance.sinks import api
from tests.conformance.sinks.harnesses import append, landed_in, prepare

WRITES = "/things/r"


@pytest.fixture(params=["postgres", "sqlite"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    prepare(found)
    return found


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[sa.Engine]:
    prepare(postgres_url)
    engine = sa.create_engine(postgres_url)
    yield engine
    engine.dispose()


@dataclass
class Handler:
    """An application that appends its path's end, and counts."""

    status: int = 201
    body: bytes = b"made"
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    runs: int = 0
    inside: Callable[[Scope], None] = lambda _scope: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.runs += 1
        await api.read_body(receive)
        if session := scope.get("fencepost.session"):
            await asyncio.to_thread(append, session, "r", f"run {self.runs}")
        await asyncio.to_thread(self.inside, scope)
        start = {"type": "http.response.start", "status": self.status, "headers": self.headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body})


def ask(
    app: App,
    headers: dict[str, str],
    *,
    body: bytes = b"",
    method: str = "POST",
    path: str = WRITES,
) -> HttpAnswer:
    return asyncio.run(api.request(app, method, path, headers, body))


def kind_of(answer: HttpAnswer) -> tuple[int, str]:
    assert answer.header("content-type") == "application/problem+json"
    document = json.loads(answer.body)
    assert document["status"] == answer.status
    assert document["detail"]
    return answer.status, document["type"]


def count(engine: sa.Engine, table: sa.Table) -> int:
    with engine.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


KEY = idempotency_headers("k1")


# -- keys -------------------------------------------------------------------------------------


def test_a_replay_gets_the_first_answer(engine: sa.Engine) -> None:
    handler = Handler(
        status=202,
        body=bytes(range(256)),
        headers=[(b"X-Kind", b"caf\xe9"), (b"Set-Cookie", b"secret"), (b"Date", b"now")],
    )
    app = FenceMiddleware(handler, engine)
    first = ask(app, KEY, body=b"{}")
    assert first.header("set-cookie") == "secret"
    again = ask(app, KEY, body=b"{}")
    assert (again.status, again.body) == (202, bytes(range(256)))
    assert again.headers == {"X-Kind": "caf\xe9", "idempotent-replayed": "true"}
    assert handler.runs == 1
    assert landed_in(engine, "r") == ["run 1"]


@pytest.mark.parametrize(
    "other",
    [
        {"body": b"2"},
        {"path": "/things/other"},
        {"path": f"{WRITES}?x=1"},
        {"method": "PUT"},
    ],
)
def test_a_key_with_another_request_is_a_conflict(engine: sa.Engine, other: dict[str, Any]) -> None:
    handler = Handler()
    app = FenceMiddleware(handler, engine)
    ask(app, KEY, body=b"1")
    assert kind_of(ask(app, KEY, **{"body": b"1", **other})) == (422, "effect.key-conflict")
    assert handler.runs == 1


@pytest.mark.parametrize("same_process", [True, False])
def test_a_key_that_is_under_way_is_a_conflict_for_now(url: str, same_process: bool) -> None:
    engine = sa.create_engine(
        url, **({"connect_args": {"timeout": 0.2}} if "sqlite" in url else {})
    )
    handler = Handler()
    app = FenceMiddleware(handler, engine)
    another = FenceMiddleware(handler, engine, wait=timedelta(milliseconds=50))
    meanwhile: list[HttpAnswer] = []

    def ask_again(_scope: Scope) -> None:
        handler.inside = lambda _scope: None
        if same_process:
            loop_free = asyncio.run_coroutine_threadsafe(
                api.request(app, "POST", WRITES, KEY, b""), loops[0]
            )
            meanwhile.append(loop_free.result(30))
        else:
            meanwhile.append(ask(another, KEY))

    handler.inside = ask_again
    loops: list[asyncio.AbstractEventLoop] = []

    async def first() -> HttpAnswer:
        loops.append(asyncio.get_running_loop())
        return await api.request(app, "POST", WRITES, KEY, b"")

    assert asyncio.run(first()).status == 201
    (answer,) = meanwhile
    assert kind_of(answer) == (409, "sink.busy")
    assert answer.header("retry-after") == "1"
    # And then it isn't any more.
    assert ask(another, KEY).header("idempotent-replayed") == "true"
    assert handler.runs == 1
    engine.dispose()


@pytest.mark.parametrize("status", [400, 402, 404, 429, 500, 503])
def test_an_answer_that_is_not_final_is_rolled_back_and_not_kept(
    engine: sa.Engine, status: int
) -> None:
    handler = Handler(status=status)
    app = FenceMiddleware(handler, engine)
    assert ask(app, KEY).status == status
    assert (landed_in(engine, "r"), count(engine, applied)) == ([], 0)
    handler.status = 201
    assert ask(app, KEY).status == 201
    assert landed_in(engine, "r") == ["run 2"]


def test_what_is_final_is_for_the_application_to_say(engine: sa.Engine) -> None:
    handler = Handler(status=402, body=b"declined")
    app = FenceMiddleware(handler, engine, keep=lambda status: status < 500)
    ask(app, KEY)
    again = ask(app, KEY)
    assert (again.status, again.body) == (402, b"declined")
    assert handler.runs == 1


def test_tenants_do_not_see_each_other(engine: sa.Engine) -> None:
    handler = Handler()
    app = FenceMiddleware(
        handler, engine, tenant=lambda s: dict(s["headers"]).get(b"x-tenant", b"").decode()
    )
    zombie = owner(1)
    token = fence_headers(successor(zombie), "r")
    for tenant in ("a", "a/b", "b"):
        assert ask(app, {**KEY, **token, "X-Tenant": tenant}).header("idempotent-replayed") is None
    assert ask(app, {**KEY, **token, "X-Tenant": "b"}).header("idempotent-replayed") == "true"
    other = {**idempotency_headers("k2"), **fence_headers(zombie, "r")}
    assert ask(app, {**other, "X-Tenant": "b"}).status == 412
    assert ask(app, {**other, "X-Tenant": "c"}).status == 201


# -- fences -----------------------------------------------------------------------------------


def test_a_stale_token_is_refused_and_on_record(engine: sa.Engine) -> None:
    handler = Handler()
    app = FenceMiddleware(handler, engine)
    zombie = owner(1)
    new = successor(zombie)
    raised = ask(app, fence_headers(new, "r"), path=FENCE_PATH)
    assert (raised.status, raised.header("fencing-epoch"), raised.body) == (204, "2", b"")
    late = ask(app, {**KEY, **fence_headers(zombie, "r")})
    assert kind_of(late) == (412, "fence.stale-epoch")
    document = json.loads(late.body)
    assert (document["held"], document["current"]) == (1, 2)
    assert handler.runs == 0
    (refusal,) = SqlSink(engine).refusals(scoped("", "r"))
    assert (refusal.held, refusal.current, refusal.key) == (1, 2, "k1")
    assert refusal.digest is not None
    assert kind_of(ask(app, fence_headers(zombie, "r"), path=FENCE_PATH))[0] == 412


def test_a_fence_without_a_key_is_checked_and_nothing_is_repeated(engine: sa.Engine) -> None:
    handler = Handler()
    app = FenceMiddleware(handler, engine)
    mine = owner(1)
    for _ in range(2):
        assert ask(app, fence_headers(mine, "r")).status == 201
    assert landed_in(engine, "r") == ["run 1", "run 2"]


def test_the_application_is_told_what_was_checked(engine: sa.Engine) -> None:
    seen: dict[str, Any] = {}
    handler = Handler(inside=seen.update)
    mine = owner(3)
    ask(FenceMiddleware(handler, engine), {**KEY, **fence_headers(mine, "order:7")})
    assert seen["fencepost.key"] == "k1"
    assert seen["fencepost.token"] == mine
    assert seen["fencepost.resource"] == "order:7"
    assert seen["extensions"] == {}


def test_an_application_may_live_below_a_path(engine: sa.Engine) -> None:
    app = FenceMiddleware(Handler(), engine)

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "root_path": "/api"}, receive, send)

    assert ask(mounted, fence_headers(owner(1), "r"), path=f"/api{FENCE_PATH}").status == 204


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_the_fence_is_raised_by_post_only(engine: sa.Engine, method: str) -> None:
    answer = ask(FenceMiddleware(Handler(), engine), {}, method=method, path=FENCE_PATH)
    assert kind_of(answer) == (405, "sink.method")
    assert answer.header("allow") == "POST"


# -- bad requests -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Idempotency-Key": '"open'},
        {"Idempotency-Key": '"a", "b"'},
        {"Idempotency-Key": ""},
        {"Idempotency-Key": "k" * 256},
        {"Fencing-Token": "nonsense"},
    ],
)
def test_bad_headers_are_refused_before_anything_runs(
    engine: sa.Engine, headers: dict[str, str]
) -> None:
    handler = Handler()
    app = FenceMiddleware(handler, engine)
    assert kind_of(ask(app, headers)) == (400, "sink.invalid-header")
    assert handler.runs == 0


def test_raising_the_fence_needs_a_token(engine: sa.Engine) -> None:
    answer = ask(FenceMiddleware(Handler(), engine), {}, path=FENCE_PATH)
    assert kind_of(answer) == (400, "sink.invalid-header")


def test_headers_can_be_required(engine: sa.Engine) -> None:
    handler = Handler()
    app = FenceMiddleware(handler, engine, require_key=True, require_fence=True)
    token = fence_headers(owner(1), "r")
    for headers in ({}, KEY, token):
        assert kind_of(ask(app, headers)) == (400, "sink.header-required")
    assert ask(app, KEY | token).status == 201
    assert ask(app, {}, method="GET").status == 201  # not guarded


def test_bodies_are_limited(engine: sa.Engine) -> None:
    handler = Handler()
    app = FenceMiddleware(handler, engine, body_limit=10)
    assert kind_of(ask(app, KEY, body=b"x" * 11)) == (413, "sink.body-too-large")
    announced = {**KEY, "Content-Length": "1000000"}
    assert kind_of(ask(app, announced)) == (413, "sink.body-too-large")
    assert handler.runs == 0
    assert ask(app, KEY, body=b"x" * 10).status == 201


def test_an_answer_too_large_to_be_kept_is_rolled_back(engine: sa.Engine) -> None:
    handler = Handler(body=b"x" * 11)
    app = FenceMiddleware(handler, engine, response_limit=10)
    assert kind_of(ask(app, KEY)) == (500, "sink.response-too-large")
    assert (landed_in(engine, "r"), count(engine, applied)) == ([], 0)
    handler.body = b"x" * 10
    assert ask(app, KEY).status == 201


def test_what_is_not_guarded_passes_untouched(engine: sa.Engine) -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        seen.append(scope)
        if scope["type"] == "http":
            await api.answer(send, 200, b"ok")

    guarded = FenceMiddleware(app, engine)

    async def nothing() -> Message:
        raise AssertionError("the body was read")

    async def ignore(_message: Message) -> None:
        pass

    for scope in (
        {"type": "lifespan"},
        {"type": "websocket", "path": "/", "headers": []},
        {"type": "http", "method": "POST", "path": "/", "headers": []},
        {"type": "http", "method": "GET", "path": "/", "headers": [(b"idempotency-key", b"k")]},
    ):
        asyncio.run(guarded(scope, nothing, ignore))
        assert seen.pop() is scope


# -- when something breaks --------------------------------------------------------------------


def test_a_handler_that_raises_leaves_nothing(engine: sa.Engine) -> None:
    def fails(_scope: Scope) -> None:
        raise ValueError("no")

    handler = Handler(inside=fails)
    app = FenceMiddleware(handler, engine)
    with pytest.raises(ValueError, match="no"):
        ask(app, KEY | fence_headers(owner(1), "r"))
    assert landed_in(engine, "r") == []
    assert (count(engine, applied), count(engine, fences)) == (0, 0)
    handler.inside = lambda _scope: None
    assert ask(app, KEY).status == 201


def test_a_handler_that_never_answers_leaves_nothing(engine: sa.Engine) -> None:
    async def silent(scope: Scope, _receive: Receive, send: Send) -> None:
        append(scope["fencepost.session"], "r", "half")
        await send({"type": "http.response.start", "status": 201, "headers": []})

    with suppress(ValueError):
        ask(FenceMiddleware(silent, engine), KEY)
    assert (landed_in(engine, "r"), count(engine, applied)) == ([], 0)


def test_a_request_that_is_cancelled_leaves_nothing(engine: sa.Engine) -> None:
    async def hangs(scope: Scope, _receive: Receive, _send: Send) -> None:
        append(scope["fencepost.session"], "r", "half")
        reached.set()
        await asyncio.Event().wait()

    reached = asyncio.Event()
    app = FenceMiddleware(hangs, engine)

    async def cancelled() -> None:
        request = asyncio.ensure_future(api.request(app, "POST", WRITES, KEY, b""))
        await reached.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    asyncio.run(cancelled())
    assert landed_in(engine, "r") == []
    assert ask(FenceMiddleware(Handler(), engine), KEY).status == 201


def test_a_client_that_goes_away_before_its_body_came_is_not_served(engine: sa.Engine) -> None:
    handler = Handler()

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def ignore(_message: Message) -> None:
        raise AssertionError("nobody is there")

    headers = [(name.lower().encode(), value.encode()) for name, value in KEY.items()]
    scope = {"type": "http", "method": "POST", "path": WRITES, "headers": headers}
    asyncio.run(FenceMiddleware(handler, engine)(scope, gone, ignore))
    assert handler.runs == 0


def test_an_answer_that_could_not_be_delivered_is_kept(engine: sa.Engine) -> None:
    """This is what keys are for."""
    handler = Handler()
    app = FenceMiddleware(handler, engine)

    async def lost(scope: Scope, receive: Receive, _send: Send) -> None:
        async def send(_message: Message) -> None:
            raise ConnectionResetError("the client has gone")

        await app(scope, receive, send)

    with pytest.raises(ConnectionResetError):
        ask(lost, KEY)
    assert landed_in(engine, "r") == ["run 1"]
    assert ask(app, KEY).header("idempotent-replayed") == "true"


def test_work_after_the_answer_is_not_waited_for(engine: sa.Engine) -> None:
    """As in Starlette's background tasks: the answer has been committed and sent by then."""
    order: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await api.app(scope, receive, send)
        order.append(f"background, and {landed_in(engine, 'r')} has landed")
        raise ValueError("too late to matter")

    with pytest.raises(ValueError, match="too late"):
        ask(FenceMiddleware(app, engine), KEY, body=b"a")
    assert order == ["background, and ['a'] has landed"]
    assert ask(FenceMiddleware(app, engine), KEY, body=b"a").body == b"a"


def test_a_database_that_is_away_is_no_answer(tmp_path: Any) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'without-tables.sqlite3'}")
    answer = ask(FenceMiddleware(Handler(), engine), KEY)
    assert kind_of(answer) == (503, "service.unavailable")
    assert answer.header("retry-after") == "1"
    assert "sqlite" not in answer.body.decode()  # nothing of the inside


def test_a_commit_that_fails_is_no_answer(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_session: Any) -> None:
        raise sa.exc.OperationalError("COMMIT", {}, Exception("connection lost"))

    handler = Handler()
    app = FenceMiddleware(handler, engine)
    with monkeypatch.context() as patched:
        patched.setattr("fencepost.sinks.sql.SinkSession.land", fails)
        assert kind_of(ask(app, KEY)) == (503, "service.unavailable")
    assert landed_in(engine, "r") == []
    assert ask(app, KEY).status == 201


# -- the limit: a handler that writes elsewhere ------------------------------------------------


@dataclass
class WritesElsewhere:
    """Commits by a connection of its own, and is perhaps lost then."""

    engine: sa.Engine
    lost: bool = False
    after: Callable[[], None] = lambda: None

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        body = await api.read_body(receive)

        def write() -> None:
            with self.engine.begin() as connection:
                append(connection, "r", body.decode())

        await asyncio.to_thread(self.after)
        await asyncio.to_thread(write)
        if self.lost:
            raise ConnectionError("the server is lost here")
        await api.answer(send, 201, body)


def test_a_handler_that_writes_elsewhere_is_deduplicated_while_all_goes_well(
    postgres: sa.Engine,
) -> None:
    app = FenceMiddleware(WritesElsewhere(postgres), postgres)
    for _ in range(2):
        assert ask(app, KEY, body=b"a").status == 201
    assert landed_in(postgres, "r") == ["a"]


def test_a_handler_that_writes_elsewhere_is_repeated_where_the_server_is_lost_in_between(
    postgres: sa.Engine,
) -> None:
    """The window that only the request's session closes."""
    handler = WritesElsewhere(postgres, lost=True)
    app = FenceMiddleware(handler, postgres)
    with pytest.raises(ConnectionError):
        ask(app, KEY, body=b"a")
    handler.lost = False
    ask(app, KEY, body=b"a")
    assert landed_in(postgres, "r") == ["a", "a"]


def test_while_a_handler_writes_elsewhere_the_fence_waits_for_it(postgres: sa.Engine) -> None:
    """So that what it writes isn't late, as long as the request's transaction lives."""
    zombie = owner(1)
    handler = WritesElsewhere(postgres)
    app = FenceMiddleware(handler, postgres)
    raising = FenceMiddleware(handler, postgres, wait=timedelta(milliseconds=50))
    answers: list[HttpAnswer] = []

    def take_over() -> None:
        answers.append(ask(raising, fence_headers(successor(zombie), "r"), path=FENCE_PATH))

    handler.after = take_over
    assert ask(app, KEY | fence_headers(zombie, "r"), body=b"a").status == 201
    assert kind_of(answers[0]) == (409, "sink.busy")
    handler.after = lambda: None
    take_over()
    assert answers[1].status == 204
    assert ask(app, idempotency_headers("k2") | fence_headers(zombie, "r")).status == 412


@pytest.mark.parametrize("joins", [True, False])
def test_a_server_frozen_for_too_long_loses_its_transaction(
    postgres: sa.Engine, joins: bool
) -> None:
    """PostgreSQL ends it, and the fence can be raised. Only what is in it is then kept out."""
    zombie = owner(1)
    raising = FenceMiddleware(Handler(), postgres, wait=timedelta(milliseconds=20))

    def frozen_until_taken_over() -> None:
        while True:
            headers = fence_headers(successor(zombie), "r")
            if ask(raising, headers, path=FENCE_PATH).status == 204:
                return

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if joins:
            append(scope["fencepost.session"], "r", "late")
            await asyncio.to_thread(frozen_until_taken_over)
            await api.answer(send, 201, b"late")
        else:
            writes = WritesElsewhere(postgres, after=frozen_until_taken_over)
            await writes(scope, receive, send)

    guarded = FenceMiddleware(app, postgres, idle=timedelta(milliseconds=200))
    answer = ask(guarded, KEY | fence_headers(zombie, "r"), body=b"late")
    # Not even the writer that got through is told that all is well.
    assert kind_of(answer) == (503, "service.unavailable")
    assert landed_in(postgres, "r") == ([] if joins else ["late"])


# -- both sides -------------------------------------------------------------------------------


def test_client_and_server_understand_each_other(engine: sa.Engine) -> None:
    app = FenceMiddleware(Handler(), engine)

    def send(method: str, url: str, headers: Any, body: bytes) -> HttpAnswer:
        return ask(app, dict(headers), body=body, method=method, path=url.removeprefix("http://s"))

    sink = HttpSink("http://s", send=send)
    zombie: FenceToken = owner(1)
    write: Callable[[dict[str, str]], HttpAnswer] = lambda headers: send(  # noqa: E731
        "POST", f"http://s{WRITES}", headers, b""
    )
    assert not sink.apply(call("r", zombie), write).replayed
    sink.advance("r", successor(zombie))
    with pytest.raises(StaleLeaseFenceError):
        sink.apply(call("r", zombie), write)
