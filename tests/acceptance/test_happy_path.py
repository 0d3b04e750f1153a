"""What happens when nothing goes wrong."""

from __future__ import annotations

from fencepost import Status
from fencepost.records import CheckpointKind, EventName
from tests.support.apps import sagas
from tests.support.scene import Scene


def test_a_line_of_steps_runs_once_in_order(scene: Scene) -> None:
    handle = scene.start(sagas.line, label="a")
    assert scene.succeeds(handle) == "a"
    execution_id = handle.execution_id
    assert [c.step for c in scene.chain(execution_id)] == ["start", "first", "second", "third"]
    assert scene.noted(execution_id) == [
        ("first", "ran", 1),
        ("second", "ran", 1),
        ("third", "applied", 1),
        ("third", "ran", 1),
    ]
    scene.assert_one_line(execution_id)
    names = [event.name for event in scene.events(execution_id)]
    assert names == [EventName.STARTED, EventName.LEASE_ACQUIRED]


def test_a_transactional_step_lands_with_its_checkpoint(scene: Scene) -> None:
    handle = scene.start(sagas.booking, label="b")
    assert scene.succeeds(handle) == "b"
    assert scene.runs(handle.execution_id, "ledgered") == 1
    scene.assert_one_line(handle.execution_id)


def test_a_fan_out_joins_in_order_below_its_cap(scene: Scene) -> None:
    handle = scene.start(sagas.parcels, label="c", count=5)
    assert scene.succeeds(handle) == 0 + 1 + 2 + 3 + 4
    execution_id = handle.execution_id
    children = scene.children(execution_id)
    assert [child.status for child in children] == [Status.SUCCEEDED] * 5
    assert [child.result for child in children] == [0, 1, 2, 3, 4]
    kinds = [c.kind for c in scene.chain(execution_id)]
    assert kinds == [
        CheckpointKind.START,
        CheckpointKind.STEP,
        CheckpointKind.FAN_OUT,
        CheckpointKind.JOIN,
        CheckpointKind.STEP,
    ]
    for child in children:
        scene.assert_one_line(child.execution_id)
        assert [c.step for c in scene.chain(child.execution_id)] == ["start", "pick", "pack"]
    assert len(scene.noted([child.execution_id for child in children], "booked")) == 5


def test_a_failed_saga_undoes_newest_first_and_once(scene: Scene) -> None:
    handle = scene.start(sagas.purchase, label="d")
    outcome = scene.wait(handle)
    execution_id = handle.execution_id
    assert outcome.status is Status.COMPENSATED
    assert outcome.error["code"] == "order.not-shipped"
    assert [step for step, what, _ in scene.noted(execution_id) if what == "undone"] == [
        "charge",
        "reserve",
    ]
    # The undo of the transactional step landed together with its checkpoint.
    undos = [c for c in scene.chain(execution_id) if c.kind is CheckpointKind.UNDO]
    assert [c.step for c in undos] == ["charge", "reserve"]
    # Epochs were raised before anything was undone.
    assert scene.row(execution_id).epoch == 2
    assert {c.epoch for c in undos} == {2}
    assert len(scene.events(execution_id, EventName.EPOCH_RAISED)) == 1
    scene.assert_one_line(execution_id)


def test_an_error_branch_finishes_after_compensation(scene: Scene) -> None:
    handle = scene.start(sagas.forgiven, label="e")
    assert scene.succeeds(handle) == "sorry, e: order.not-shipped"
    execution_id = handle.execution_id
    steps = [(step, what) for step, what, _ in scene.noted(execution_id)]
    # Declared on the step and in the branch, and undone once.
    assert steps.count(("reserve", "undone")) == 1
    assert steps.index(("charge", "undone")) < steps.index(("reserve", "undone"))
    assert steps[-1] == ("apologise", "ran")
    scene.assert_one_line(execution_id)
