"""The lease store on a real server: the contract, and what only a server can show."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
import redis

from fencepost.errors import ConfigurationError, ServiceUnavailableError
from fencepost.records import Lease
from fencepost.stores.redis import RedisLeaseStore
from tests.conformance.lease_store import LONG, LeaseStoreConformance, owner_of, take


class TestRedisLeaseStore(LeaseStoreConformance):
    @pytest.fixture
    def store(self, redis_url):
        return RedisLeaseStore.from_url(redis_url)

    @pytest.fixture
    def lose_everything(self, redis_url):
        return redis.Redis.from_url(redis_url).flushall


class TestDecodingClient(LeaseStoreConformance):
    """The caller's own client may decode answers, and speak the older protocol."""

    @pytest.fixture
    def client(self, redis_url):
        return redis.Redis.from_url(redis_url, decode_responses=True, protocol=2)

    @pytest.fixture
    def store(self, client):
        return RedisLeaseStore(client, prefix="{other}:")

    @pytest.fixture
    def lose_everything(self, client):
        return client.flushall


@pytest.fixture
def client(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url, decode_responses=True)


@pytest.fixture
def store(redis_url: str) -> RedisLeaseStore:
    return RedisLeaseStore.from_url(redis_url)


def test_what_is_stored_is_as_documented(store, client):
    lease = store.settle(take(store, uuid4()), 3, LONG)
    key = f"fencepost:lease:{lease.execution_id}"
    assert set(client.scan_iter()) == {key, "fencepost:leases"}
    stored = client.hgetall(key)
    assert (stored["owner"], stored["epoch"]) == (lease.owner, "3")
    assert client.zscore("fencepost:leases", str(lease.execution_id)) == int(stored["expires"])


def test_nothing_is_left_after_a_forgotten_lease(store, client):
    store.release(store.settle(take(store, uuid4()), 1, LONG), forget=True)
    store.release(take(store, uuid4()), forget=False)
    assert client.dbsize() == 0


def test_abandoned_hashes_are_garbage_in_the_end_but_long_after_the_lease(store, client):
    lease = take(store, uuid4())
    key = f"fencepost:lease:{lease.execution_id}"
    week = timedelta(days=7) // timedelta(milliseconds=1)
    assert week < client.pttl(key) <= week + LONG // timedelta(milliseconds=1)
    client.flushall()
    restored = store.renew(lease, LONG, restore=True)
    assert week < client.pttl(key)
    store.release(restored, forget=False)
    assert week - 60_000 < client.pttl(key) <= week


def test_prefixes_keep_fleets_apart(store, client):
    other = RedisLeaseStore(client, prefix="other:")
    lease = take(store, uuid4())
    assert owner_of(other, lease.execution_id) is None
    assert take(other, lease.execution_id).epoch == 1


def test_scripts_are_loaded_again_when_the_server_has_lost_them(store, client):
    lease = take(store, uuid4())
    client.script_flush()
    assert store.renew(lease, LONG, restore=False) is not None


def test_a_server_that_was_killed_and_started_empty_is_used_again(redis_server, store):
    lease = store.settle(take(store, uuid4()), 2, LONG)
    redis_server.kill()
    with pytest.raises(ServiceUnavailableError):
        store.renew(lease, LONG, restore=False)
    redis_server.restart(empty=True)
    assert store.renew(lease, LONG, restore=False) is None
    assert store.renew(lease, LONG, restore=True).epoch == 2


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port whose server accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_silent_server_is_given_up_soon(silent_port):
    url = f"redis://user:secret@127.0.0.1:{silent_port}/0"
    store = RedisLeaseStore.from_url(url, timeout=timedelta(milliseconds=100))
    before = time.monotonic()
    with pytest.raises(ServiceUnavailableError) as caught:
        store.acquire(uuid4(), "a", LONG)
    assert time.monotonic() - before < 3
    assert f"127.0.0.1:{silent_port} does not answer" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.fields["address"] == f"127.0.0.1:{silent_port}"


def test_every_operation_reports_an_absent_server():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    store = RedisLeaseStore.from_url(f"redis://127.0.0.1:{port}")
    lease = Lease(uuid4(), "a", 1, 0.0)
    for operation in (
        lambda: store.acquire(lease.execution_id, "a", LONG),
        lambda: store.settle(lease, 1, LONG),
        lambda: store.renew(lease, LONG, restore=True),
        lambda: store.release(lease, forget=True),
        lambda: store.state([lease.execution_id]),
        lambda: store.claim_expired(1, LONG),
        lambda: store.discard([lease.execution_id]),
    ):
        with pytest.raises(ServiceUnavailableError, match="does not answer"):
            operation()


def test_a_refused_command_is_told_apart(store, client):
    client.set("fencepost:leases", "somebody else's")
    with pytest.raises(ServiceUnavailableError, match="refused a command: WRONGTYPE"):
        store.claim_expired(1, LONG)


def test_a_url_that_cannot_be_used_is_a_configuration_error():
    with pytest.raises(ConfigurationError, match="redis://"):
        RedisLeaseStore.from_url("localhost:6379")


def test_a_lease_needs_a_time_to_live(store):
    with pytest.raises(ConfigurationError, match="1 ms"):
        store.acquire(uuid4(), "a", timedelta(0))
