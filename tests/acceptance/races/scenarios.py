"""The races as they happen to Celery alone. Each gives what one run came to."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.acceptance.races import plain
from tests.acceptance.races.bank import await_booked
from tests.acceptance.races.measure import WAYS, Count, Rig, Scenario, thaw
from tests.support.waiting import wait_for

LATE = 15.0
"""Seconds until a delayed request is booked: after the retry of a caller that has given up, and
after the next copy of a task whose process was lost or whose visibility timeout has passed."""


def refunds(rig: Rig, way: str, order: str) -> int:
    return len(rig.bank(way).booked(order, "refund"))


def charges(rig: Rig, way: str, order: str) -> int:
    return len(rig.bank(way).booked(order, "charge"))


def one_refund(rig: Rig, way: str, order: str, task_id: str) -> Count:
    believed = rig.believes(task_id)
    return Count(1, refunds(rig, way, order), believed)


# -- answers ---------------------------------------------------------------------------------


def faulty(fault: str, rig: Rig, way: str, order: str, **how: Any) -> Count:
    rig.paid(way, order).arm(order, fault, **how)
    task_id = rig.send(plain.pay, order, way=way, kind="refund")
    return one_refund(rig, way, order, task_id)


def late(rig: Rig, way: str, order: str) -> Count:
    rig.paid(way, order).arm(order, "delay", seconds=LATE)
    task_id = rig.send(plain.pay, order, way=way, kind="refund", patience=0.2)
    believed = rig.believes(task_id)
    await_booked(rig.bank(way), order, "refund", 2 if way == "looks" else 1, LATE + 5)
    return Count(1, refunds(rig, way, order), believed)


def declined(rig: Rig, way: str, order: str) -> Count:
    rig.paid(way, order, 500)
    first = rig.send(plain.pay, order, way=way, kind="refund")
    rig.end(first)
    rig.paid(way, order, 500)
    second = rig.send(plain.pay, order, way=way, kind="refund")
    believed = rig.believes(first, second)
    return Count(1, refunds(rig, way, order), believed)


# -- crashes and freezes ---------------------------------------------------------------------


def killed(point: str, rig: Rig, way: str, order: str) -> Count:
    rig.paid(way, order)
    fault = rig.arm(point, "kill-self", order)
    task_id = rig.send(plain.pay, order, way=way, kind="refund")
    rig.fired(fault)
    rig.end(task_id)
    return one_refund(rig, way, order, task_id)


def killed_between(rig: Rig, way: str, order: str) -> Count:
    rig.paid(way, order)
    fault = rig.arm("between", "kill-self", order)
    task_id = rig.send(plain.pay_in_two_parts, order, way=way)
    rig.fired(fault)
    believed = 2 * rig.believes(task_id)
    return Count(2, refunds(rig, way, order), believed)


def frozen(point: str, rig: Rig, way: str, order: str) -> Count:
    """Stopped there; another copy does the work; then it goes on."""
    rig.paid(way, order)
    fault = rig.arm(point, "freeze-self", order)
    task_id = rig.send(plain.pay, order, way=way, kind="refund")
    pid = rig.fired(fault)
    rig.end(task_id)
    thaw(pid)
    rig.quiet(task_id)
    return one_refund(rig, way, order, task_id)


def killed_during(rig: Rig, way: str, order: str) -> Count:
    """The request is under way for longer than its caller lives."""
    bank = rig.paid(way, order)
    bank.arm(order, "delay", seconds=LATE)
    fault = rig.arm("sending", "pause", order)
    task_id = rig.send(plain.pay, order, way=way, kind="refund")
    caller = psutil.Process(rig.fired(fault))
    fault.go()
    port = urlsplit(bank.url).port
    # Seen twice: by then the request is on the connection, too.
    for _ in range(2):
        wait_for(lambda: connected(caller, port), 20, f"the request of {order}", poll=0.1)
    caller.kill()
    believed = rig.believes(task_id)
    await_booked(bank, order, "refund", 1 if way == "keyed" else 2, LATE + 5)
    return Count(1, refunds(rig, way, order), believed)


def connected(process: psutil.Process, port: int | None) -> bool:
    return any(c.raddr[1:2] == (port,) for c in process.net_connections())


def asking_in_vain(rig: Rig, way: str, order: str) -> Count:
    rig.paid(way, order).arm(order, "lose-answer")
    task_id = rig.send(plain.pay_asking_elsewhere, order, way=way)
    return one_refund(rig, way, order, task_id)


def stumbling(rig: Rig, way: str, order: str) -> Count:
    """The shop counts an order as paid whose task has succeeded."""
    task_id = rig.send(plain.pay_then_stumble, order, way=way)
    believed = rig.believes(task_id)
    return Count(1, charges(rig, way, order), believed)


# -- keys ------------------------------------------------------------------------------------


def key_expired(rig: Rig, way: str, order: str) -> Count:
    rig.paid(way, order)
    killing = rig.arm("landed", "kill-self", order)
    waiting = rig.arm("redelivered", "pause", order)
    task_id = rig.send(plain.pay, order, way=way, kind="refund")
    rig.fired(killing)
    rig.fired(waiting)
    rig.banks.forget_keys(order)
    waiting.go()
    return one_refund(rig, way, order, task_id)


def other_amount(rig: Rig, way: str, order: str) -> Count:
    """The same id, as it is derived from the order, and another amount."""
    rig.paid(way, order)
    first = rig.send(plain.pay, order, way=way, kind="refund", task_id=order, cents=500)
    rig.end(first)
    rig.send(plain.pay, order, way=way, kind="refund", task_id=order, cents=600)
    wait_for(lambda: rig.copies(order)[1] >= 2, 30, f"both of {order}")
    return Count(1, refunds(rig, way, order))


def two_senders(rig: Rig, way: str, order: str) -> Count:
    """The web and the nightly job, each with a task of its own."""
    rig.paid(way, order)
    overlap = rig.arm("sending", "pause", order)
    web = rig.send(plain.pay, order, way=way, kind="refund")
    rig.fired(overlap)
    night = rig.send(plain.pay, order, way=way, kind="refund")
    rig.end(night)
    overlap.go()
    rig.end(web)
    return Count(1, refunds(rig, way, order))


def undone_key(rig: Rig, way: str, order: str) -> Count:
    """Charged, given back, ordered again under the order's key: one charge more is right."""
    believed = 0
    for kind, key in (("charge", "c"), ("refund", "r"), ("charge", "c")):
        task_id = rig.send(plain.pay_under_key, order, way=way, kind=kind, key=f"{key}:{order}")
        believed = rig.believes(task_id)
    return Count(1, charges(rig, way, order) - refunds(rig, way, order), believed)


def decided_again(amounts: str, rig: Rig, way: str, order: str) -> Count:
    """Killed after the call; the next copy decides anew."""
    rig.paid(way, order)
    rig.write("INSERT INTO decisions VALUES (?, ?)", order, amounts)
    fault = rig.arm("landed", "kill-self", order)
    task_id = rig.send(plain.pay_what_is_decided, order, way=way)
    rig.fired(fault)
    state = rig.end(task_id)
    paid = state == "SUCCESS" and plain.app.AsyncResult(task_id).result != "not wanted"
    return Count(1, refunds(rig, way, order), int(paid))


def falling_back(rig: Rig, way: str, order: str) -> Count:
    rig.bank(way).arm(order, "lose-answer")
    task_id = rig.send(plain.charge_somewhere, order, way=way)
    rig.end(task_id)
    elsewhere = len(rig.banks["fences"].booked(order, "charge"))
    return Count(1, charges(rig, way, order) + elsewhere)


# -- messages --------------------------------------------------------------------------------


def twice_at_once(rig: Rig, way: str, order: str) -> Count:
    rig.paid(way, order)
    overlap = rig.arm("sending", "pause", order)
    rig.send(plain.pay, order, way=way, kind="refund", task_id=order)
    rig.fired(overlap)
    rig.send(plain.pay, order, way=way, kind="refund", task_id=order)
    wait_for(lambda: rig.copies(order)[1] >= 1, 30, f"a copy of {order}")
    overlap.go()
    rig.quiet(order)
    return Count(1, refunds(rig, way, order))


def slow(rig: Rig, way: str, order: str) -> Count:
    """The call takes longer than the visibility timeout."""
    rig.paid(way, order).arm(order, "delay", seconds=LATE)
    task_id = rig.send(plain.pay, order, way=way, kind="refund", patience=30)
    wait_for(lambda: rig.copies(task_id)[0] >= 2, 30, f"a second copy of {task_id}")
    rig.quiet(task_id)
    return one_refund(rig, way, order, task_id)


def clicked_ten_times(rig: Rig, way: str, order: str) -> Count:
    """Ten requests at once, each of which looks whether the order's task is there already."""
    rig.paid(way, order)
    first = rig.arm("sending", "pause", order)
    together = Barrier(10)

    def click(_: int) -> None:
        unseen = rig.state(order) == "PENDING"
        together.wait(20)
        if unseen:
            rig.send(plain.pay, order, way=way, kind="refund", task_id=order)

    with ThreadPoolExecutor(10) as clicks:
        list(clicks.map(click, range(10)))
    wait_for(lambda: rig.copies(order)[1] >= 1, 30, f"a copy of {order}")
    first.go()
    wait_for(lambda: rig.copies(order)[0] == 10, 30, f"ten copies of {order}")
    rig.quiet(order)
    return Count(1, refunds(rig, way, order))


def rolled_back(rig: Rig, way: str, order: str) -> Count:
    """Sent inside a transaction that doesn't commit."""
    rig.paid(way, order)
    task_id = rig.send(plain.pay, order, way=way, kind="refund")
    rig.end(task_id)
    return Count(0, refunds(rig, way, order))


def lost(rig: Rig, way: str, order: str) -> Count:
    """The order was committed, and the process died before it sent the message."""
    rig.paid(way, order)
    return Count(1, refunds(rig, way, order))


def flushed(rig: Rig, way: str, order: str) -> Count:
    """One refund is in mid-call, one waits in the queue."""
    rig.paid(way, order)
    calling = rig.arm("sending", "pause", order)
    rig.send(plain.pay, order, way=way, kind="refund")
    rig.fired(calling)
    plain.pay.apply_async(
        kwargs={"order": order, "way": way, "kind": "refund"}, queue="when-it-is-its-turn"
    )
    rig.redis.flushall()
    calling.go()
    await_booked(rig.bank(way), order, "refund", 1)
    rig.fleet.workers[0].terminate()  # and another comes, and takes that queue too
    rig.fleet.ready(1, arguments=("-Q", "celery,when-it-is-its-turn"))
    return Count(2, refunds(rig, way, order))


# -- undoing ---------------------------------------------------------------------------------


def late_charge(rig: Rig, way: str, order: str) -> Count:
    """Frozen before its charge; the next copy charges, can't ship, and gives back."""
    fault = rig.arm("sending", "freeze-self", order, kind="charge")
    task_id = rig.send(plain.purchase, order, way=way)
    pid = rig.fired(fault)
    rig.end(task_id)
    thaw(pid)
    rig.quiet(task_id)
    return Count(0, charges(rig, way, order) - refunds(rig, way, order))


def refund_in_doubt(rig: Rig, way: str, order: str) -> Count:
    shipping = rig.arm("between", "pause", order)
    task_id = rig.send(plain.purchase, order, way=way)
    rig.fired(shipping)
    rig.bank(way).arm(order, "lose-answer")
    shipping.go()
    believed = rig.believes(task_id)
    return Count(1, refunds(rig, way, order), believed)


def more_than_is_left(rig: Rig, way: str, order: str) -> Count:
    rig.paid(way, order, 100_000)
    rig.write("INSERT INTO refundable VALUES (?, ?)", order, 1_000)
    checked = rig.arm("checked", "pause", order, source="600")
    first = rig.send(plain.refund_what_is_left, order, way=way, cents=600)
    rig.fired(checked)
    second = rig.send(plain.refund_what_is_left, order, way=way, cents=600)
    rig.end(second)
    checked.go()
    rig.end(first)
    return Count(1, refunds(rig, way, order))


# -- webhooks --------------------------------------------------------------------------------


def credits_of(rig: Rig, order: str) -> int:
    return int(rig.read("SELECT count(*) FROM credits WHERE order_id = ?", order))


def webhook_first(rig: Rig, way: str, order: str) -> Count:
    landed = rig.arm("landed", "pause", order)
    response = rig.send(plain.charge_and_credit, order, way=way)
    rig.fired(landed)
    rig.end(rig.send(plain.webhook, order))
    landed.go()
    rig.end(response)
    return Count(1, credits_of(rig, order))


def webhook_meanwhile(rig: Rig, way: str, order: str) -> Count:
    checked = rig.arm("checked", "pause", order, source="response")
    response = rig.send(plain.charge_and_credit, order, way=way)
    rig.fired(checked)
    rig.end(rig.send(plain.webhook, order))
    checked.go()
    rig.end(response)
    return Count(1, credits_of(rig, order))


def webhook_twice(rig: Rig, way: str, order: str) -> Count:
    rig.bank(way).charge(order, 1_000)
    checked = rig.arm("checked", "pause", order, source="webhook")
    first = rig.send(plain.webhook, order)
    rig.fired(checked)
    rig.end(rig.send(plain.webhook, order))
    checked.go()
    rig.end(first)
    return Count(1, credits_of(rig, order))


def webhook_pays(rig: Rig, way: str, order: str) -> Count:
    """Both under the order's key, at the same time."""
    sending = rig.arm("sending", "pause", order)
    paying = {"way": way, "kind": "charge", "key": f"capture:{order}"}
    response = rig.send(plain.pay_under_key, order, **paying)
    rig.fired(sending)
    rig.end(rig.send(plain.pay_under_key, order, **paying))
    sending.go()
    rig.end(response)
    return Count(1, charges(rig, way, order))


Plan = tuple[tuple[str, ...], Scenario]

TOGETHER: Mapping[str, Plan] = {
    "answer-lost": (WAYS, partial(faulty, "lose-answer")),
    "error-after-success": (WAYS, partial(faulty, "error-after")),
    "error-before-anything": (WAYS, partial(faulty, "error-before")),
    "late-landing": (("keyed", "blind"), late),
    "in-progress": (("keyed",), partial(faulty, "in-progress", times=2)),
    "declined-then-topped-up": (WAYS, declined),
    "killed-before-the-call": (WAYS, partial(killed, "sending")),
    "killed-after-the-call": (WAYS, partial(killed, "landed")),
    "killed-after-it-was-recorded": (WAYS, partial(killed, "succeeded")),
    "partial-refund-then-crash": (WAYS, killed_between),
    "code-behind-it-fails": (WAYS, stumbling),
    "frozen-before-the-call": (WAYS, partial(frozen, "sending")),
    "frozen-after-the-call": (WAYS, partial(frozen, "landed")),
    "frozen-during-the-call": (WAYS, killed_during),
    "takeover-during-a-probe": (("looks",), partial(frozen, "looked")),
    "probe-while-in-flight": (("looks",), late),
    "probe-fails": (("looks",), asking_in_vain),
    "key-expired": (("keyed",), key_expired),
    "key-for-another-amount": (WAYS, other_amount),
    "two-executions-one-order": (WAYS, two_senders),
    "key-of-what-was-undone": (("keyed", "looks"), undone_key),
    "deploy-changes-the-request": (WAYS, partial(decided_again, "[1000, 950]")),
    "model-decides-otherwise": (WAYS, partial(decided_again, "[700, 900]")),
    "second-run-does-not-pay": (WAYS, partial(decided_again, "[1000, 0]")),
    "second-provider": (WAYS, falling_back),
    "duplicate-message": (WAYS, twice_at_once),
    "visibility-timeout": (WAYS, slow),
    "double-click": (WAYS, clicked_ten_times),
    "start-rolled-back": (WAYS, rolled_back),
    "message-lost": (WAYS, lost),
    "charge-after-its-refund": (WAYS, late_charge),
    "refund-in-doubt": (WAYS, refund_in_doubt),
    "more-than-is-left": (("keyed",), more_than_is_left),
    "webhook-before-the-response": (("keyed",), webhook_first),
    "webhook-at-the-same-moment": (("keyed",), webhook_meanwhile),
    "webhook-twice": (("keyed",), webhook_twice),
    "webhook-pays-too": (WAYS, webhook_pays),
}

ALONE: Mapping[str, Plan] = {
    "redis-flushed": (("keyed",), flushed),
}
