"""Ways to break a finished run, each with the one invariant that it violates, and the rule's code.

Every change is as small as the breach allows: what else it would disturb is put right.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

from tests.integration.verify.copies import (
    CHECKPOINTS,
    EFFECTS,
    EVENTS,
    EXECUTIONS,
    Break,
    Copy,
    Row,
)

LATER = datetime(2999, 1, 1, tzinfo=UTC)

BREAKS: list[tuple[int, str, Break]] = []


def breaks(invariant: int, code: str) -> Callable[[Break], Break]:
    def add(function: Break) -> Break:
        BREAKS.append((invariant, code, function))
        return function

    return add


# -- 1: identity ---------------------------------------------------------------------------


@breaks(1, "identity.derived")
def a_child_has_an_id_of_its_own(copy: Copy) -> None:
    old, new = copy.child(copy.second, 1), uuid4()
    for entry in copy.rows(CHECKPOINTS, execution_id=old):
        copy.update(
            CHECKPOINTS,
            {"checkpoint_id": entry["checkpoint_id"]},
            step_key=entry["step_key"].replace(str(old), str(new)),
        )
    for effect in copy.rows(EFFECTS, execution_id=old):
        copy.update(
            EFFECTS,
            {"key": effect["key"]},
            step_key=effect["step_key"].replace(str(old), str(new)),
        )
    for table in (CHECKPOINTS, EVENTS, EFFECTS, EXECUTIONS):
        values = {"lineage_id": new} if table is EXECUTIONS else {}
        copy.update(table, {"execution_id": old}, execution_id=new, **values)


@breaks(1, "identity.derived")
def a_business_key_belongs_to_another_id(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.root}, business_key="another")


@breaks(1, "identity.continuation-missing")
def the_continuation_is_another_one(copy: Copy) -> None:
    other = {"continued_as": str(uuid4())}
    copy.update(EXECUTIONS, {"execution_id": copy.root}, result=other)


@breaks(1, "identity.continuation")
def an_execution_is_added_to_a_line(copy: Copy) -> None:
    child = copy.child(copy.second, 1)
    copy.update(EXECUTIONS, {"execution_id": child}, lineage_id=copy.child(copy.second, 2))


@breaks(1, "identity.lineage-missing")
def the_first_of_its_line_is_unknown(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.second}, lineage_id=uuid4())


@breaks(1, "identity.root")
def a_continuation_claims_to_be_the_first(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.second}, lineage_id=copy.second)


@breaks(1, "identity.parent-missing")
def a_childs_parent_is_unknown(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.child(copy.second, 1)}, parent_id=uuid4())


@breaks(1, "identity.step-key")
def a_step_key_names_another_visit(copy: Copy) -> None:
    gate = copy.checkpoint(copy.second, "step", "gate")
    copy.update(
        CHECKPOINTS,
        {"checkpoint_id": gate["checkpoint_id"]},
        step_key=f"{copy.second}:gate:2",
    )


@breaks(1, "identity.children")
def a_child_left_for_another_run(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.child(copy.second, 1)}, root_id=uuid4())


@breaks(1, "identity.children")
def a_child_is_lost(copy: Copy) -> None:
    copy.delete(EXECUTIONS, execution_id=copy.child(copy.second, 1))


# -- 2: epochs -----------------------------------------------------------------------------


@breaks(2, "epoch.gap")
def an_acquisition_is_not_on_record(copy: Copy) -> None:
    copy.delete(EVENTS, execution_id=copy.root, name="lease.acquired", epoch=2)


@breaks(2, "epoch.row")
def the_row_is_ahead_of_the_audit_trail(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.second}, epoch=9)


@breaks(2, "epoch.row-owner")
def the_row_names_one_who_never_acquired_it(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.second}, owner="somebody")


@breaks(2, "epoch.stranger")
def a_checkpoint_of_one_who_never_was_the_owner(copy: Copy) -> None:
    label = copy.checkpoint(copy.second, "step", "label")
    copy.update(CHECKPOINTS, {"checkpoint_id": label["checkpoint_id"]}, owner="somebody")


@breaks(2, "epoch.too-early")
def a_checkpoint_from_before_its_epoch(copy: Copy) -> None:
    join = copy.checkpoint(copy.second, "join", "modules")
    gate = copy.checkpoint(copy.second, "step", "gate")
    copy.update(
        CHECKPOINTS,
        {"checkpoint_id": join["checkpoint_id"]},
        epoch=gate["epoch"],
        owner=gate["owner"],
    )


# -- 3: the chain --------------------------------------------------------------------------


@breaks(3, "chain.gap")
def a_checkpoint_is_missing(copy: Copy) -> None:
    copy.delete(CHECKPOINTS, execution_id=copy.second, kind="step", step="label")


@breaks(3, "chain.root")
def the_root_is_missing(copy: Copy) -> None:
    copy.delete(CHECKPOINTS, execution_id=copy.second, kind="start")


@breaks(3, "chain.root")
def there_are_two_roots(copy: Copy) -> None:
    label = copy.checkpoint(copy.second, "step", "label")
    copy.update(CHECKPOINTS, {"checkpoint_id": label["checkpoint_id"]}, parent_checkpoint_id=None)


@breaks(3, "chain.empty")
def the_whole_chain_is_missing(copy: Copy) -> None:
    child = copy.child(copy.second, 1)
    copy.delete(CHECKPOINTS, execution_id=child)
    copy.delete(EFFECTS, execution_id=child)


@breaks(3, "chain.fork")
def two_checkpoints_continue_the_same_one(copy: Copy) -> None:
    label = copy.checkpoint(copy.second, "step", "label")
    other = {"checkpoint_id": uuid4(), "step": "fork", "step_key": f"{copy.second}:fork:1"}
    copy.insert(CHECKPOINTS, label | other)


@breaks(3, "chain.link")
def a_checkpoint_continues_one_further_back(copy: Copy) -> None:
    label = copy.checkpoint(copy.second, "step", "label")
    start = copy.checkpoint(copy.second, "start", "start")
    copy.update(
        CHECKPOINTS,
        {"checkpoint_id": label["checkpoint_id"]},
        parent_checkpoint_id=start["checkpoint_id"],
    )


@breaks(3, "chain.head")
def the_row_names_an_older_head(copy: Copy) -> None:
    label = copy.checkpoint(copy.second, "step", "label")
    copy.update(
        EXECUTIONS,
        {"execution_id": copy.second},
        head=label["checkpoint_id"],
        head_seq=label["seq"],
    )


# -- 4: stale epochs -----------------------------------------------------------------------


@breaks(4, "stale.checkpoint")
def a_dead_workers_checkpoint_came_after_the_takeover(copy: Copy) -> None:
    join = copy.checkpoint(copy.second, "join", "modules")
    gate = copy.checkpoint(copy.second, "step", "gate")
    copy.update(
        CHECKPOINTS,
        {"checkpoint_id": gate["checkpoint_id"]},
        epoch=join["epoch"],
        owner=join["owner"],
    )


@breaks(4, "stale.effect")
def an_effect_was_confirmed_after_the_takeover(copy: Copy) -> None:
    child = copy.child(copy.root, 0)
    copy.update(EFFECTS, {"execution_id": child, "effect": "upload"}, confirmed_at=LATER)


@breaks(4, "stale.effect-of-stranger")
def an_effect_of_one_who_never_was_the_owner(copy: Copy) -> None:
    child = copy.child(copy.root, 0)
    copy.update(EFFECTS, {"execution_id": child, "effect": "upload"}, owner="somebody")


# -- 5: effects ----------------------------------------------------------------------------


@breaks(5, "effect.step-twice")
def a_step_is_committed_twice(copy: Copy) -> None:
    copy.append(copy.second, copy.checkpoint(copy.second, "step", "label"))


@breaks(5, "effect.in-doubt")
def an_effect_of_an_ended_execution_is_in_doubt(copy: Copy) -> None:
    child = copy.child(copy.second, 1)
    copy.update(EFFECTS, {"execution_id": child, "effect": "upload"}, status="in-doubt")


@breaks(5, "effect.in-doubt")
def an_intent_was_left_behind(copy: Copy) -> None:
    child = copy.child(copy.second, 1)
    copy.update(EFFECTS, {"execution_id": child, "effect": "upload"}, status="intent")


@breaks(5, "effect.key-twice")
def a_key_stands_for_two_effects(copy: Copy) -> None:
    first, second = copy.child(copy.second, 1), copy.child(copy.second, 2)
    key = copy.row(EFFECTS, execution_id=first, effect="upload")["key"]
    copy.update(EFFECTS, {"execution_id": second, "effect": "upload"}, key=key)


@breaks(5, "effect.without-checkpoint")
def an_effect_landed_without_its_step(copy: Copy) -> None:
    child = copy.child(copy.second, 1)
    copy.update(EFFECTS, {"execution_id": child, "effect": "book"}, step_key=f"{child}:attest:2")


@breaks(5, "effect.left-behind")
def an_effect_landed_in_a_step_that_was_never_completed(copy: Copy) -> None:
    child = copy.child(copy.second, 1)
    where = {"execution_id": child, "effect": "upload"}
    copy.update(EFFECTS, where, step_key=f"{child}:stage:2")


@breaks(5, "effect.decided-off-record")
def somebody_decided_behind_everybodys_back(copy: Copy) -> None:
    child = copy.child(copy.second, 1)
    decision = {"landed": True, "by": "mallory", "why": "because"}
    copy.update(EFFECTS, {"execution_id": child, "effect": "upload"}, resolution=decision)


# -- 6: compensation -----------------------------------------------------------------------


def _rename(copy: Copy, entry: Row, step: str) -> None:
    key = f"{entry['execution_id']}:{step}:{entry['visit']}"
    copy.update(CHECKPOINTS, {"checkpoint_id": entry["checkpoint_id"]}, step=step, step_key=key)


@breaks(6, "compensation.order")
def the_oldest_step_was_undone_first(copy: Copy) -> None:
    lock = copy.checkpoint(copy.root, "undo", "lock")
    label = copy.checkpoint(copy.root, "undo", "label")
    _rename(copy, lock, "label")
    _rename(copy, label, "lock")


@breaks(6, "compensation.undone-twice")
def a_step_was_undone_twice(copy: Copy) -> None:
    _rename(copy, copy.checkpoint(copy.root, "undo", "lock"), "label")


@breaks(6, "compensation.nothing-to-undo")
def a_step_was_undone_that_had_not_been_done(copy: Copy) -> None:
    _rename(copy, copy.checkpoint(copy.root, "undo", "lock"), "promote")


@breaks(6, "compensation.not-undone")
def one_of_three_children_kept_what_it_had_done(copy: Copy) -> None:
    copy.cut(copy.child(copy.root, 1))


@breaks(6, "compensation.child-kept")
def a_child_counts_as_succeeded_though_its_fan_out_is_undone(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.child(copy.root, 1)}, status="succeeded")


@breaks(6, "compensation.forward-write")
def the_failed_step_was_committed_after_its_compensation(copy: Copy) -> None:
    _rename(copy, copy.checkpoint(copy.root, "step", "plan"), "gate")


@breaks(6, "compensation.forward-write")
def something_was_undone_after_the_branch_had_begun(copy: Copy) -> None:
    plan = copy.checkpoint(copy.root, "step", "plan")
    undo = copy.checkpoint(copy.root, "undo", "lock")
    for entry, kind in ((plan, "undo"), (undo, "step")):
        copy.update(CHECKPOINTS, {"checkpoint_id": entry["checkpoint_id"]}, kind=kind)
        _rename(copy, entry, "lock" if kind == "undo" else "plan")


@breaks(6, "compensation.not-fenced")
def a_childs_epoch_was_not_raised_by_its_parent(copy: Copy) -> None:
    child = copy.child(copy.root, 1)
    raised = copy.rows(EVENTS, execution_id=child, name="execution.epoch-raised")[0]
    copy.update(
        EVENTS,
        {"event_id": raised["event_id"]},
        details=raised["details"] | {"by": str(uuid4())},
    )


@breaks(6, "compensation.too-early")
def it_went_forward_after_it_had_undone_a_step(copy: Copy) -> None:
    label = copy.checkpoint(copy.root, "step", "label")
    copy.update(CHECKPOINTS, {"checkpoint_id": label["checkpoint_id"]}, kind="undo")


@breaks(6, "compensation.parent-goes-on")
def children_undid_their_work_under_a_parent_that_never_failed(copy: Copy) -> None:
    turned_back = copy.checkpoint(copy.root, "compensating", "compensation")
    copy.update(CHECKPOINTS, {"checkpoint_id": turned_back["checkpoint_id"]}, kind="branch-failed")


@breaks(6, "compensation.status")
def it_is_called_failed_and_had_to_undo(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.child(copy.root, 2)}, status="failed")


@breaks(6, "compensation.status")
def it_is_called_compensated_and_never_turned_back(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.second}, status="compensated")


# -- 7: orphans ----------------------------------------------------------------------------


@breaks(7, "orphan.child")
def a_child_lives_under_a_finished_parent(copy: Copy) -> None:
    child = copy.child(copy.second, 1)
    copy.update(EXECUTIONS, {"execution_id": child}, status="active", due_at=LATER)


@breaks(7, "orphan.child")
def a_child_is_parked_under_a_finished_parent(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.child(copy.second, 1)}, status="parked")


@breaks(7, "orphan.forgotten")
def nobody_will_ever_look_at_it(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.second}, status="active", due_at=None)


@breaks(7, "orphan.queued")
def nobody_gives_it_a_place(copy: Copy) -> None:
    copy.update(EXECUTIONS, {"execution_id": copy.second}, status="queued")


# -- 8: refused writes ---------------------------------------------------------------------

ZOMBIE = "ZOMBIE_WRITE_REJECTED"


@breaks(8, "refusal.incomplete")
def a_refused_write_is_not_fully_on_record(copy: Copy) -> None:
    copy.update(EVENTS, {"name": ZOMBIE}, sink=None)


@breaks(8, "refusal.stranger")
def a_write_was_refused_to_one_who_never_was_the_owner(copy: Copy) -> None:
    copy.update(EVENTS, {"name": ZOMBIE}, owner="somebody")


@breaks(8, "refusal.of-owner")
def a_write_was_refused_to_the_owner(copy: Copy) -> None:
    event = copy.row(EVENTS, name=ZOMBIE)
    copy.update(
        EVENTS, {"name": ZOMBIE}, current_epoch=event["epoch"], current_owner=event["owner"]
    )


@breaks(8, "refusal.spread")
def the_zombies_payload_reached_the_join(copy: Copy) -> None:
    join = copy.row(CHECKPOINTS, execution_id=copy.root, kind="fan-out")
    compensating = copy.checkpoint(copy.root, "join", "modules")
    assert join["step"] == compensating["step"]
    zombies, *others = compensating["result"]
    assert zombies == {"number": 0, "by_epoch": 2}
    copy.update(
        CHECKPOINTS,
        {"checkpoint_id": compensating["checkpoint_id"]},
        result=[zombies | {"by_epoch": 1}, *others],
    )


@breaks(8, "refusal.spread")
def the_zombies_payload_is_the_executions_result(copy: Copy) -> None:
    child = copy.child(copy.root, 0)
    copy.update(EXECUTIONS, {"execution_id": child}, result={"number": 0, "by_epoch": 1})
