"""Plays windows on an app and counts, in the providers' ledgers, what came of them."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from examples.refund_agent import model
from examples.refund_agent.payments import Payments
from examples.refund_agent.provider import Mode
from examples.refund_agent.shop import Orders
from examples.refund_agent.sides import Case, Ending, FencepostSide, Side
from examples.refund_agent.windows import Window
from examples.support.fleet import Worker, victims
from examples.support.waiting import wait_for
from fencepost import faults

CASE_SECONDS = 60.0


@dataclass
class Cell:
    """What came of one case.

    Attributes:
        refunds: Amounts of the refunds in the provider's ledger, in cents.
        state: As the app knows it.
        told: What the customer is told; of a parked case, the reason.
        refused: What the provider has refused: codes.
        model_calls: Answers that the model gave.
        deliveries: Copies of the message that a worker has received.
        settled: Refunds after a person has decided about a parked case.
    """

    window: str
    mode: str
    side: str
    refunds: list[int]
    state: str
    told: str
    refused: list[str]
    model_calls: int
    deliveries: int
    settled: list[int] | None = None
    task_id: str = field(default="", repr=False)

    @property
    def times(self) -> int:
        """How often the customer was refunded."""
        return len(self.refunds)

    @property
    def misinformed(self) -> bool:
        """Whether the customer is told another sum than the ledger has."""
        return self.state == "succeeded" and told_cents(self.told) != sum(self.refunds)

    @property
    def kept_its_word(self) -> bool:
        """Whether it is as it should be: refunded once, or at most once and given to a person."""
        if self.state == "parked":
            return self.times <= 1 and (self.settled is None or len(self.settled) == 1)
        return self.state == "succeeded" and self.times == 1 and not self.misinformed

    def as_json(self) -> dict[str, Any]:
        """For the report."""
        return asdict(self) | {"times": self.times, "misinformed": self.misinformed}


def told_cents(told: str) -> int:
    """The amount in what a customer is told."""
    amount = re.search(r"\$([\d,]+(?:\.\d\d)?)", told)
    return round(float(amount[1].replace(",", "")) * 100) if amount else 0


class Player:
    """Plays windows on one app, all provider modes at once.

    Args:
        side: The app.
        providers: By mode.
        orders: The shop's orders.
        log: The folder of the model's log.
    """

    def __init__(
        self, side: Side, providers: Mapping[Mode, Payments], orders: Orders, log: Path
    ) -> None:
        self._side = side
        self._providers = providers
        self._orders = orders
        self._log = log
        self._plans: dict[str, Path] = {}

    def play(self, window: Window) -> list[Cell]:
        """Play a window; returns a cell for each provider."""
        self._side.fleet.wait_until_ready()
        cases = [self._prepare(window, mode) for mode in self._providers]
        for case in cases:
            self._side.start(case)
        if window.action is not None:
            plans = [self._plans[case.order.order_id] for case in cases]
            holders = victims(self._side.fleet, plans, CASE_SECONDS, f"{window.name} to happen")
            self._act(window.action, cases, holders)
        return [self._count(window, case) for case in cases]

    def _act(self, action: str, cases: Sequence[Case], holders: Sequence[Worker]) -> None:
        match action:
            case "kill":
                self._side.fleet.lose(list({worker.name: worker for worker in holders}.values()))
            case "overtake":
                self._overtake(cases)
            case _:
                for case in cases:
                    self._ending(case)
                for worker in holders:
                    worker.signal(signal.SIGCONT)

    def _prepare(self, window: Window, mode: Mode) -> Case:
        order = window.order(self._side.name, mode)
        self._orders.add(order)
        self._providers[mode].charge(order.order_id, order.total_cents)
        if window.provider is not None:
            provider = self._providers[mode]
            provider.arm(order.order_id, window.provider, seconds=window.seconds)
        if window.point is not None and window.action is not None:
            self._plans[order.order_id] = faults.arm(
                self._side.fleet.faults,
                window.point,
                # Who is killed stands still until all others have come to the point.
                "freeze-self" if window.action == "freeze" else "pause",
                match={"order": order.order_id},
                name=order.order_id,
            )
        return Case(mode, order, window.complaint(order, mode))

    def _overtake(self, cases: Sequence[Case]) -> None:
        """While the first copies stand still, let second ones come and go."""
        for case in cases:
            self._side.deliver_again(case)
        for case in cases:
            wait_for(
                lambda case=case: self._side.fleet.deliveries(case.task_id)[1] > 0,  # type: ignore[misc]
                CASE_SECONDS,
                f"the second copy of {case.order.order_id}",
            )
            self._plans[case.order.order_id].with_suffix(".go").touch()

    def _ending(self, case: Case) -> Ending:
        what = f"the end of {case.order.order_id}"
        ending = wait_for(lambda: self._side.ending(case), CASE_SECONDS, what)
        assert ending is not None  # waited for
        return ending

    def _count(self, window: Window, case: Case) -> Cell:
        """Wait until no copy is under way any more, zombies included, and count."""
        self._ending(case)
        lost = 1 if window.action == "kill" else 0

        def all_copies_ended() -> bool:
            received, ended = self._side.fleet.deliveries(case.task_id)
            return received == ended + lost and self._side.quiet()

        wait_for(all_copies_ended, CASE_SECONDS, f"the last copy of {case.order.order_id}")
        ending = self._ending(case)
        audit = self._providers[case.mode].audit(case.order.order_id)
        calls = [c for c in model.calls_made(self._log) if c["order"] == case.order.order_id]
        return Cell(
            window=window.name,
            mode=case.mode,
            side=self._side.name,
            refunds=refunds_in(audit),
            state=ending.state,
            told=ending.told,
            refused=[refusal["code"] for refusal in audit["refusals"]],
            model_calls=len(calls),
            deliveries=self._side.fleet.deliveries(case.task_id)[0],
            task_id=case.task_id,
        )

    def settle(self, window: Window, cells: Sequence[Cell]) -> None:
        """Decide about parked cases as a person would: by the provider's statement."""
        assert isinstance(self._side, FencepostSide)
        for cell in cells:
            mode = Mode(cell.mode)
            order = window.order(self._side.name, mode)
            case = Case(mode, order, window.complaint(order, mode), cell.task_id)
            provider = self._providers[mode]
            booked = list(_refunds(provider.audit(order.order_id)))
            self._side.settle(case, booked[0] if booked else None)
            self._ending(case)
            cell.settled = refunds_in(provider.audit(order.order_id))


def refunds_in(audit: dict[str, Any]) -> list[int]:
    """Amounts of an order's refunds, in cents."""
    return [refund["amount_cents"] for refund in _refunds(audit)]


def _refunds(audit: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (t for t in audit["transfers"] if t["kind"] == "refund")
