"""A saga as text, as data, and as a flowchart."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost import (
    STAYS,
    ErrorBranch,
    Failure,
    Limit,
    Quorum,
    RetryPolicy,
    Saga,
    Signal,
    TaskContext,
    effect,
    step,
    task,
)
from fencepost.effects import EffectCall, EffectKind
from fencepost.saga.describe import as_mermaid, as_text, describe
from tests.unit.saga.generated import Maker

ONCE = RetryPolicy(attempts=1)


@effect(kind=EffectKind.IDEMPOTENT, sink="bank")
def charge(call: EffectCall, cents: int) -> str:
    raise NotImplementedError


@effect(kind=EffectKind.IDEMPOTENT, sink="bank")
def refund(call: EffectCall, receipt: str) -> None: ...


@step(retry=ONCE, effects=[refund])
def pay_back(receipt: str) -> None: ...


@step(retry=ONCE, effects=[charge], compensate=pay_back, timeout=timedelta(minutes=5))
def pay(cents: int) -> str:
    raise NotImplementedError


@step(retry=ONCE, queue="paper", limit=Limit(name="printer", concurrency=2, rate=10))
def print_it(receipt: str) -> list[int]:
    raise NotImplementedError


@step(retry=ONCE, compensate=STAYS, deadline=timedelta(hours=1))
def send(pages: list[int]) -> int:
    raise NotImplementedError


@step(retry=ONCE, transactional=True)
def note(number: int) -> int:
    raise NotImplementedError


@step(retry=ONCE)
def apologise(failure: Failure[int]) -> int:
    raise NotImplementedError


def each(pages: list[int]) -> list[int]:
    return pages


def is_many(number: int) -> bool:
    return number > 1


page = Saga("page", input=int, queue="paper").then(note)
whole: Saga[int, Any] = (
    Saga("letters", input=int, deadline=timedelta(days=1))
    .then(pay)
    .then(print_it)
    .map(page, over=each, name="pages", join=Quorum(2), max_items=10)
    .pivot(send)
    .branch(
        "size",
        choose=is_many,
        cases={True: Saga("many", input=int).sleep("rest", timedelta(hours=2))},
        default=Saga("few", input=int),
    )
    .loop("again", Saga("body", input=int).then(note), again=is_many, max_visits=3)
    .wait_for(Signal("read", int), timeout=timedelta(days=3))
    .on_error(ErrorBranch(ValueError).finish(apologise))
)


def test_as_text() -> None:
    text = as_text(describe(whole)).replace(whole.version, "V").replace(page.version, "P")
    assert text == dedent(TEXT).strip()


TEXT = """
saga letters (version V): int → int
│  deadline 1 day, 0:00:00
├─ pay: int → str
│     ↩ pay_back (refund)
│     effect charge: idempotent at bank
│     tried once
│     timeout 0:05:00
├─ print_it: str → list[int]
│     tried once
│     queue paper
│     limit printer: 2 at once, 10 in 0:00:01
├─ pages: list[int] → list[int]
│     for each item: saga page (version P)
│     join: 2 succeed, the others are stopped; at most 10, 16 at once
├─ send: list[int] → int
│     stays: nothing undoes it, on purpose
│     tried once
│     deadline 1:00:00
├─ ══ pivot: no way back from here on ══
├─ size: int → int
│  │  one of
│  ├─ case true
│  │  └─ rest: int → int
│  │        waits for 2:00:00
│  └─ case *
│     └─ (straight on)
├─ again: int → int
│  │  again and again, at most 3 times
│  └─ note: int → int
│        transactional
│        tried once
├─ read: int → int
│     waits for signal read, at most 3 days, 0:00:00
└─ on ValueError
   └─ apologise: Failure[int] → int
         tried once
         ends as succeeded

saga page (version P): int → int
│  queue paper
└─ note: int → int
      transactional
      tried once
"""


def test_as_data() -> None:
    said = describe(whole)
    assert json.loads(json.dumps(said)) == said
    assert (said["name"], said["version"], said["deadline"]) == ("letters", whole.version, 86_400.0)
    assert [node["kind"] for node in said["nodes"]] == [
        *("step", "step", "map", "step", "branch", "loop", "signal"),
    ]
    assert said["nodes"][0]["compensation"] == "pay_back"
    assert said["nodes"][0]["effects"] == [{"name": "charge", "kind": "idempotent", "sink": "bank"}]
    assert said["nodes"][3]["pivot"] is True
    assert [child["name"] for child in said["children"]] == ["page"]
    assert said["branches"][0]["error"] == "ValueError"


def test_a_task() -> None:
    @task(name="tidy", effects=(charge,))
    def tidy(ctx: TaskContext, cents: int) -> str:
        raise NotImplementedError

    said = describe(tidy)
    assert as_text(said).splitlines()[0] == f"task tidy (version {tidy.version}): int → str"
    assert "effect charge: idempotent at bank" in as_text(said)
    assert well_formed(as_mermaid(said))


# -- Mermaid -------------------------------------------------------------------------------

LABEL = r'"(?:[^"<>&{}\[\]|`]|#\d+;)*"'
SHAPES = [
    rf"\(\[{LABEL}\]\)",
    rf"\[\[{LABEL}\]\]",
    rf"\(\({LABEL}\)\)",
    rf"\{{\{{{LABEL}\}}\}}",
    rf"\{{{LABEL}\}}",
    rf"\[{LABEL}\]",
    rf">{LABEL}\]",
]
LINES = [
    rf"n\d+(?:{'|'.join(SHAPES)})(?::::\w+)?",
    rf"n\d+ -->(?:\|{LABEL}\|)? n\d+",
    r"n\d+ -\.- n\d+",
    rf"subgraph s\d+ \[{LABEL}\]",
    "end",
    r"classDef \w+ [\w :-]+;",
]


def well_formed(chart: str) -> bool:
    """Every line is one that Mermaid knows, every edge leads from a node to a node."""
    first, *lines = chart.splitlines()
    assert first == "flowchart TD"
    for line in lines:
        assert any(re.fullmatch(known, line.strip()) for known in LINES), line
    defined = {match for line in lines for match in re.findall(r"^\s*(n\d+)[\[({>]", line)}
    used = {match for line in lines for match in re.findall(r"\bn\d+\b", line.partition('"')[0])}
    assert used <= defined
    return chart.count("subgraph ") == sum(line.strip() == "end" for line in lines)


def test_as_mermaid() -> None:
    chart = as_mermaid(describe(whole))
    assert well_formed(chart)
    for name in ("pay", "↩ pay_back", "print_it", "size", "note", "on ValueError", "saga page"):
        assert name in chart
    assert ":::pivot" in chart


@pytest.mark.parametrize("name", ['a"b', "a<b>", "a|b", "end", "a]b", "a#b", "a`b", "{a}", "%%"])
def test_any_name_can_be_drawn(name: str) -> None:
    odd = step(name=name)(note.function)
    assert well_formed(as_mermaid(describe(Saga("s", input=int).then(odd))))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_is_built_can_be_shown(data: st.DataObject) -> None:
    said = describe(Maker(data).saga())
    json.dumps(said)
    assert as_text(said).startswith("saga ")
    assert well_formed(as_mermaid(said))
