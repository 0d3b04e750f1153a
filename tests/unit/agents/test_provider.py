"""The example's payment provider: its modes, its faults, and that its counts can be trusted."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.refund_agent.payments import (
    NotSent,
    PaymentRefused,
    Payments,
    PaymentUnclear,
    RefundRequest,
    StaleToken,
)
from examples.refund_agent.play import refunds_in
from examples.refund_agent.provider import Mode, serve
from examples.refund_agent.provider_faults import Fault
from examples.refund_agent.provider_ledger import Ledger, Transfer
from fencepost import faults

Serve = Callable[..., Payments]


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Serve]:
    servers = []

    def start(mode: Mode, *, read_timeout: float = 2.0) -> Payments:
        server = serve(mode, tmp_path / f"{mode}.sqlite3", read_timeout=read_timeout)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        payments = Payments(f"http://127.0.0.1:{server.server_port}")
        payments.charge("o", 1_000)
        return payments

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def cents(amount: int) -> RefundRequest:
    return RefundRequest(order_id="o", amount_cents=amount, reason="late")


def booked(payments: Payments) -> list[int]:
    return refunds_in(payments.audit("o"))


def refused(payments: Payments) -> list[str]:
    return [one["code"] for one in payments.audit("o")["refusals"]]


@pytest.mark.parametrize("mode", [Mode.DEDUPES, Mode.FENCES])
def test_a_key_stands_for_one_refund(provider: Serve, mode: Mode) -> None:
    payments = provider(mode)
    first = payments.refund(cents(100), key="k")
    assert payments.refund(cents(100), key="k") == first
    with pytest.raises(PaymentRefused, match="422 key-conflict"):
        payments.refund(cents(101), key="k")
    payments.refund(cents(50), key="other")
    payments.refund(cents(50))
    assert booked(payments) == [100, 50, 50]
    assert refused(payments) == ["key-conflict"]


@pytest.mark.parametrize("mode", [Mode.QUERYABLE, Mode.BLIND])
def test_elsewhere_a_key_means_nothing(provider: Serve, mode: Mode) -> None:
    payments = provider(mode)
    for _ in range(2):
        payments.refund(cents(100), key="k", reference="r")
    assert booked(payments) == [100, 100]


def answers(payments: Payments, count: int) -> list[str]:
    """Ask for one refund many times at once; the ids, and `busy` for those who have to wait."""

    def refund(_: int) -> str:
        try:
            return payments.refund(cents(10), key="k").id
        except PaymentUnclear as busy:
            assert "409 in-progress" in str(busy)  # noqa: PT017 - either answer is right
            return "busy"

    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(refund, range(count)))


@pytest.mark.parametrize("mode", [Mode.DEDUPES, Mode.FENCES])
def test_keys_hold_when_all_come_at_once(provider: Serve, mode: Mode) -> None:
    payments = provider(mode)
    assert len(set(answers(payments, 24)) - {"busy"}) == 1
    assert booked(payments) == [10]


def test_a_request_under_way_holds_its_key(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    ledger.book(Transfer("charge", "o", 1_000))
    refund = Transfer("refund", "o", 10, key="k")
    assert ledger.claim_key(refund, "digest") is None
    busy, other = ledger.claim_key(refund, "digest"), ledger.claim_key(refund, "another")
    assert busy is not None
    assert other is not None
    assert (busy.status, other.status) == (409, 422)
    booked = ledger.book_claimed(refund)
    again = ledger.claim_key(refund, "digest")
    assert again is not None
    assert (again.body, again.replayed) == (booked.body, True)
    assert refunds_in(ledger.audit("o")) == [10]


def test_a_stale_token_is_refused_once_the_fence_is_raised(provider: Serve) -> None:
    payments = provider(Mode.FENCES)
    payments.refund(cents(10), key="k1", fence=("e", 1))
    payments.raise_fence("o", "e", 2)
    for key in ("k1", "k2"):
        with pytest.raises(StaleToken) as stale:
            payments.refund(cents(10), key=key, fence=("e", 1))
        assert stale.value.current == 2
    with pytest.raises(StaleToken):
        payments.raise_fence("o", "e", 1)
    # Epochs of other executions are not comparable, and a repeated epoch is the owner's own.
    payments.refund(cents(20), key="k3", fence=("another", 1))
    payments.raise_fence("o", "e", 2)
    payments.refund(cents(30), key="k4", fence=("e", 3))
    assert booked(payments) == [10, 20, 30]


def test_no_late_refund_slips_past_a_fence(provider: Serve) -> None:
    """Check and booking are one transaction: what is delayed is judged when it lands."""
    payments = provider(Mode.FENCES)
    payments.arm("o", Fault.DELAY, seconds=0.5)
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(payments.refund, cents(10), key="k", fence=("e", 1))
        payments.raise_fence("o", "e", 2)
        with pytest.raises(StaleToken):
            late.result()
    assert booked(payments) == []


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.FENCES])
def test_who_knows_no_fences_says_so(provider: Serve, mode: Mode) -> None:
    with pytest.raises(PaymentRefused, match="404 not-offered"):
        provider(mode).raise_fence("o", "e", 2)


def test_only_one_can_be_asked(provider: Serve) -> None:
    payments = provider(Mode.QUERYABLE)
    assert payments.find("r") is None
    made = payments.refund(cents(10), reference="r")
    assert payments.find("r") == made
    with pytest.raises(PaymentRefused, match="404 not-offered"):
        provider(Mode.BLIND).find("r")


def test_nobody_gets_more_back_than_was_charged(provider: Serve) -> None:
    payments = provider(Mode.BLIND)
    payments.refund(cents(700))
    with pytest.raises(PaymentRefused, match="402 exceeds-charge"):
        payments.refund(cents(301))
    payments.refund(cents(300))
    assert booked(payments) == [700, 300]


@pytest.mark.parametrize(
    ("fault", "error", "left"),
    [
        (Fault.LOSE_ANSWER, PaymentUnclear, [10]),
        (Fault.ERROR_AFTER, PaymentUnclear, [10]),
        (Fault.ERROR_BEFORE, PaymentUnclear, []),
        (Fault.IN_PROGRESS, PaymentUnclear, []),
    ],
)
@pytest.mark.parametrize("mode", list(Mode))
def test_faults_happen_as_often_as_they_are_armed(
    provider: Serve, mode: Mode, fault: Fault, error: type[Exception], left: list[int]
) -> None:
    payments = provider(mode)
    payments.arm("o", fault)
    with pytest.raises(error):
        payments.refund(cents(10), key="k")
    assert booked(payments) == left
    payments.refund(cents(10), key="k")
    keyed = mode in (Mode.DEDUPES, Mode.FENCES)
    assert booked(payments) == ([10] if keyed or not left else [10, 10])


def test_a_restart_frees_the_keys_that_were_under_way(tmp_path: Path, provider: Serve) -> None:
    payments = provider(Mode.DEDUPES)
    payments.refund(cents(10), key="done")
    # Whichever of the two comes first is held up.
    payments.arm("o", Fault.DELAY, times=1_000, seconds=30)
    lost = threading.Thread(target=lambda: _quietly(payments, "lost"), daemon=True)
    lost.start()
    while "in-progress" not in refused(payments):
        _quietly(payments, "lost")
    again = provider(Mode.DEDUPES)
    again.refund(cents(10), key="done")
    again.refund(cents(20), key="lost")
    assert booked(again) == [10, 20]


def _quietly(payments: Payments, key: str) -> None:
    try:
        payments.refund(cents(20), key=key)
    except (PaymentUnclear, OSError):
        return


@contextmanager
def standing_still(seconds: float) -> Iterator[None]:
    """A client that stands still right before it sends."""
    gone = threading.Event()

    def hook(point: str, _facts: object) -> None:
        if point == "payment.before-send":
            gone.wait(seconds)

    faults.install(hook)
    try:
        yield
    finally:
        faults.install(None)


def test_a_request_that_comes_late_on_its_connection_is_not_booked(provider: Serve) -> None:
    payments = provider(Mode.QUERYABLE, read_timeout=0.6)
    with standing_still(1.5), pytest.raises((PaymentUnclear, OSError)):
        payments.refund(cents(10), reference="r", send_within=30)
    assert payments.find("r") is None
    # A connection made only to send is young, and nobody knows how old its sender's wish is.
    with standing_still(1.5):
        payments.refund(cents(10), reference="r")
    assert booked(payments) == [10]


def test_a_request_that_trickles_in_late_is_not_booked(provider: Serve) -> None:
    payments = provider(Mode.QUERYABLE, read_timeout=1.5)
    port = int(payments.url.rpartition(":")[2])
    body = cents(10).model_dump_json().encode()
    head = f"POST /refunds HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    pause = threading.Event()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        # Each pause is shorter than a read may take, all of them are longer than a request may.
        for piece in (head[:9], head[9:], body[:4], body[4:]):
            connection.sendall(piece)
            pause.wait(0.6)
        assert b" 408 " in connection.recv(1_000)
    assert booked(payments) == []


def test_what_comes_too_late_is_not_sent(provider: Serve) -> None:
    payments = provider(Mode.QUERYABLE)
    with pytest.raises(NotSent):
        payments.refund(cents(10), reference="r", send_within=-1)
    with pytest.raises(NotSent):
        Payments("http://127.0.0.1:9").refund(cents(10), reference="r", send_within=1)
    assert booked(payments) == []
