from __future__ import annotations

from coordinator.phrases import Tone, lines, who, worker_of
from fencepost.records import CheckpointKind, EventName
from tests.unit.coordinator.facts import checkpoint, event, execution

STEP, UNDO, TURNED = CheckpointKind.STEP, CheckpointKind.UNDO, CheckpointKind.COMPENSATING


def test_steps_that_one_owner_did_in_a_row_share_a_line() -> None:
    module = execution("payment-engine")
    facts = [checkpoint(module, STEP, step) for step in ("prepare", "compile", "stage")]
    (line,) = lines(facts)
    assert (line.who, line.worker) == ("payment-engine", "worker-a")
    assert line.text == "prepare ✓, compile ✓, stage ✓"
    assert line.tone is Tone.GOOD


def test_another_owner_or_another_execution_or_an_undo_begins_a_line() -> None:
    one, two = execution("one"), execution("two")
    facts = [
        checkpoint(one, STEP, "prepare"),
        checkpoint(one, STEP, "stage", owner="worker-b@host:2:y", epoch=2),
        checkpoint(two, STEP, "prepare"),
        checkpoint(two, UNDO, "prepare"),
    ]
    told = list(lines(facts))
    assert [(line.who, line.worker, line.epoch) for line in told] == [
        ("one", "worker-a", 1),
        ("one", "worker-b", 2),
        ("two", "worker-a", 1),
        ("two", "worker-a", 1),
    ]
    assert told[-1].text == "undone: prepare"
    assert told[-1].tone is Tone.UNDO


def test_the_order_of_what_happened_is_kept() -> None:
    release, module = execution(), execution("one")
    facts = [
        checkpoint(module, STEP, "prepare"),
        event(
            module,
            EventName.RECOVERED,
            epoch=2,
            owner="worker-b@host:2:y",
            details={"from_owner": "worker-a@host:1:x", "from_epoch": 1, "head_seq": 2},
        ),
        checkpoint(module, STEP, "stage", epoch=2),
        checkpoint(release, CheckpointKind.JOIN, "stage_modules", result=[1, 2, 3]),
    ]
    assert [line.text for line in lines(facts)] == [
        "prepare ✓",
        "takes over from worker-a: epoch 1 → 2, after checkpoint 2",
        "stage ✓",
        "all 3 modules are staged",
    ]


def test_a_refusal_tells_both_epochs_and_who_refused() -> None:
    fact = event(
        execution("one"),
        EventName.ZOMBIE_WRITE_REJECTED,
        current_epoch=2,
        sink="ledger",
    )
    (line,) = lines([fact])
    assert line.tone is Tone.ALARM
    for word in ("REFUSED", "ledger", "ZOMBIE_WRITE_REJECTED", "epoch 1", "2 is current"):
        assert word in line.text


def test_a_failed_step_is_told_once_and_not_again_for_each_module() -> None:
    failure = {
        "code": "release.gate-failed",
        "message": "the check ended with exit code 1",
        "step": "gate",
    }
    told_by_parent = {"code": "saga.parent-failed", "message": "the parent execution failed"}
    facts = [
        checkpoint(execution(), TURNED, "compensation", result={"failure": failure}),
        checkpoint(
            execution("one"),
            TURNED,
            "compensation",
            result={"failure": told_by_parent},
        ),
    ]
    (line,) = lines(facts)
    assert line.text == "gate ✗  the check ended with exit code 1"
    assert line.tone is Tone.BAD


def test_who_was_turned_back_from_outside_did_nothing_wrong_at_its_step() -> None:
    failure = {"code": "execution.cancelled", "message": "cancelled by ann", "step": "stage"}
    said = {"by": "ann", "why": "the customer left"}
    facts = [
        event(execution(), EventName.PAUSED, owner=None, details=said),
        event(execution(), EventName.CANCELLED, owner=None, details=said),
        checkpoint(execution(), TURNED, "compensation", result={"failure": failure}),
        event(execution(), EventName.DEADLINE_PASSED, owner=None),
    ]
    told = list(lines(facts))
    assert [line.text for line in told] == [
        "paused by ann: the customer left",
        "CANCELLED by ann: the customer left",
        "turns back: cancelled by ann",
        "its deadline has passed: it is turned back, and fenced at once",
    ]
    assert [line.worker for line in told] == ["", "", "worker-a", ""]


def test_a_person_has_it_go_on() -> None:
    said = {"by": "ann", "why": "the disk is mended"}
    (line,) = lines([checkpoint(execution(), CheckpointKind.REOPENED, "reopened", result=said)])
    assert line.text == "ann has it go on: the disk is mended"


def test_beginnings_and_leases_are_not_worth_a_line() -> None:
    release = execution()
    facts = [
        checkpoint(release, CheckpointKind.START, "start", owner=""),
        event(release, EventName.STARTED),
        event(release, EventName.LEASE_ACQUIRED),
    ]
    assert list(lines(facts)) == []


def test_names() -> None:
    assert who(execution()) == "release"
    assert who(execution("auth-service")) == "auth-service"
    assert worker_of("worker-a@host:12:ab") == "worker-a"
    assert worker_of(None) == ""
