"""The conformance suite for fenced sinks, yours included.

    class MySink(SinkUnderTest):
        ...                                  # four methods around your sink

    class TestMySink(FencedSinkConformance):
        @pytest.fixture
        def sink(self, tmp_path):
            return MySink(tmp_path)

Needs pytest: `pip install "fencepost[testing]"`.
"""

from __future__ import annotations

import functools
import inspect
import multiprocessing
import pickle
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid4

import pytest

from fencepost.errors import EffectKeyConflictError, FenceError, StaleLeaseFenceError
from fencepost.fence import FenceToken
from fencepost.sinks.contract import Applied, Claim, Refusal, SinkBusyError, SinkCall
from fencepost.testing._preemption import Call, at_every_line

__all__ = ["FencedSinkConformance", "SinkUnderTest"]

THREADS = 8
PROCESSES = 2
WRITES = 25
"""By each process."""
SECONDS = 30.0


class SinkUnderTest(ABC):
    """Your sink, and how to look into it.

    The suite pickles it, to use it in other processes and to see it start again: keep addresses in
    it, and open connections when they are needed.
    """

    @abstractmethod
    def advance(self, resource: str, token: FenceToken) -> None:
        """Your sink's `advance`."""

    @abstractmethod
    def write(self, call: SinkCall, value: str) -> Applied[str]:
        """Append a text to what the resource holds, by your sink's fenced write.

        The receipt's result must be the text.
        """

    @abstractmethod
    def landed(self, resource: str) -> list[str]:
        """All texts that have landed at a resource, doubled ones twice; asked of the storage."""

    def refusals(self, resource: str) -> Sequence[Refusal] | None:
        """The refused writes on record, oldest first; None if your sink keeps no record."""
        del resource
        return None

    def code(self) -> Iterable[str]:
        """Names of the source files in which a write is stopped, line by line.

        By default the file of this class. Add your sink's, if that is another:
        `[inspect.getsourcefile(my_sink)]`.
        """
        return [inspect.getsourcefile(type(self)) or ""]

    def started_again(self) -> Self:
        """The same sink, as another process would open it."""
        again: Self = pickle.loads(pickle.dumps(self))  # noqa: S301 - our own
        return again


class FencedSinkConformance:
    """What every fenced sink must do. Override the fixture `sink`."""

    @pytest.fixture
    def sink(self) -> SinkUnderTest:
        """A new, empty sink."""
        raise NotImplementedError("override the fixture `sink`")

    @pytest.fixture
    def resource(self) -> str:
        """Some resource."""
        return f"order:{uuid4().hex[:8]}"

    # -- one writer ------------------------------------------------------------------------

    def test_a_write_lands(self, sink: SinkUnderTest, resource: str) -> None:
        """Once, and the receipt says so."""
        receipt = sink.write(call(resource, owner(1)), "a")
        assert (receipt.result, receipt.replayed) == ("a", False)
        assert receipt.epoch in (None, 1)
        assert sink.landed(resource) == ["a"]

    def test_a_key_is_applied_once(self, sink: SinkUnderTest, resource: str) -> None:
        """Its first result is returned again."""
        again = call(resource, owner(1))
        sink.write(again, "a")
        for _ in range(2):
            receipt = sink.write(again, "a")
            assert (receipt.result, receipt.replayed) == ("a", True)
        assert sink.landed(resource) == ["a"]

    def test_each_key_is_applied(self, sink: SinkUnderTest, resource: str) -> None:
        """An owner may write as often as it likes: its own epoch always passes."""
        mine = owner(1)
        for value in "abc":
            sink.write(call(resource, mine), value)
        assert sink.landed(resource) == ["a", "b", "c"]

    def test_a_used_key_never_lands_another_value(self, sink: SinkUnderTest, resource: str) -> None:
        """It is the first result again, or a conflict."""
        again = call(resource, owner(1))
        sink.write(again, "a")
        with suppress(EffectKeyConflictError):
            assert sink.write(again, "b").result == "a", "the second value was taken for the first"
        assert sink.landed(resource) == ["a"]

    def test_a_used_key_with_another_digest_is_a_conflict(
        self, sink: SinkUnderTest, resource: str
    ) -> None:
        """Never a silent replay."""
        first = replace(call(resource, owner(1)), digest="sha256:1")
        sink.write(first, "a")
        with pytest.raises(EffectKeyConflictError):
            sink.write(replace(first, digest="sha256:2"), "b")
        assert sink.write(first, "a").replayed
        assert sink.landed(resource) == ["a"]

    # -- the fence -------------------------------------------------------------------------

    def test_advancing_writes_nothing(self, sink: SinkUnderTest, resource: str) -> None:
        """And may be repeated."""
        mine = owner(2)
        for _ in range(2):
            sink.advance(resource, mine)
        assert sink.landed(resource) == []
        assert not sink.write(call(resource, mine), "a").replayed

    def test_a_stale_write_is_refused(self, sink: SinkUnderTest, resource: str) -> None:
        """Before the new owner has written anything: that is what the fence is for."""
        zombie = owner(1)
        sink.write(call(resource, zombie), "a")
        sink.advance(resource, successor(zombie))
        with pytest.raises(StaleLeaseFenceError) as caught:
            sink.write(call(resource, zombie), "b")
        error = caught.value
        assert (error.held, error.current) == (1, 2), "the error has both epochs"
        assert error.fields["execution_id"] == str(zombie.execution_id)
        assert pickle.loads(pickle.dumps(error)).held == 1  # noqa: S301 - our own
        assert sink.landed(resource) == ["a"]

    def test_a_first_write_can_be_stale(self, sink: SinkUnderTest, resource: str) -> None:
        """The sink has seen nothing but the raised mark."""
        zombie = owner(4)
        sink.advance(resource, successor(zombie))
        with refused():
            sink.write(call(resource, zombie), "a")
        assert sink.landed(resource) == []

    def test_a_write_raises_the_mark(self, sink: SinkUnderTest, resource: str) -> None:
        """As `advance` does."""
        zombie = owner(1)
        sink.write(call(resource, successor(zombie)), "a")
        with refused():
            sink.write(call(resource, zombie), "b")
        with refused():
            sink.advance(resource, zombie)
        assert sink.landed(resource) == ["a"]

    def test_a_refused_attempt_does_not_lower_the_mark(
        self, sink: SinkUnderTest, resource: str
    ) -> None:
        """Nor use its key up."""
        first = owner(1)
        second, third = successor(first), successor(successor(first))
        sink.advance(resource, third)
        late = call(resource, first)
        for stale in (first, second):
            with refused():
                sink.write(replace(late, token=stale), "a")
            with refused():
                sink.advance(resource, stale)
        receipt = sink.write(replace(late, token=third), "a")
        assert not receipt.replayed
        assert sink.landed(resource) == ["a"]

    def test_a_zombie_is_refused_even_where_its_key_is_known(
        self, sink: SinkUnderTest, resource: str
    ) -> None:
        """It must learn that it is one."""
        zombie = owner(1)
        once = call(resource, zombie)
        sink.write(once, "a")
        sink.advance(resource, successor(zombie))
        with refused():
            sink.write(once, "a")
        assert sink.landed(resource) == ["a"]

    def test_the_new_owner_gets_the_first_result(self, sink: SinkUnderTest, resource: str) -> None:
        """What the old one had landed isn't done again."""
        old = owner(1)
        once = call(resource, old)
        sink.write(once, "a")
        new = successor(old)
        receipt = sink.write(replace(once, token=new), "a")
        assert (receipt.result, receipt.replayed) == ("a", True)
        assert receipt.epoch in (None, 1)
        with refused():  # the replay has raised the mark, like every write
            sink.write(call(resource, old), "b")
        assert sink.landed(resource) == ["a"]

    def test_executions_do_not_fence_each_other(self, sink: SinkUnderTest, resource: str) -> None:
        """Their epochs can't be compared."""
        one, other = owner(9), owner(1)
        sink.write(call(resource, one), "a")
        sink.write(call(resource, other), "b")
        sink.advance(resource, successor(other))
        sink.write(call(resource, one), "c")
        with refused():
            sink.write(call(resource, other), "d")
        assert sink.landed(resource) == ["a", "b", "c"]

    def test_resources_are_fenced_apart(self, sink: SinkUnderTest, resource: str) -> None:
        """A mark belongs to one resource."""
        mine = owner(1)
        elsewhere = f"{resource}-elsewhere"
        sink.advance(elsewhere, successor(mine))
        sink.write(call(resource, mine), "a")
        with refused():
            sink.write(call(elsewhere, mine), "b")
        assert (sink.landed(resource), sink.landed(elsewhere)) == (["a"], [])

    def test_refusals_are_on_record(self, sink: SinkUnderTest, resource: str) -> None:
        """Where the sink keeps a record: both epochs, both owners, the key."""
        zombie = owner(1)
        new = successor(zombie)
        sink.advance(resource, new)
        late = call(resource, zombie)
        with refused():
            sink.write(late, "a")
        with refused():
            sink.advance(resource, zombie)
        found = sink.refusals(resource)
        if found is None:
            # A sink may keep no record of its own; the caller's audit trail has one.
            assert sink.landed(resource) == []
            return
        expected = (str(zombie.execution_id), 1, 2, zombie.owner, new.owner)
        assert [(r.execution_id, r.held, r.current, r.owner, r.current_owner) for r in found] == [
            expected,
            expected,
        ]
        assert [r.key for r in found] == [late.key, None]

    # -- names and restarts ----------------------------------------------------------------

    @pytest.mark.parametrize(
        "name", ["a b", "50%/€", "x:y}z{", 'quo"te\\', "Ünïcödé/路", "n" * 255, "%2F", "a/b.c-d_e"]
    )
    def test_any_name_is_a_resource_and_a_key(self, sink: SinkUnderTest, name: str) -> None:
        """Names are text of up to 255 characters, and are never mixed up."""
        name = f"{name[:246]}-{uuid4().hex[:8]}"
        mine = owner(1)
        once = Claim(key=name, token=mine, resource=name)
        sink.write(once, "a")
        assert sink.write(once, "a").replayed
        sink.advance(name, successor(mine))
        with refused():
            sink.write(call(name, mine), "b")
        assert sink.landed(name) == ["a"]

    def test_what_a_sink_knows_survives_its_restart(
        self, sink: SinkUnderTest, resource: str
    ) -> None:
        """Marks and keys live in the storage, not in the object."""
        zombie = owner(1)
        once = call(resource, zombie)
        sink.write(once, "a")
        sink.advance(resource, successor(zombie))
        again = sink.started_again()
        with refused():
            again.write(call(resource, zombie), "b")
        assert again.write(replace(once, token=successor(zombie)), "a").replayed
        assert again.landed(resource) == ["a"]

    # -- atomicity: one call is stopped at each line, while another runs ---------------------

    def test_nothing_stale_lands_after_advance_has_returned(self, sink: SinkUnderTest) -> None:
        """Wherever the stale write had come to."""

        def make() -> tuple[Call, Call, Callable[[], None]]:
            name, zombie = f"advance:{uuid4().hex[:8]}", owner(1)
            late = Call(lambda: patiently(lambda: sink.write(call(name, zombie), "late")))

            def advance() -> list[str]:
                patiently(lambda: sink.advance(name, successor(zombie)))
                return sink.landed(name)

            takeover = Call(advance)

            def check() -> None:
                raise_unexpected(takeover)
                raise_unexpected(late, StaleLeaseFenceError)
                assert sink.landed(name) == takeover.result, (
                    "a stale write landed after `advance` had returned: check and write are not"
                    " one atomic step"
                )

            return late, takeover, check

        assert at_every_line(sink.code(), make) > 0, "code() names no file that a write runs in"

    def test_nothing_stale_lands_after_the_new_owners_write(self, sink: SinkUnderTest) -> None:
        """The same where a write raises the mark."""

        def make() -> tuple[Call, Call, Callable[[], None]]:
            name, zombie = f"write:{uuid4().hex[:8]}", owner(1)
            late = Call(lambda: patiently(lambda: sink.write(call(name, zombie), "late")))

            def write() -> list[str]:
                patiently(lambda: sink.write(call(name, successor(zombie)), "new"))
                return sink.landed(name)

            takeover = Call(write)

            def check() -> None:
                raise_unexpected(takeover)
                raise_unexpected(late, StaleLeaseFenceError)
                assert sink.landed(name) == takeover.result, (
                    "a stale write landed after its successor's: check and write are not one"
                    " atomic step"
                )

            return late, takeover, check

        at_every_line(sink.code(), make)

    def test_one_key_at_the_same_time_lands_once(self, sink: SinkUnderTest) -> None:
        """Two deliveries of the same call."""

        def make() -> tuple[Call, Call, Callable[[], None]]:
            once = call(f"key:{uuid4().hex[:8]}", owner(1))
            calls = [Call(lambda: patiently(lambda: sink.write(once, "a"))) for _ in range(2)]

            def check() -> None:
                raise_unexpected(*calls)
                assert sink.landed(once.resource) == ["a"], "a key was not applied just once"
                assert sorted(c.result.replayed for c in calls) == [False, True]

            return calls[0], calls[1], check

        at_every_line(sink.code(), make)

    def test_one_key_of_two_executions_lands_once(self, sink: SinkUnderTest) -> None:
        """Business keys are shared by executions, whose marks are not the same."""

        def make() -> tuple[Call, Call, Callable[[], None]]:
            mine = call(f"business:{uuid4().hex[:8]}", owner(1))
            yours = replace(mine, token=owner(1))
            calls = [
                Call(lambda each=each: patiently(lambda: sink.write(each, "a")))  # type: ignore[misc]
                for each in (mine, yours)
            ]

            def check() -> None:
                raise_unexpected(*calls)
                assert sink.landed(mine.resource) == ["a"], "a key was not applied just once"

            return calls[0], calls[1], check

        at_every_line(sink.code(), make)

    def test_two_writes_at_the_same_time_both_land(self, sink: SinkUnderTest) -> None:
        """None overwrites the other, though both may have read the same."""

        def make() -> tuple[Call, Call, Callable[[], None]]:
            name, mine = f"both:{uuid4().hex[:8]}", owner(1)
            calls = [
                Call(lambda v=value: patiently(lambda: sink.write(call(name, mine), v)))  # type: ignore[misc]
                for value in "ab"
            ]

            def check() -> None:
                raise_unexpected(*calls)
                assert sorted(sink.landed(name)) == ["a", "b"], "a write was lost"

            return calls[0], calls[1], check

        at_every_line(sink.code(), make)

    # -- crowds ----------------------------------------------------------------------------

    def test_one_key_from_many_threads_lands_once(self, sink: SinkUnderTest, resource: str) -> None:
        """And everyone gets the first result."""
        once = call(resource, owner(1))
        receipts = crowd([lambda: sink.write(once, "a")] * THREADS)
        assert sink.landed(resource) == ["a"]
        assert {r.result for r in receipts} == {"a"}
        assert [r.replayed for r in receipts].count(False) == 1

    def test_writes_from_many_threads_all_land(self, sink: SinkUnderTest, resource: str) -> None:
        """None is lost."""
        mine = owner(1)
        values = [f"v{n}" for n in range(THREADS)]
        crowd([lambda v=value: sink.write(call(resource, mine), v) for value in values])  # type: ignore[misc]
        assert sorted(sink.landed(resource)) == sorted(values)

    def test_processes_apply_each_key_once(self, sink: SinkUnderTest, resource: str) -> None:
        """All of them try the same keys, at the same time."""
        mine = owner(1)
        work = [processes().submit(_write_all, sink, resource, mine) for _ in range(PROCESSES)]
        first_times = [w.result(SECONDS) for w in work]
        assert sorted(sink.landed(resource)) == sorted(f"v{n}" for n in range(WRITES))
        assert sum(first_times) == WRITES

    def test_processes_are_stopped_by_the_fence(
        self, sink: SinkUnderTest, resource: str, tmp_path: Path
    ) -> None:
        """Nothing lands any more once `advance` has returned, however many are writing."""
        zombie, raised = owner(1), tmp_path / "raised"
        work = [
            processes().submit(_write_until_refused, sink, resource, zombie, number, raised)
            for number in range(PROCESSES)
        ]
        try:
            give_up = time.monotonic() + SECONDS
            while len(sink.landed(resource)) < WRITES and not any(w.done() for w in work):
                assert time.monotonic() < give_up, "what another process writes can't be seen"
                time.sleep(0.01)
            patiently(lambda: sink.advance(resource, successor(zombie)))
            landed = sink.landed(resource)
        finally:
            raised.touch()
        written = sum(w.result(SECONDS) for w in work)
        assert sink.landed(resource) == landed, "a stale write landed after `advance` had returned"
        assert len(landed) == written, "what landed isn't what was answered with a receipt"


# -- what the tests share --------------------------------------------------------------------


def owner(epoch: int, execution_id: UUID | None = None) -> FenceToken:
    """A token of an execution of its own, unless one is given."""
    execution_id = execution_id or uuid4()
    name = f"worker-{epoch}:{uuid4().hex[:8]}"
    return FenceToken(execution_id, epoch, name, f"{execution_id}:write:1")


def successor(token: FenceToken) -> FenceToken:
    """Who takes the execution over."""
    return owner(token.epoch + 1, token.execution_id)


def call(resource: str, token: FenceToken) -> Claim:
    """A write under a new key."""
    return Claim(key=f"{token.execution_id}:{uuid4().hex[:8]}", token=token, resource=resource)


@contextmanager
def refused() -> Iterator[None]:
    """Expect that the fence refuses."""
    with pytest.raises(StaleLeaseFenceError):
        yield


def patiently(work: Callable[[], Any]) -> Any:
    """Do it, as often as the sink says that it is busy."""
    give_up = time.monotonic() + SECONDS
    while True:
        try:
            return work()
        except SinkBusyError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def raise_unexpected(*calls: Call | type[FenceError]) -> None:
    """Raise the calls' errors, but for those of the given classes."""
    expected = tuple(c for c in calls if isinstance(c, type))
    for one in calls:
        if isinstance(one, Call) and one.error and not isinstance(one.error, expected):
            raise one.error


def crowd(work: Sequence[Callable[[], Any]]) -> list[Any]:
    """Do everything at once; the results, in order."""
    barrier = threading.Barrier(len(work))

    def together() -> None:
        barrier.wait(SECONDS)

    def start(one: Callable[[], Any]) -> Call:
        made = Call(lambda: patiently(one))
        made.start(before=together)
        return made

    calls = [start(one) for one in work]
    for one in calls:
        one.join()
    raise_unexpected(*calls)
    return [one.result for one in calls]


@functools.cache
def processes() -> ProcessPoolExecutor:
    """Processes that share nothing with this one, as workers don't; the same for all tests."""
    return ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn"))


def _write_all(sink: SinkUnderTest, resource: str, token: FenceToken) -> int:
    fresh = 0
    for number in range(WRITES):
        # The resource is this test's own, and so are its keys: a sink may keep those of others.
        claim = Claim(key=f"k{number}-{resource}", token=token, resource=resource)
        fresh += not patiently(lambda c=claim, n=number: sink.write(c, f"v{n}")).replayed  # type: ignore[misc]
    return fresh


def _write_until_refused(
    sink: SinkUnderTest, resource: str, token: FenceToken, number: int, raised: Path
) -> int:
    written = 0
    while True:
        last = raised.exists()
        try:
            patiently(lambda: sink.write(call(resource, token), f"p{number}"))
        except StaleLeaseFenceError:
            return written
        assert not last, "a stale write passed long after `advance` had returned"
        written += 1
