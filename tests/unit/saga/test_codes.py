"""Every code of `fencepost check`: the reference's example triggers it, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fencepost.celery import (
    QUEUE_RULES,
    SETTINGS_RULES,
    check_queues,
    declared_queues,
    installed_on,
)
from fencepost.engine.registry import leniently
from fencepost.findings import Finding, Rule, Severity
from fencepost.saga import Saga
from fencepost.saga.checks import RULES, check
from tests.docs.pages import DOCS, Block, blocks_of

PAGE = DOCS / "reference" / "checks.md"
ALL: tuple[Rule, ...] = (*RULES, *QUEUE_RULES, *SETTINGS_RULES)
PRELUDE, *EXAMPLES = blocks_of(PAGE)


def headings() -> list[tuple[int, str]]:
    lines = PAGE.read_text("utf-8").splitlines()
    found = [(n, re.fullmatch(r"### `([a-z.-]+)`", line)) for n, line in enumerate(lines, 1)]
    return [(n, match[1]) for n, match in found if match]


def example_of(code: str) -> Block:
    """The block that follows the code's heading."""
    lines = headings()
    begin = next(n for n, heading in lines if heading == code)
    end = next((n for n, _ in lines if n > begin), 1_000_000)
    (block,) = [block for block in EXAMPLES if begin < block.line < end]
    return block


def findings_of(block: Block) -> list[Finding]:
    names: dict[str, Any] = {"__name__": "shop"}
    exec(compile(PRELUDE.text, str(PRELUDE), "exec"), names)
    app = names["app"]
    with leniently():
        exec(compile(block.text, str(block), "exec"), names)
        fencepost = installed_on(app)
        assert fencepost is not None
        saga = names.get("saga")
        if saga is not None:
            fencepost.register(saga)
    app.finalize()
    found = [*fencepost.findings(), *(check(saga) if saga is not None else ())]
    queues = declared_queues(app)
    return found + (check_queues([saga], queues) if queues is not None and saga else [])


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.code)
def test_its_example_triggers_exactly_it(rule: Rule) -> None:
    (finding,) = findings_of(example_of(rule.code))
    assert finding.code == rule.code
    assert finding.severity is rule.severity
    assert finding.message
    assert finding.fix


def test_the_page_has_each_code_once_and_no_other() -> None:
    assert [code for _, code in headings()] == [rule.code for rule in ALL]
    assert len(EXAMPLES) == len(ALL)


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.code)
def test_the_page_says_what_the_rule_says(rule: Rule) -> None:
    text = " ".join(PAGE.read_text("utf-8").split())
    section = text.partition(f"### `{rule.code}`")[2].partition("### ")[0]
    assert f"{rule.what} {rule.why}" in section
    assert f"**Severity:** {rule.severity}. **To mend it:** {rule.mend}." in section


def test_the_beginning_of_the_examples_has_no_findings() -> None:
    names: dict[str, Any] = {"__name__": "shop"}
    exec(compile(PRELUDE.text, str(PRELUDE), "exec"), names)
    right = Saga("orders", input=names["Order"]).then(names["reserve"]).then(names["ship"])
    assert check(right) == []
    assert check(names["item"]) == []


def test_codes_are_stable_names() -> None:
    codes = [rule.code for rule in ALL]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z-]+\.[a-z-]+", code) for code in codes)
    assert {rule.severity for rule in ALL} == set(Severity)
