"""The Redis sink: what the conformance suite can't ask."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fencepost.errors import (
    ConfigurationError,
    ServiceUnavailableError,
    StaleLeaseFenceError,
)
from fencepost.sinks import Claim
from fencepost.sinks.redis import RedisSink, RedisWrite, tag
from fencepost.testing.sinks import call, owner, successor


@pytest.fixture(params=[False, True], ids=["bytes", "text"])
def client(redis_url: str, request: pytest.FixtureRequest) -> redis.Redis:
    """The caller's own client may decode answers."""
    return redis.Redis.from_url(redis_url, decode_responses=request.param)


@pytest.fixture
def sink(client: redis.Redis) -> RedisSink:
    return RedisSink(client)


def text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def test_a_fenced_set(client: redis.Redis, sink: RedisSink) -> None:
    zombie = owner(1)
    once = call("price", zombie)
    assert sink.set(once, "price", "10").result is True
    sink.advance("price", successor(zombie))
    with pytest.raises(StaleLeaseFenceError):
        sink.set(call("price", zombie), "price", "9")
    sink.set(call("price", successor(zombie)), "price", "11", ttl=timedelta(minutes=1))
    assert text(client.get("price")) == "11"
    assert 0 < client.pttl("price") <= 60_000


def test_what_is_stored_is_as_documented(client: redis.Redis, sink: RedisSink) -> None:
    mine = owner(1)
    once = call("a{b}:c", mine)
    sink.set(once, f"price:{tag('a{b}:c')}", "1")
    sink.advance("a{b}:c", successor(mine))
    with pytest.raises(StaleLeaseFenceError):
        sink.advance("a{b}:c", mine)
    hash_tag = "{a%7Bb%7D:c}"
    assert {text(key) for key in client.scan_iter()} == {
        f"fencepost:sink:fence:{hash_tag}:{mine.execution_id}",
        f"fencepost:sink:applied:{hash_tag}:{once.key}",
        f"fencepost:sink:refused:{hash_tag}",
        f"price:{hash_tag}",
    }


def test_names_that_look_alike_are_kept_apart(sink: RedisSink) -> None:
    """However resource and key are put together."""
    mine = owner(1)
    for resource, key in (("a", "b}:c"), ("a}:b", "c"), ("{a", "b"), ("a:b", "c"), ("a", "b:c")):
        claim = Claim(key=key, token=mine, resource=resource)
        assert not sink.set(claim, "x", "1").replayed, (resource, key)


@pytest.mark.parametrize(
    ("lua", "result"),
    [
        ("return 'text'", "text"),
        ("return 7", 7),
        ("return {1, 2}", [1, 2]),
        ("return {a = 1}", {"a": 1}),
        ("return nil", None),
        ("", None),
        ("return false", False),
        ("return redis.call('SET', 'k', 'v')", {"ok": "OK"}),
        ("return #KEYS + #ARGV", 3),
        ("return KEYS[1] .. ARGV[2]", "ab"),
    ],
)
def test_a_script_returns_what_json_can_hold(sink: RedisSink, lua: str, result: object) -> None:
    once = call("r", owner(1))
    write = RedisWrite(lua=lua, keys=["a"], args=[1, "b"])
    for replayed in (False, True):
        receipt = sink.apply(once, write)
        assert (receipt.result, receipt.replayed) == (result, replayed)


def test_a_script_that_fails_first_has_not_used_its_key_up(
    client: redis.Redis, sink: RedisSink
) -> None:
    once = call("r", owner(1))
    with pytest.raises(ServiceUnavailableError, match="empty"):
        sink.apply(once, RedisWrite(lua="return redis.error_reply('it is empty')"))
    with pytest.raises(ServiceUnavailableError):
        sink.apply(once, RedisWrite(lua="error('no')"))
    assert not sink.apply(once, RedisWrite(lua="return 1")).replayed


def test_redis_does_not_undo_a_script_that_fails_late(client: redis.Redis, sink: RedisSink) -> None:
    """As documented: a write must check before it writes."""
    once = call("r", owner(1))
    late = RedisWrite(lua="redis.call('INCR', KEYS[1]) error('too late')", keys=["n"])
    for _ in range(2):
        with pytest.raises(ServiceUnavailableError):
            sink.apply(once, late)
    assert text(client.get("n")) == "2"


def test_scripts_are_sent_again_when_the_server_has_lost_them(
    client: redis.Redis, sink: RedisSink
) -> None:
    mine = owner(1)
    sink.advance("r", mine)
    client.script_flush()
    sink.advance("r", mine)
    client.script_flush()
    sink.set(call("r", mine), "x", "1")


def test_refusals_are_bounded(sink: RedisSink) -> None:
    zombie = owner(1)
    sink.advance("r", successor(zombie))
    for _ in range(105):
        with pytest.raises(StaleLeaseFenceError):
            sink.advance("r", zombie)
    assert len(sink.refusals("r")) == 100


def test_retention(client: redis.Redis) -> None:
    sink = RedisSink(client, retention=timedelta(hours=1))
    zombie = owner(1)
    sink.set(call("r", zombie), "mine", "1")
    sink.advance("r", successor(zombie))
    with pytest.raises(StaleLeaseFenceError):
        sink.advance("r", zombie)
    own = [key for key in client.scan_iter() if text(key).startswith("fencepost:")]
    assert len(own) == 3
    for key in own:
        assert 3_500_000 < client.pttl(key) <= 3_600_000
    assert client.pttl("mine") == -1
    with pytest.raises(ConfigurationError):
        RedisSink(client, retention=timedelta(0))


def test_by_default_nothing_is_forgotten(client: redis.Redis, sink: RedisSink) -> None:
    sink.set(call("r", owner(1)), "x", "1")
    assert {client.pttl(key) for key in client.scan_iter()} == {-1}


def test_an_absent_server_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    sink = RedisSink(redis.Redis(port=port, retry=Retry(NoBackoff(), 0)))
    for operation in (
        lambda: sink.advance("r", owner(1)),
        lambda: sink.set(call("r", owner(1)), "x", "1"),
        lambda: sink.refusals("r"),
    ):
        with pytest.raises(ServiceUnavailableError, match="does not answer"):
            operation()
