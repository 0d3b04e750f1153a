"""Four orders, and what became of them.

What is true of each is read from the provider's books, the carrier's labels and the shop's shelf,
not from what the saga says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from examples.order_saga import carrier, warehouse
from examples.order_saga.model import Arrival, Order
from examples.order_saga.saga import APPROVAL, DELIVERED, order_saga
from examples.refund_agent.payments import Payments
from examples.refund_agent.provider_faults import Fault
from examples.support.fleet import Fleet, victims
from examples.support.stage import SECONDS, until
from examples.support.waiting import wait_for
from fencepost import Fencepost, Status, faults
from fencepost.errors import ExecutionStateError

SHELF = 100
ALL_OF_THEM = 1_000
"""Times that a fault applies: always."""


@dataclass
class Told:
    """What came of one order.

    Attributes:
        status: Of its execution.
        said: The saga's result, or its error.
        facts: What was counted outside of it, and what it should be.
    """

    title: str
    order: Order
    execution_id: UUID
    status: Status
    said: str
    facts: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def as_it_should(self) -> bool:
        """Whether all facts are what they should be."""
        return all(found == expected for found, expected in self.facts.values())


class Shop:
    """Plays orders.

    Args:
        fp: The app's Fencepost.
        payments: The payment provider.
        fleet: The workers.
    """

    def __init__(self, fp: Fencepost, payments: Payments, fleet: Fleet) -> None:
        self._fp = fp
        self._payments = payments
        self._fleet = fleet

    def play(self) -> Iterator[Told]:
        """All stories, one after the other."""
        stories: Sequence[Callable[[], Told]] = (
            self.delivered,
            self.refused,
            self.cancelled,
            self.killed,
        )
        for story in stories:
            yield story()

    def delivered(self) -> Told:
        """A large order: a person agrees, the carrier is late once, and then it arrives."""
        order = self._order("order-1", cents=80_000, grams=45_000)
        execution_id = self._start(order)
        until(self._fp, execution_id, Status.WAITING)
        self._fp.approve(execution_id, APPROVAL, by="dana", why="a known customer")
        self._reminded(order)
        self._arrives(order)
        told = self._ending("a large order, approved and delivered", order, execution_id)
        return self._counted(told, charged=1, paid_back=0, carriers=["freight"], kept=1)

    def refused(self) -> Told:
        """The customer's bank declines: the goods go back to the shelf."""
        order = self._order("order-2")
        self._payments.arm(order.order_id, Fault.DECLINE, times=ALL_OF_THEM)
        execution_id = self._start(order)
        told = self._ending("the charge is refused", order, execution_id)
        return self._counted(told, charged=0, paid_back=0, carriers=[], kept=0)

    def cancelled(self) -> Told:
        """A large order that nobody has decided about is cancelled."""
        order = self._order("order-3", cents=90_000)
        execution_id = self._start(order)
        until(self._fp, execution_id, Status.WAITING)
        self._fp.cancel(execution_id, by="dana", why="the customer changed their mind")
        told = self._ending("cancelled while it waits for approval", order, execution_id)
        return self._counted(told, charged=0, paid_back=0, carriers=[], kept=0)

    def killed(self) -> Told:
        """The charge is booked, and the worker dies before that is on record."""
        order = self._order("order-4")
        plan = faults.arm(
            self._fleet.faults,
            "effect.applied",
            "kill",
            match={"key": f"{order.order_id}:charge"},
        )
        execution_id = self._start(order)
        self._fleet.lose(victims(self._fleet, [plan], SECONDS, "a worker to be killed"))
        self._arrives(order)
        told = self._ending("a worker killed between charge and checkpoint", order, execution_id)
        return self._counted(told, charged=1, paid_back=0, carriers=["parcel"], kept=1)

    # -- parts of them ---------------------------------------------------------------------

    def _order(self, order_id: str, *, cents: int = 4_900, grams: int = 800) -> Order:
        sku = f"sku-{order_id}"
        warehouse.fill(self._fp.database, sku, SHELF)
        return Order(order_id=order_id, sku=sku, quantity=1, cents=cents, grams=grams)

    def _start(self, order: Order) -> UUID:
        return self._fp.start(order_saga, order, key=order.order_id).execution_id

    def _reminded(self, order: Order) -> None:
        """Let one wait for the carrier run out."""
        first = self._expected(order)
        wait_for(lambda: self._expected(order) != first, SECONDS, "the first reminder")

    def _arrives(self, order: Order) -> None:
        """The carrier calls, again if it has met a wait that was over."""
        wait_for(lambda: self._called(order), SECONDS, f"{order.order_id} to be told of")

    def _called(self, order: Order) -> bool:
        """The carrier's call: it goes to whoever waits for this order."""
        arrival = Arrival(signed_by="the neighbour")
        try:
            self._fp.signal(UUID(self._expected(order)), DELIVERED, arrival, by="carrier")
        except ExecutionStateError:
            return False
        return True

    def _expected(self, order: Order) -> str:
        found = wait_for(
            lambda: warehouse.expected_by(self._fp.database, order.order_id),
            SECONDS,
            f"{order.order_id} to be on its way",
        )
        assert found is not None  # waited for
        return found

    def _ending(self, title: str, order: Order, execution_id: UUID) -> Told:
        outcome = self._fp.handle(execution_id, order_saga).wait(SECONDS)
        error = (outcome.error or {}).get("message", "")
        said = outcome.result if isinstance(outcome.result, str) else error
        return Told(title, order, execution_id, outcome.status, said)

    def _counted(
        self, told: Told, *, charged: int, paid_back: int, carriers: list[str], kept: int
    ) -> Told:
        order = told.order
        transfers = self._payments.audit(order.order_id)["transfers"]
        kinds = [transfer["kind"] for transfer in transfers]
        told.facts = {
            "charges": (kinds.count("charge"), charged),
            "refunds": (kinds.count("refund"), paid_back),
            "carriers": (carrier.booked(order.order_id), carriers),
            "taken from the shelf": (SHELF - warehouse.free(self._fp.database, order.sku), kept),
        }
        return told
