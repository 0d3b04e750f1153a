"""Starting an execution: in a transaction, under a business key, from many places at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import pytest
from sqlalchemy.orm import Session

from fencepost import BusinessKeyConflictError, Handle, Status
from tests.support.apps import sagas
from tests.support.apps.sagas import Order
from tests.support.scene import Scene


def transaction(scene: Scene) -> Session:
    """A session as an application has it: the engine's own one commits each statement."""
    database = scene.fp.database
    if scene.postgres:
        database = database.execution_options(isolation_level="READ COMMITTED")
    return Session(database)


def test_a_start_is_part_of_the_callers_transaction(scene: Scene) -> None:
    with transaction(scene) as session:
        never = scene.fp.start(sagas.line, Order(label="never"), session=session)
        session.rollback()
    with transaction(scene) as session:
        kept = scene.fp.start(sagas.line, Order(label="kept"), session=session)
        # Nothing is published before the commit.
        assert scene.fp.engine.executions.get(kept.execution_id) is None
        session.commit()
    assert scene.succeeds(kept) == "kept"
    assert scene.fp.engine.executions.get(never.execution_id) is None
    assert scene.fp.engine.executions.chain(never.execution_id) == ()
    assert scene.events(never.execution_id) == []
    assert scene.logged(f"[{never.execution_id}]") == 0


def test_a_business_key_names_one_execution(scene: Scene) -> None:
    key = f"order:{uuid4()}"
    one = scene.start(sagas.line, key=key, label="keyed")
    two = scene.start(sagas.line, key=key, label="keyed")
    assert (one.created, two.created) == (True, False)
    assert one.execution_id == two.execution_id
    with pytest.raises(BusinessKeyConflictError) as conflict:
        scene.start(sagas.line, key=key, label="another input")
    assert conflict.value.code == "execution.key-conflict"
    assert conflict.value.fields["execution_id"] == str(one.execution_id)
    # Keys are a saga's own.
    other = scene.start(sagas.booking, key=key, label="another input")
    assert other.execution_id != one.execution_id
    assert scene.succeeds(two) == "keyed"
    assert scene.succeeds(other) == "another input"
    again = scene.start(sagas.line, key=key, label="keyed")
    assert not again.created
    assert again.status() is Status.SUCCEEDED
    assert scene.runs(one.execution_id, "first") == 1


def test_ten_concurrent_starts_with_one_key_make_one_execution(scene: Scene) -> None:
    key = f"order:{uuid4()}"

    def start(_: int) -> Handle[str]:
        return scene.start(sagas.line, key=key, label="many")

    with ThreadPoolExecutor(10) as threads:
        handles = list(threads.map(start, range(10)))
    ids: set[UUID] = {handle.execution_id for handle in handles}
    assert len(ids) == 1
    assert sum(handle.created for handle in handles) == 1
    (execution_id,) = ids
    assert scene.succeeds(handles[0]) == "many"
    assert [scene.runs(execution_id, step) for step in ("first", "second", "third")] == [1, 1, 1]
    assert len(scene.events(execution_id, "execution.started")) == 1
