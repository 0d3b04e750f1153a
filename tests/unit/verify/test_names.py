"""Two derivations, written down twice, come out the same."""

from __future__ import annotations

from uuid import UUID

import pytest

from fencepost import identity, serde
from fencepost.decide import TOLD_BY_PARENT
from fencepost.records import ENDED, EventName
from fencepost.verify import names

ID = UUID("12345678-1234-5678-1234-567812345678")


def test_ids():
    assert names.derived_child(ID, "modules", 2, 7) == identity.child_id(ID, "modules", 2, 7)
    assert names.derived_continuation(ID) == identity.continuation_id(ID)
    assert names.derived_keyed("release", "order:42") == identity.keyed_execution_id(
        "release", "order:42"
    )


@pytest.mark.parametrize("value", [None, 1, "ä", [1, 2.5], {"b": {"d": 1, "c": None}, "a": []}])
def test_digests(value):
    assert names.digest_of(value) == serde.digest(value)


def test_words():
    assert {str(status) for status in ENDED} == names.ENDED
    assert names.ACQUIRED == EventName.LEASE_ACQUIRED
    assert names.RAISED == EventName.EPOCH_RAISED
    assert {EventName.LEASE_LOST, EventName.ZOMBIE_WRITE_REJECTED} == names.REFUSED
    assert names.FROM_ABOVE == TOLD_BY_PARENT
    people = (names.CANCELLED, names.REOPENED, names.UNPARKED, names.REPINNED, names.FORKED)
    assert {*people, names.DEADLINE_PASSED} <= set(EventName)
