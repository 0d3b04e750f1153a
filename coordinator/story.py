"""The story in three acts: a gate that says no, a worker that freezes, a zombie that returns."""

from __future__ import annotations

from coordinator import damage, scenarios, tables
from coordinator.damage import Moment
from coordinator.play import Play, ScenarioError
from coordinator.runtime import Target
from coordinator.scenarios import Course, Struck
from fencepost.records import Event, Execution
from ledger.vocabulary import ReleaseRequest

ZOMBIE_SECONDS = 20.0


def play_freeze(play: Play, request: ReleaseRequest, target: Target) -> Course:
    """Play it to its end, with the guards on."""
    struck, acquired, recovered = _until_taken_over(play, request, target)
    scenarios.until_module_ended(play, struck)
    play.narrator.act(
        "Act III: the frozen worker returns, and does not know that it was replaced",
        "It still holds the result of its step, and writes it with the epoch that it knows.",
    )
    _thaw(play, struck)
    refusals = scenarios.until_refused(play, struck)
    last = play.until_the_end()
    play.narrator.show(tables.refusals(refusals))
    return _course(struck, acquired, recovered, last, refusals)


def play_unfenced(play: Play, request: ReleaseRequest, target: Target) -> tuple[Course, list[str]]:
    """The same with the guards off; also returns in words what the zombie has broken."""
    struck, acquired, recovered = _until_taken_over(play, request, target)
    last = play.until_the_end()
    play.narrator.act(
        "Act III: the frozen worker returns, and nothing stops it",
        "The release is out by now. Without guards, the last write wins.",
    )
    before = damage.moment(play, struck)
    _thaw(play, struck)
    _until_zombie_is_done(play, struck, before)
    found = damage.in_words(play, before, damage.moment(play, struck))
    play.narrator.note("the damage:", style="bold red")
    for sentence in found:
        play.narrator.detail(f"✗ {sentence}", style="red")
    return _course(struck, acquired, recovered, last, ()), found


def _until_taken_over(
    play: Play, request: ReleaseRequest, target: Target
) -> tuple[Struck, Event, Event]:
    struck = scenarios.freeze(play, request, target)
    scenarios.tell_frozen(play, struck)
    scenarios.until_expired(play, struck)
    acquired, recovered = scenarios.until_taken_over(play, struck)
    took = scenarios.seconds(recovered) - struck.at
    play.narrator.note(
        f"taken over {took:.2f} s after the freeze; the lease time is {play.ttl:g} s"
    )
    play.narrator.detail(f"the same execution: {recovered.execution_id}")
    play.narrator.detail(
        f"epoch {struck.execution.epoch} → {acquired.epoch}; the step key is the same:"
        f" {struck.execution_id}:stage:1"
    )
    return struck, acquired, recovered


def _thaw(play: Play, struck: Struck) -> None:
    scenarios.thaw(struck)
    play.narrator.note(
        f"{struck.worker.name} THAWED: {struck.worker.means_of_return}; it goes on where it was,"
        f" with epoch {struck.execution.epoch}",
        style="bold white on blue",
    )


def _until_zombie_is_done(play: Play, struck: Struck, before: Moment) -> None:
    """Wait until an execution that had ended, and was written to since, has ended again."""
    store = play.factory.fp.engine.executions

    def done() -> bool:
        written = store.chain(struck.execution_id) != before.chain
        return written and play.read(struck.execution_id).status.ended

    try:
        play.until(done, "the zombie's end", patience=ZOMBIE_SECONDS, after_the_end=True)
    except ScenarioError:
        play.narrator.note("the execution does not come to an end any more", style="bold red")


def _course(
    struck: Struck,
    acquired: Event,
    recovered: Event,
    last: Execution,
    refusals: tuple[Event, ...],
) -> Course:
    latency = scenarios.seconds(recovered) - struck.at
    return Course(struck, acquired, recovered, latency, refusals, last)
