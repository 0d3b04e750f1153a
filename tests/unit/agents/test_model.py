"""Asking a model: what is tried again, what isn't, and what is kept of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from fencepost import RetryPolicy, Status
from fencepost.agents import MODEL_RETRIES
from tests.support.inline import Inline
from tests.unit.agents.support import Agent, Brain, Messages, calling, completion, saying

SOON = RetryPolicy(
    attempts=3,
    first_delay=timedelta(0),
    max_delay=timedelta(0),
    retry_on=MODEL_RETRIES.retry_on,
)


@pytest.fixture
def answered(sqlite_url: str) -> Iterator[Callable[[Brain], Any]]:
    made: list[Inline] = []

    def run(brain: Brain) -> tuple[Agent, Any]:
        agent = Agent(brain, retry=SOON)
        fleet = Inline(sqlite_url, [agent.task])
        made.append(fleet)
        return agent, fleet.row(fleet.run(agent.task, "hello"))

    yield run
    for fleet in made:
        fleet.close()


def problem(status: int, code: str | None = None) -> httpx2.Response:
    return httpx2.Response(status, json={"error": {"message": "no", "code": code}})


def at_first(trouble: Callable[[], httpx2.Response]) -> Brain:
    """In trouble twice, and then well."""
    asked: list[int] = []

    def brain(_messages: Messages, _tools: Any) -> dict[str, Any] | httpx2.Response:
        asked.append(1)
        return trouble() if len(asked) < 3 else saying("at last")

    return brain


def unreachable() -> httpx2.Response:
    raise httpx2.ConnectError("nobody there")


def slow() -> httpx2.Response:
    raise httpx2.ReadTimeout("too slow")


@pytest.mark.parametrize(
    "trouble",
    [
        unreachable,
        slow,
        lambda: problem(429),
        lambda: problem(500),
        lambda: problem(503),
        lambda: completion(None),
    ],
    ids=["unreachable", "slow", "429", "500", "503", "no choices"],
)
def test_what_may_pass_is_tried_again(
    answered: Callable[[Brain], Any], trouble: Callable[[], httpx2.Response]
) -> None:
    agent, row = answered(at_first(trouble))
    assert (row.status, row.result["content"]) == (Status.SUCCEEDED, "at last")
    assert len(agent.model.asked) == 3


def test_trouble_that_does_not_pass_fails_the_task(answered: Callable[[Brain], Any]) -> None:
    agent, row = answered(lambda *_: problem(503))
    assert row.status is Status.FAILED
    assert row.error["details"]["cause_code"] == "agent.model-unavailable"
    assert len(agent.model.asked) == 3


@pytest.mark.parametrize(
    "answer", [problem(401), problem(400), problem(429, "insufficient_quota")], ids=str
)
def test_a_refusal_is_final(answered: Callable[[Brain], Any], answer: httpx2.Response) -> None:
    agent, row = answered(lambda *_: answer)
    assert row.status is Status.FAILED
    assert len(agent.model.asked) == 1


def test_what_no_database_takes_is_left_out(answered: Callable[[Brain], Any]) -> None:
    agent, row = answered(lambda *_: saying("nul \x00 and half \ud83d a face"))
    assert row.result["content"] == "nul  and half ? a face"
    assert len(agent.model.asked) == 1


def test_a_refusal_of_the_model_is_its_answer(answered: Callable[[Brain], Any]) -> None:
    _, row = answered(lambda *_: {"content": None, "refusal": "I won't"})
    assert row.result["content"] == "I won't"


def test_calls_of_no_function_are_left_out(answered: Callable[[Brain], Any]) -> None:
    custom = {"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "rm"}}
    _, row = answered(lambda *_: {"content": "hm", "tool_calls": [custom]})
    assert row.result["content"] == "hm"


def test_the_model_sees_its_own_words_again(answered: Callable[[Brain], Any]) -> None:
    def brain(messages: Messages, _tools: Any) -> dict[str, Any]:
        if len(messages) == 1:
            return calling(("look_up_order", {"order_id": "A1"}))
        return saying("done")

    agent, _ = answered(brain)
    _, said, shown = agent.model.asked[1]
    assert said["tool_calls"][0]["function"]["name"] == "look_up_order"
    assert shown["tool_call_id"] == said["tool_calls"][0]["id"]
