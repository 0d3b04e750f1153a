"""The object sink: lost answers and crashes at each call, stores that lie, and boto3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost import FenceToken
from fencepost.errors import (
    ConfigurationError,
    PayloadError,
    ServiceUnavailableError,
    StaleLeaseFenceError,
)
from fencepost.sinks import Claim, SinkBusyError
from fencepost.sinks.objects import Boto3Store, ObjectSink
from fencepost.testing.sinks import call, owner, successor
from tests.conformance.sinks import s3
from tests.conformance.sinks.harnesses import boto3_client, with_line


class Store:
    """Objects in memory, whose n-th call (from 0) goes wrong."""

    def __init__(self) -> None:
        self.objects = s3.Objects()
        self.calls = 0
        self.fatal: tuple[int, str] | None = None

    def get(self, name: str) -> tuple[bytes, str] | None:
        data = self._call(lambda: self.objects.get(name))
        return None if data is None else (data, s3.tag_of(data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._put(name, data, {"If-None-Match": "*"})

    def put_if_match(self, name: str, data: bytes, tag: str) -> bool:
        return self._put(name, data, {"If-Match": tag})

    def _put(self, name: str, data: bytes, conditions: dict[str, str | None]) -> bool:
        status, _ = self._call(lambda: self.objects.put(name, data, conditions))
        return bool(status == 200)

    def _call(self, work: Callable[[], Any]) -> Any:
        at, how = self.fatal or (-1, "")
        mine, self.calls = self.calls, self.calls + 1
        if mine == at and how == "before":
            raise ConnectionError("lost before it arrived")
        result = work()
        if mine == at and how == "after":
            raise ConnectionError("lost with its answer")
        if mine == at and how == "twice":
            # What a client that sends again after a lost answer gets to see.
            return work()
        return result


@pytest.fixture
def store() -> Store:
    return Store()


def prepared(store: Store) -> tuple[ObjectSink, FenceToken]:
    sink, token = ObjectSink(store), owner(1)
    sink.publish(Claim(key="before", token=token, resource="r"), b"old\n")
    store.calls = 0
    return sink, token


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_writer_lost_at_any_call_has_written_once_or_not_at_all(how: str) -> None:
    """And whoever comes next, with the same key, makes it once."""
    seen = set()
    for at in range(50):
        store = Store()
        sink, first = prepared(store)
        store.fatal = (at, how)
        once = Claim(key="once", token=first, resource="r")
        try:
            sink.apply(once, with_line("line"))
            lost = False
        except ConnectionError:
            lost = True
        store.fatal = None
        visible = sink.read("r")
        assert visible in (b"old\n", b"old\nline\n")
        new = Claim(key="once", token=successor(first), resource="r")
        receipt = sink.apply(new, with_line("line"))
        assert sink.read("r") == b"old\nline\n"
        seen.add((visible, receipt.replayed))
        if not lost:
            break
    else:
        raise AssertionError("a publication makes more than 50 calls")
    assert seen == {(b"old\n", False), (b"old\nline\n", True)}


def test_a_call_that_the_client_sends_again_is_still_the_first(store: Store) -> None:
    """Its own write stands in its way then, and it must know it."""
    for at in range(10):
        store = Store()
        sink, token = prepared(store)
        store.fatal = (at, "twice")
        receipt = sink.apply(Claim(key="once", token=token, resource="r"), with_line("line"))
        assert not receipt.replayed, f"call {at}"
        assert sink.read("r") == b"old\nline\n"
        store.calls, store.fatal = 0, (at, "twice")
        sink.advance("r", successor(token))
        store.fatal = None
        with pytest.raises(StaleLeaseFenceError):
            sink.publish(call("r", token), b"late")


def test_what_a_refused_writer_has_uploaded_is_not_published(store: Store) -> None:
    sink, zombie = prepared(store)

    def overtaken(_present: bytes | None) -> bytes:
        sink.advance("r", successor(zombie))
        return b"late"

    with pytest.raises(StaleLeaseFenceError):
        sink.apply(call("r", zombie), overtaken)
    assert sink.read("r") == b"old\n"
    assert b"late" in store.objects.stored.values()


def test_what_is_published_can_be_read_without_us(store: Store) -> None:
    sink = ObjectSink(store, prefix="site/")
    receipt = sink.publish(call("pages/Über uns.html", owner(1)), b"<html>")
    published = sink.published("pages/Über uns.html")
    assert published == receipt.result
    assert published.name.startswith("site/pages-ber-uns-html-")
    assert store.objects.stored[published.name] == b"<html>"
    assert sink.manifest_name("pages/Über uns.html") in store.objects.stored
    assert sink.published("another") is None
    assert sink.read("another") is None


def test_a_content_that_is_gone_is_no_empty_one(store: Store) -> None:
    sink, token = prepared(store)
    published = sink.published("r")
    assert published is not None
    del store.objects.stored[published.name]
    with pytest.raises(ServiceUnavailableError, match="gone"):
        sink.read("r")
    with pytest.raises(ServiceUnavailableError, match="gone"):
        sink.apply(call("r", token), with_line("line"))


def test_names_are_checked(store: Store) -> None:
    with pytest.raises(PayloadError):
        ObjectSink(store).advance("", owner(1))


def test_a_manifest_that_others_swap_all_the_time_is_busy(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, token = prepared(store)
    monkeypatch.setattr("fencepost.sinks.objects._back_off", lambda _attempt: None)
    monkeypatch.setattr(store, "put_if_match", lambda *_: False)
    with pytest.raises(SinkBusyError, match="in a row"):
        sink.publish(call("r", token), b"x")
    with pytest.raises(SinkBusyError, match="in a row"):
        sink.advance("r", successor(token))


@pytest.mark.parametrize("condition", ["If-None-Match", "If-Match"])
def test_a_store_that_ignores_conditions_is_refused_before_anything_is_written(
    store: Store, condition: str
) -> None:
    store.objects.ignores = frozenset({condition})
    sink = ObjectSink(store)
    for operation in (
        lambda: sink.publish(call("r", owner(1)), b"x"),
        lambda: sink.advance("r", owner(1)),
    ):
        with pytest.raises(ConfigurationError, match=condition):
            operation()
    assert [name for name in store.objects.stored if "conditions" not in name] == []


# -- boto3 ------------------------------------------------------------------------------------


@pytest.fixture(params=["moto", "ours"])
def boto3_store(request: pytest.FixtureRequest) -> Any:
    """The same client, on an independent imitation of S3 and on our own."""
    if request.param == "moto":
        from moto import mock_aws

        with mock_aws():
            import boto3

            client = boto3.client("s3", region_name="us-east-1")
            client.create_bucket(Bucket="bucket")
            yield Boto3Store(client, "bucket")
    else:
        with s3.serve() as url:
            yield Boto3Store(boto3_client(url), "bucket")


def test_our_test_server_agrees_with_another_imitation_of_s3(boto3_store: Boto3Store) -> None:
    store = boto3_store
    assert store.get("folder/a name") is None
    assert not store.put_if_match("folder/a name", b"0", '"nothing"')
    assert store.put_if_absent("folder/a name", b"1")
    assert not store.put_if_absent("folder/a name", b"2")
    first = store.get("folder/a name")
    assert first is not None
    data, tag = first
    assert data == b"1"
    assert tag == s3.tag_of(b"1")
    assert not store.put_if_match("folder/a name", b"2", '"another"')
    assert store.put_if_match("folder/a name", b"2", tag)
    assert not store.put_if_match("folder/a name", b"3", tag)
    second = store.get("folder/a name")
    assert second is not None
    assert second[0] == b"2"


def test_the_sink_on_boto3(boto3_store: Boto3Store) -> None:
    sink, zombie = ObjectSink(boto3_store), owner(1)
    once = call("r", zombie)
    assert not sink.publish(once, b"a").replayed
    sink.advance("r", successor(zombie))
    with pytest.raises(StaleLeaseFenceError):
        sink.publish(call("r", zombie), b"b")
    assert sink.read("r") == b"a"
    assert len(sink.refusals("r")) == 1


class Refusing:
    """A client whose every call fails in the same way."""

    def __init__(self, problem: Exception, times: int = 1_000) -> None:
        self._problem, self._times = problem, times
        self.calls = 0

    def put_object(self, **_: Any) -> dict[str, str]:
        self.calls += 1
        if self.calls <= self._times:
            raise self._problem
        return {"ETag": '"x"'}

    def get_object(self, **_: Any) -> Any:
        raise self._problem


def client_error(code: str, operation: str = "PutObject") -> Exception:
    from botocore.exceptions import ClientError

    error: Exception = ClientError({"Error": {"Code": code, "Message": "no"}}, operation)
    return error


def test_a_conflict_decides_nothing_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other conditional write may have failed."""
    monkeypatch.setattr("fencepost.sinks.objects._back_off", lambda _attempt: None)
    client = Refusing(client_error("ConditionalRequestConflict"), times=3)
    assert Boto3Store(client, "bucket").put_if_absent("x", b"")
    assert client.calls == 4
    with pytest.raises(SinkBusyError):
        Boto3Store(Refusing(client_error("409")), "bucket").put_if_absent("x", b"")


def test_other_errors_are_no_answers() -> None:
    for code in ("AccessDenied", "NoSuchBucket", "SlowDown", "InternalError"):
        store = Boto3Store(Refusing(client_error(code)), "bucket")
        with pytest.raises(ServiceUnavailableError, match=code):
            store.put_if_absent("x", b"")
        with pytest.raises(ServiceUnavailableError, match=code):
            store.put_if_match("x", b"", "tag")
        with pytest.raises(ServiceUnavailableError, match=code):
            store.get("x")
    # It answers If-Match only; for If-None-Match it would mean that there is no bucket.
    with pytest.raises(ServiceUnavailableError):
        Boto3Store(Refusing(client_error("NoSuchKey")), "bucket").put_if_absent("x", b"")


def test_a_botocore_that_knows_no_conditions_is_named() -> None:
    from botocore.exceptions import ParamValidationError

    client = Refusing(ParamValidationError(report='Unknown parameter in input: "IfMatch"'))
    with pytest.raises(ConfigurationError, match="upgrade"):
        Boto3Store(client, "bucket").put_if_match("x", b"", "tag")


def test_importing_the_sink_needs_no_boto3(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = "import sys; sys.modules['boto3'] = None; import fencepost.sinks.objects"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
