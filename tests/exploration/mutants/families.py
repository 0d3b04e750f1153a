"""Guards of parents and children."""

from __future__ import annotations

from tests.exploration.mutants.model import Mutant
from tests.exploration.removing import Cut

ENGINE = "fencepost.engine"
MEMORY = "fencepost.stores.memory"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a parent is joined when its children have ended",
        "no child goes on after the join",
        (
            Cut(
                f"{MEMORY}.waiting:_joined",
                "if all(state.ended for state in states):",
                "if True:",
            ),
            Cut(f"{ENGINE}.fanout:_join", "elif not live:", "elif True:"),
        ),
        ("map-of-one", "join-collect"),
        beside="the same look in the engine's join",
    ),
    Mutant(
        "children are admitted within their cap",
        "no more of them are under way than may be",
        (
            Cut(
                f"{MEMORY}.waiting:admissible",
                "return queued[: max(0, cap - placed)]",
                "return queued",
            ),
        ),
        ("map-of-two-cap-one",),
    ),
    Mutant(
        "a freed place is given to the next child",
        "queued children don't wait for ever",
        (
            Cut(
                f"{MEMORY}.waiting:has_places",
                "return _waits(row) and bool(admissible(tables, row))",
                "return False",
            ),
        ),
        ("map-of-two-cap-one",),
    ),
    Mutant(
        "children are stopped once a quorum has succeeded",
        "what isn't needed any more is undone, and the parent doesn't wait for its work",
        (
            Cut(
                f"{MEMORY}.turning:land",
                "turn.stop_children(*commit.stop_children_of)",
                "pass",
            ),
        ),
        ("quorum-sleeper",),
    ),
    Mutant(
        "a parent's failure undoes its children",
        "nothing of a child stands under a parent that was undone",
        (
            Cut(
                f"{MEMORY}.turning:land",
                "_undo_children(moment, row, *commit.undo_children_of)",
                "pass",
            ),
        ),
        ("child-undone",),
    ),
    Mutant(
        "children are told again to undo their work when their parent turns back again",
        "a family doesn't wait for each other for ever",
        (
            Cut(
                "fencepost.decide:_undo_of_children",
                "if begun and begun[-1] > entered.seq:",
                "if begun:",
            ),
        ),
        ("cancel-while-undoing",),
    ),
)
