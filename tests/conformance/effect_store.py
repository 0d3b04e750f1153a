"""What every effect store must do: subclass it and give the fixtures."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, cast
from uuid import uuid4

import pytest

from fencepost import serde
from fencepost.effects.model import EffectIntent, EffectKind, EffectRecord, EffectStatus
from fencepost.errors import (
    EffectKeyConflictError,
    EffectNotFoundError,
    ExecutionLeaseLostError,
    ExecutionStateError,
    StaleLeaseFenceError,
)
from fencepost.ports import EffectStore, ExecutionStore
from fencepost.records import Event, EventName, Status
from tests.conformance.support import (
    LATER,
    Worker,
    at_once,
    eventually,
    milliseconds,
    names,
    started,
)
from tests.conformance.transactions import transact

SINK = "payments"
REQUEST = {"order": 42, "amount": "9.99", "größe": [1, None, "🦀"]}
TROUBLE = {"error_type": "TimeoutError", "message": "no answer"}
UNKNOWN = (EffectStatus.INTENT, EffectStatus.IN_DOUBT)
NOTHING = (EffectStatus.REFUSED, EffectStatus.NOT_LANDED)


def intent_of(
    worker: Worker, key: str = "order:42", request: Any = REQUEST, **fields: Any
) -> EffectIntent:
    return EffectIntent(
        **{
            "token": worker.token(),
            "sink": SINK,
            "key": key,
            "effect": "refund",
            "kind": EffectKind.IDEMPOTENT,
            "resource": str(worker.execution_id),
            "request": request,
            "request_digest": serde.digest(request),
            **fields,
        }
    )


def park(worker: Worker) -> None:
    worker.store.park(worker.token(), "in doubt", None)


def recorded(effects: EffectStore, worker: Worker, key: str = "order:42") -> EffectRecord:
    (record,) = [e for e in effects.of_execution(worker.execution_id) if e.key == key]
    return record


def wait_until_older(effects: EffectStore, worker: Worker, key: str, than: timedelta) -> None:
    eventually(lambda: recorded(effects, worker, key).since_last_call > than)


def ageless(record: EffectRecord) -> EffectRecord:
    """Without what changes by itself."""
    zero = timedelta(0)
    return replace(record, since_first_call=zero, since_last_call=zero)


def refusal(store: ExecutionStore, worker: Worker) -> Event:
    """The one refused write on record."""
    events = store.events([worker.execution_id])
    (event,) = [event for event in events if event.name == EventName.LEASE_LOST]
    return event


def brought_to(
    effects: EffectStore, worker: Worker, status: EffectStatus, key: str = "order:42"
) -> Worker:
    """Record an effect of that status; returns the execution's owner afterwards."""
    effects.intend(intent_of(worker, key))
    match status:
        case EffectStatus.INTENT:
            pass
        case EffectStatus.CONFIRMED:
            effects.conclude(worker.token(), SINK, key, status, result={"id": "r1"})
        case EffectStatus.IN_DOUBT | EffectStatus.REFUSED:
            effects.conclude(worker.token(), SINK, key, status, error=TROUBLE)
        case EffectStatus.NOT_LANDED:
            park(worker)
            effects.resolve(SINK, key, landed=False, result=None, by="ada", why="asked them")
            worker.store.unpark(worker.execution_id, "resolved")
            worker = Worker.take(worker.store, worker.execution_id)
    assert recorded(effects, worker, key).status is status
    return worker


class EffectStoreConformance:
    """The whole contract.

    Fixtures to give: `store`, the executions; `effects`, on the same database; `ledger`, as in
    `ExecutionStoreConformance`.
    """

    # -- intents -----------------------------------------------------------------------------

    def test_an_intent_is_recorded_and_announces_a_call(self, store, effects):
        worker = started(store)
        intent = intent_of(worker)
        record, created = effects.intend(intent)
        assert created
        assert (record.sink, record.key, record.effect) == (SINK, "order:42", "refund")
        assert record.execution_id == worker.execution_id
        assert record.step_key == intent.token.step_key
        assert (record.kind, record.resource) == (intent.kind, intent.resource)
        assert (record.request, record.request_digest) == (REQUEST, intent.request_digest)
        assert (record.status, record.calls) == (EffectStatus.INTENT, 1)
        assert (record.epoch, record.owner) == (1, worker.owner)
        assert (record.result, record.error, record.resolution) == (None, None, None)
        assert record.confirmed_at is None
        assert record.created_at.utcoffset() == timedelta(0)
        assert timedelta(0) <= record.since_first_call < timedelta(seconds=30)
        (found,) = effects.of_execution(worker.execution_id)
        assert ageless(found) == ageless(record)

    def test_the_same_intent_again_is_found(self, store, effects):
        worker = started(store)
        first, _ = effects.intend(intent_of(worker))
        again, created = effects.intend(intent_of(worker))
        assert not created
        assert ageless(again) == ageless(first)

    def test_a_successors_intent_finds_its_predecessors(self, store, effects):
        worker = started(store)
        first, _ = effects.intend(intent_of(worker))
        successor = Worker.take(store, worker.execution_id)
        again, created = effects.intend(intent_of(successor))
        assert not created
        assert (again.epoch, again.owner, again.calls) == (1, worker.owner, 1)
        assert ageless(again) == ageless(first)

    @pytest.mark.parametrize("status", list(EffectStatus))
    def test_a_key_stands_for_one_request(self, store, effects, status):
        worker = brought_to(effects, started(store), status)
        before = recorded(effects, worker)
        with pytest.raises(EffectKeyConflictError) as caught:
            effects.intend(intent_of(worker, request={"order": 42, "amount": "10.00"}))
        assert caught.value.code == "effect.key-conflict"
        assert caught.value.fields["recorded_digest"] == before.request_digest
        assert caught.value.fields["execution_id"] == str(worker.execution_id)
        assert ageless(recorded(effects, worker)) == ageless(before)

    def test_a_key_stands_for_one_effect(self, store, effects):
        worker = started(store)
        effects.intend(intent_of(worker))
        with pytest.raises(EffectKeyConflictError, match="charge"):
            effects.intend(intent_of(worker, effect="charge"))

    def test_a_key_stands_for_one_request_whoever_asks(self, store, effects):
        effects.intend(intent_of(started(store)))
        other = started(store)
        with pytest.raises(EffectKeyConflictError):
            effects.intend(intent_of(other, request={"order": 43}))
        assert effects.of_execution(other.execution_id) == []

    def test_sinks_have_keys_of_their_own(self, store, effects):
        worker = started(store)
        effects.intend(intent_of(worker))
        _, created = effects.intend(intent_of(worker, sink="mail", request={"to": "x"}))
        assert created
        assert len(effects.of_execution(worker.execution_id)) == 2

    @pytest.mark.parametrize("status", [*UNKNOWN, EffectStatus.CONFIRMED])
    def test_another_execution_finds_what_may_have_landed(self, store, effects, status):
        worker = brought_to(effects, started(store), status)
        other = started(store)
        record, created = effects.intend(intent_of(other))
        assert not created
        assert (record.execution_id, record.status) == (worker.execution_id, status)
        assert effects.of_execution(other.execution_id) == []

    @pytest.mark.parametrize("status", NOTHING)
    @pytest.mark.parametrize("same", [True, False], ids=["same-execution", "another-execution"])
    def test_a_key_for_which_nothing_has_landed_is_taken_again(self, store, effects, status, same):
        worker = brought_to(effects, started(store), status)
        other = worker if same else started(store)
        record, created = effects.intend(intent_of(other))
        assert created
        assert (record.status, record.calls) == (EffectStatus.INTENT, 2)
        assert (record.execution_id, record.epoch) == (other.execution_id, other.epoch)
        assert record.owner == other.owner
        assert (record.result, record.error, record.resolution) == (None, None, None)
        assert record.step_key == other.token().step_key
        again, created = effects.intend(intent_of(other))
        assert not created
        assert ageless(again) == ageless(record)

    def test_of_many_intents_at_once_one_is_created(self, store, effects):
        workers = [started(store) for _ in range(4)]
        intents = [intent_of(worker) for worker in workers for _ in range(2)]
        answers = at_once([partial(effects.intend, intent) for intent in intents])
        assert sum(created for _, created in answers) == 1
        (winner,) = {record.execution_id for record, _ in answers}
        assert sum(len(effects.of_execution(w.execution_id)) for w in workers) == 1
        assert winner in {worker.execution_id for worker in workers}

    def test_of_many_that_take_a_free_key_again_one_does(self, store, effects):
        brought_to(effects, started(store), EffectStatus.REFUSED)
        workers = [started(store) for _ in range(6)]
        answers = at_once([partial(effects.intend, intent_of(worker)) for worker in workers])
        assert sum(created for _, created in answers) == 1
        assert {record.calls for record, _ in answers} == {2}

    def test_of_many_requests_at_once_one_gets_the_key(self, store, effects):
        workers = [started(store) for _ in range(6)]
        intents = [intent_of(worker, request={"n": n}) for n, worker in enumerate(workers)]
        answers = at_once([partial(effects.intend, intent) for intent in intents])
        assert sum(isinstance(answer, EffectKeyConflictError) for answer in answers) == 5
        ((record, created),) = [answer for answer in answers if isinstance(answer, tuple)]
        assert created
        assert record.request == {"n": [w.execution_id for w in workers].index(record.execution_id)}

    def test_what_is_stored_is_not_the_callers_object(self, store, effects):
        worker = started(store)
        request, result = {"items": [1]}, {"ids": [1]}
        effects.intend(intent_of(worker, request=request))
        effects.conclude(worker.token(), SINK, "order:42", EffectStatus.CONFIRMED, result=result)
        request["items"].append(2)
        result["ids"].append(2)
        record = recorded(effects, worker)
        assert (record.request, record.result) == ({"items": [1]}, {"ids": [1]})

    # -- calls and outcomes --------------------------------------------------------------------

    def test_each_call_is_announced(self, store, effects):
        worker = started(store)
        effects.intend(intent_of(worker))
        effects.conclude(worker.token(), SINK, "order:42", EffectStatus.IN_DOUBT, error=TROUBLE)
        successor = Worker.take(store, worker.execution_id)
        record = effects.announce(successor.token(), SINK, "order:42")
        assert (record.status, record.calls) == (EffectStatus.INTENT, 2)
        assert (record.epoch, record.owner) == (2, successor.owner)

    @pytest.mark.parametrize("result", [None, False, 0, "", [], {"größe": "🦀"}])
    def test_a_confirmed_effect_has_its_result(self, store, effects, result):
        worker = started(store)
        effects.intend(intent_of(worker))
        token = worker.token()
        record = effects.conclude(token, SINK, "order:42", EffectStatus.CONFIRMED, result=result)
        assert (record.status, record.result) == (EffectStatus.CONFIRMED, result)
        assert record.confirmed_at is not None
        assert record.confirmed_at >= record.created_at
        assert ageless(recorded(effects, worker)) == ageless(record)

    @pytest.mark.parametrize(
        "later", [EffectStatus.IN_DOUBT, EffectStatus.REFUSED, EffectStatus.CONFIRMED]
    )
    def test_a_confirmed_effect_stays_confirmed(self, store, effects, later):
        worker = brought_to(effects, started(store), EffectStatus.CONFIRMED)
        before = recorded(effects, worker)
        token = worker.token()
        effects.conclude(token, SINK, "order:42", later, result={"id": "r2"}, error=TROUBLE)
        effects.announce(token, SINK, "order:42")
        effects.reopen(token, SINK, "order:42", TROUBLE)
        record, created = effects.intend(intent_of(worker))
        assert not created
        assert ageless(record) == ageless(before)
        assert EventName.EFFECT_IN_DOUBT not in names(store, worker.execution_id)

    def test_an_outcome_in_doubt_is_in_the_audit_trail(self, store, effects):
        worker = brought_to(effects, started(store), EffectStatus.IN_DOUBT)
        assert recorded(effects, worker).error == TROUBLE
        event = store.events([worker.execution_id])[-1]
        assert event.name == EventName.EFFECT_IN_DOUBT
        assert (event.epoch, event.owner, event.sink) == (1, worker.owner, SINK)
        assert event.step_key == worker.token().step_key
        assert event.details == {"key": "order:42", "effect": "refund", "error": TROUBLE}

    def test_nobody_concludes_what_another_execution_has_taken(self, store, effects):
        worker = brought_to(effects, started(store), EffectStatus.REFUSED)
        other = started(store)
        effects.intend(intent_of(other))
        before = recorded(effects, other)
        token = worker.token()
        effects.announce(token, SINK, "order:42")
        effects.conclude(token, SINK, "order:42", EffectStatus.CONFIRMED, result={"id": "late"})
        assert ageless(recorded(effects, other)) == ageless(before)

    def test_ages_count_by_the_stores_clock(self, store, effects):
        worker = started(store)
        first, _ = effects.intend(intent_of(worker))

        later = first.since_last_call + milliseconds(30)
        wait_until_older(effects, worker, "order:42", later)
        aged = recorded(effects, worker)
        assert aged.since_first_call > first.since_first_call
        again = effects.announce(worker.token(), SINK, "order:42")
        # The announcement starts one clock anew, and not the other.
        assert again.since_last_call < again.since_first_call
        assert again.since_first_call >= aged.since_first_call

    def test_a_key_taken_again_is_as_young_as_its_new_call(self, store, effects):
        worker = brought_to(effects, started(store), EffectStatus.REFUSED)
        wait_until_older(effects, worker, "order:42", milliseconds(30))
        before = recorded(effects, worker)
        record, _ = effects.intend(intent_of(worker))
        assert abs(record.since_first_call - record.since_last_call) < milliseconds(1)
        assert record.since_first_call < before.since_first_call
        assert record.created_at == before.created_at

    # -- fencing -------------------------------------------------------------------------------

    @staticmethod
    def writes(effects: EffectStore, worker: Worker) -> dict[str, tuple[Any, Any]]:
        """Every fenced write about a recorded effect, and the payload that it carries."""
        token = worker.token()
        confirm = partial(effects.conclude, token, SINK, "order:42", EffectStatus.CONFIRMED)
        doubt = partial(effects.conclude, token, SINK, "order:42", EffectStatus.IN_DOUBT)
        return {
            "intend": (partial(effects.intend, intent_of(worker)), REQUEST),
            "announce": (partial(effects.announce, token, SINK, "order:42"), None),
            "confirm": (partial(confirm, result={"id": "r1"}), {"id": "r1"}),
            "confirm-nothing": (partial(confirm, result=None), None),
            "doubt": (partial(doubt, error=TROUBLE), TROUBLE),
            "reopen": (partial(effects.reopen, token, SINK, "order:42", TROUBLE), TROUBLE),
        }

    @pytest.mark.parametrize(
        "write", ["intend", "announce", "confirm", "confirm-nothing", "doubt", "reopen"]
    )
    def test_a_zombies_write_is_refused_and_put_on_record(self, store, effects, write):
        worker = started(store)
        if write != "intend":
            effects.intend(intent_of(worker))
        before = [ageless(e) for e in effects.of_execution(worker.execution_id)]
        successor = Worker.take(store, worker.execution_id)
        late, payload = self.writes(effects, worker)[write]
        with pytest.raises(ExecutionLeaseLostError) as caught:
            late()
        assert caught.value.code == "execution.lease-lost"
        assert (caught.value.held, caught.value.current) == (1, 2)
        assert caught.value.fields["step_key"] == worker.token().step_key
        assert [ageless(e) for e in effects.of_execution(worker.execution_id)] == before
        event = refusal(store, worker)
        assert event.sink == SINK
        assert event.payload_digest == serde.digest(payload)
        assert (event.epoch, event.current_epoch) == (1, 2)
        assert (event.owner, event.current_owner) == (worker.owner, successor.owner)
        assert event.step_key == worker.token().step_key

    @pytest.mark.parametrize("forged", [{"owner": "another"}, {"epoch": 0}, {"epoch": 2}])
    def test_neither_epoch_nor_owner_alone_is_trusted(self, store, effects, forged):
        worker = started(store)
        effects.intend(intent_of(worker))
        before = recorded(effects, worker)
        token = replace(worker.token(), **forged)
        with pytest.raises(ExecutionLeaseLostError):
            effects.conclude(token, SINK, "order:42", EffectStatus.CONFIRMED, result=1)
        with pytest.raises(ExecutionLeaseLostError):
            effects.intend(intent_of(worker, "order:43", token=token))
        assert [ageless(e) for e in effects.of_execution(worker.execution_id)] == [ageless(before)]

    def test_one_who_handed_back_is_fenced_at_the_same_epoch(self, store, effects):
        worker = started(store)
        store.hand_back(worker.token(), LATER)
        with pytest.raises(ExecutionLeaseLostError):
            effects.intend(intent_of(worker))
        assert effects.of_execution(worker.execution_id) == []

    def test_a_takeover_and_a_late_confirmation_exclude_each_other_or_follow(self, store, effects):
        for number in range(10):
            worker = started(store)
            key = f"order:{number}"
            effects.intend(intent_of(worker, key))
            late = partial(
                effects.conclude, worker.token(), SINK, key, EffectStatus.CONFIRMED, result=1
            )

            def take_over(worker: Worker = worker, key: str = key) -> EffectRecord:
                Worker.take(store, worker.execution_id)
                return recorded(effects, worker, key)

            confirmed, seen = at_once([late, take_over])
            # What a new owner finds is the whole truth: nothing is confirmed behind its back.
            assert ageless(recorded(effects, worker, key)) == ageless(seen)
            assert isinstance(confirmed, EffectRecord) == (seen.status is EffectStatus.CONFIRMED)

    # -- transactional effects -----------------------------------------------------------------

    def test_a_transactional_effect_lands_with_its_checkpoint(self, store, effects, ledger):
        worker = started(store)
        intent = intent_of(worker, kind=EffectKind.TRANSACTIONAL)
        commit = worker.extension("stage", {"done": True})
        with store.transaction(commit.token) as transaction:
            with effects.in_session(transaction.session, intent) as record:
                assert record is None
                ledger.write(transaction.session, "booked")
                effects.confirm_in_session(transaction.session, intent, {"id": "b1"})
            assert effects.of_execution(worker.execution_id) == []
            transaction.commit(commit)
        record = recorded(effects, worker)
        assert (record.status, record.result) == (EffectStatus.CONFIRMED, {"id": "b1"})
        assert (record.epoch, record.owner, record.calls) == (1, worker.owner, 1)
        assert record.confirmed_at is not None
        assert ledger.written() == ["booked"]

    def test_a_transactional_effect_is_found_in_its_own_transaction(self, store, effects, ledger):
        worker = started(store)
        intent = intent_of(worker, kind=EffectKind.TRANSACTIONAL)
        with store.transaction(worker.token()) as transaction:
            with effects.in_session(transaction.session, intent):
                effects.confirm_in_session(transaction.session, intent, {"id": "b1"})
            with effects.in_session(transaction.session, intent) as record:
                assert record is not None
                assert (record.status, record.result) == (EffectStatus.CONFIRMED, {"id": "b1"})
        assert effects.of_execution(worker.execution_id) == []

    def test_what_fails_inside_leaves_nothing_and_the_step_may_go_on(self, store, effects, ledger):
        worker = started(store)
        intent = intent_of(worker, kind=EffectKind.TRANSACTIONAL)

        def fail(session: Any) -> None:
            with effects.in_session(session, intent):
                ledger.write(session, "dropped")
                raise ZeroDivisionError

        def body(session: Any) -> None:
            ledger.write(session, "before")
            with pytest.raises(ZeroDivisionError):
                fail(session)
            ledger.write(session, "after")

        transact(store, worker.extension("stage", {"done": True}), body)
        assert ledger.written() == ["after", "before"]
        assert effects.of_execution(worker.execution_id) == []

    def test_a_zombies_transactional_effect_lands_nowhere(self, store, effects, ledger):
        worker = started(store)
        intent = intent_of(worker, kind=EffectKind.TRANSACTIONAL)
        Worker.take(store, worker.execution_id)

        def body(session: Any) -> None:
            with effects.in_session(session, intent):
                ledger.write(session, "late")
                effects.confirm_in_session(session, intent, {"id": "late"})

        with pytest.raises(StaleLeaseFenceError):
            transact(store, worker.extension("stage"), body)
        assert effects.of_execution(worker.execution_id) == []
        assert ledger.written() == []

    def test_of_two_transactions_with_one_key_one_lands(self, store, effects, ledger):
        def book(worker: Worker) -> Any:
            intent = intent_of(worker, "book:1", kind=EffectKind.TRANSACTIONAL)

            def body(session: Any) -> None:
                with effects.in_session(session, intent) as record:
                    if record is None:
                        ledger.write(session, "booked")
                        effects.confirm_in_session(session, intent, {"id": "b1"})
                    else:
                        assert record.status is EffectStatus.CONFIRMED
                        assert record.result == {"id": "b1"}

            return transact(store, worker.extension("stage"), body)

        workers = [started(store) for _ in range(4)]
        at_once([partial(book, worker) for worker in workers])
        assert ledger.written() == ["booked"]
        landed = [e for w in workers for e in effects.of_execution(w.execution_id)]
        assert [effect.status for effect in landed] == [EffectStatus.CONFIRMED]
        assert len(store.chain(landed[0].execution_id)) == 2

    # -- listing -------------------------------------------------------------------------------

    def test_the_effects_of_an_execution_come_oldest_first(self, store, effects):
        worker, other = started(store), started(store)
        for key in ("b", "a", "c"):
            effects.intend(intent_of(worker, key))
            wait_until_older(effects, worker, key, milliseconds(2))
        effects.intend(intent_of(other, "d"))
        assert [e.key for e in effects.of_execution(worker.execution_id)] == ["b", "a", "c"]
        assert effects.of_execution(uuid4()) == []

    def test_an_effect_is_found_by_its_sink_and_key(self, store, effects):
        worker = started(store)
        effects.intend(intent_of(worker, "a"))
        found = effects.find(SINK, "a")
        assert found is not None
        assert ageless(found) == ageless(recorded(effects, worker, "a"))
        assert effects.find(SINK, "b") is None
        assert effects.find("mail", "a") is None

    def test_in_doubt_lists_unknown_outcomes_of_parked_executions_only(self, store, effects):
        parked = {}
        for status in EffectStatus:
            worker = brought_to(effects, started(store), status, f"parked:{status}")
            park(worker)
            parked[status] = worker
        for status in UNKNOWN:
            brought_to(effects, started(store), status, f"active:{status}")
        found = effects.in_doubt(100)
        assert {e.key for e in found} == {f"parked:{status}" for status in UNKNOWN}
        assert [e.created_at for e in found] == sorted(e.created_at for e in found)
        assert len(effects.in_doubt(1)) == 1
        store.unpark(parked[EffectStatus.IN_DOUBT].execution_id, "goes on")
        assert [e.key for e in effects.in_doubt(100)] == ["parked:intent"]

    # -- people --------------------------------------------------------------------------------

    @pytest.mark.parametrize("status", UNKNOWN)
    @pytest.mark.parametrize("landed", [True, False], ids=["landed", "not-landed"])
    def test_a_person_decides(self, store, effects, status, landed):
        worker = brought_to(effects, started(store), status)
        park(worker)
        record = effects.resolve(
            SINK, "order:42", landed=landed, result={"id": "r9"}, by="ada", why="in the statement"
        )
        assert record.status is (EffectStatus.CONFIRMED if landed else EffectStatus.NOT_LANDED)
        assert record.result == ({"id": "r9"} if landed else None)
        assert (record.confirmed_at is not None) is landed
        decision = {"landed": landed, "by": "ada", "why": "in the statement"}
        assert record.resolution == decision
        assert (record.epoch, record.owner) == (1, worker.owner)
        assert ageless(recorded(effects, worker)) == ageless(record)
        event = store.events([worker.execution_id])[-1]
        assert event.name == EventName.EFFECT_RESOLVED
        assert (event.sink, event.step_key) == (SINK, worker.token().step_key)
        assert event.details == {"key": "order:42", "effect": "refund", **decision}
        assert effects.in_doubt(100) == []
        assert worker.execution.status is Status.PARKED

    @pytest.mark.parametrize("status", [s for s in EffectStatus if s not in UNKNOWN])
    def test_nobody_decides_about_what_is_known(self, store, effects, status):
        worker = brought_to(effects, started(store), status)
        park(worker)
        before = recorded(effects, worker)
        with pytest.raises(ExecutionStateError) as caught:
            effects.resolve(SINK, "order:42", landed=True, result=1, by="ada", why="why not")
        assert caught.value.code == "execution.wrong-state"
        assert caught.value.fields["status"] == status
        assert ageless(recorded(effects, worker)) == ageless(before)

    def test_nobody_decides_while_an_owner_may_be_calling(self, store, effects):
        worker = brought_to(effects, started(store), EffectStatus.IN_DOUBT)
        with pytest.raises(ExecutionStateError, match="not parked"):
            effects.resolve(SINK, "order:42", landed=True, result=1, by="ada", why="impatient")
        assert recorded(effects, worker).status is EffectStatus.IN_DOUBT
        assert EventName.EFFECT_RESOLVED not in names(store, worker.execution_id)

    def test_nobody_decides_about_what_is_not_there(self, effects):
        with pytest.raises(EffectNotFoundError) as caught:
            effects.resolve(SINK, "nothing", landed=True, result=1, by="ada", why="typo")
        assert caught.value.code == "effect.not-found"

    def test_of_operators_who_decide_at_once_one_wins(self, store, effects):
        for number in range(5):
            key = f"order:{number}"
            worker = brought_to(effects, started(store), EffectStatus.IN_DOUBT, key)
            park(worker)
            operators = [
                partial(effects.resolve, SINK, key, landed=landed, result=1, by=by, why="I looked")
                for by, landed in (("ada", True), ("bob", False), ("eve", True))
            ]
            answers = at_once(operators)
            (won,) = [answer for answer in answers if isinstance(answer, EffectRecord)]
            lost = [answer for answer in answers if isinstance(answer, ExecutionStateError)]
            assert len(lost) == 2
            assert all(won.resolution["by"] in str(answer) for answer in lost)
            assert ageless(recorded(effects, worker, key)) == ageless(won)
            assert names(store, worker.execution_id).count(EventName.EFFECT_RESOLVED) == 1

    def test_a_decision_and_the_way_on_exclude_each_other(self, store, effects):
        for number in range(5):
            key = f"order:{number}"
            worker = brought_to(effects, started(store), EffectStatus.IN_DOUBT, key)
            park(worker)

            def go_on(worker: Worker = worker, key: str = key) -> EffectRecord:
                store.unpark(worker.execution_id, "look again")
                successor = Worker.take(store, worker.execution_id)
                record, _ = effects.intend(intent_of(successor, key))
                return cast(EffectRecord, record)

            resolve = partial(
                effects.resolve, SINK, key, landed=True, result=1, by="ada", why="I looked"
            )
            decided, seen = at_once([resolve, go_on])
            # Once an owner has seen it in doubt, nobody decides any more.
            expected = EffectStatus.IN_DOUBT
            if isinstance(decided, EffectRecord):
                expected = EffectStatus.CONFIRMED
            assert seen.status is expected
            assert recorded(effects, worker, key).status is expected

    def test_a_decision_that_cant_be_used_is_put_back_in_doubt(self, store, effects):
        worker = brought_to(effects, started(store), EffectStatus.INTENT)
        park(worker)
        effects.resolve(SINK, "order:42", landed=True, result="typo", by="ada", why="I looked")
        store.unpark(worker.execution_id, "resolved")
        successor = Worker.take(store, worker.execution_id)
        record = effects.reopen(successor.token(), SINK, "order:42", TROUBLE)
        assert (record.status, record.result) == (EffectStatus.IN_DOUBT, None)
        assert (record.error, record.confirmed_at) == (TROUBLE, None)
        assert (record.epoch, record.owner) == (2, successor.owner)
        park(successor)
        again = effects.resolve(SINK, "order:42", landed=True, result={"id": 1}, by="ada", why="!")
        assert again.status is EffectStatus.CONFIRMED
