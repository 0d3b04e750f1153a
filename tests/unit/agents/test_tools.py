"""What a model is offered, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost import EffectKind, Status, effect, step
from fencepost.agents import Tools
from fencepost.effects import EffectCall
from fencepost.errors import SagaDefinitionError
from tests.support.inline import Inline
from tests.unit.agents.support import (
    Agent,
    Bank,
    Brain,
    Messages,
    OrderQuery,
    RefundRequest,
    calling,
    refund_at,
    saying,
    shown,
)


@pytest.fixture
def answered(sqlite_url: str) -> Iterator[Callable[..., Any]]:
    """Runs an agent, and gives it and its execution's row."""
    made: list[Inline] = []

    def run(brain: Brain, **how: Any) -> tuple[Agent, Any]:
        agent = Agent(brain, **how)
        fleet = Inline(sqlite_url, [agent.task])
        made.append(fleet)
        return agent, fleet.row(fleet.run(agent.task, "refund my order A1"))

    yield run
    for fleet in made:
        fleet.close()


def told(agent: Agent) -> list[dict[str, Any]]:
    """What the tools gave the model, as of its last turn."""
    return shown(agent.model.asked[-1])


def then_stop(*first: dict[str, Any]) -> Brain:
    """Says these, one in each turn, and then nothing more."""

    def brain(messages: Messages, _tools: Any) -> dict[str, Any]:
        turn = sum(message["role"] == "assistant" for message in messages)
        return first[turn] if turn < len(first) else saying("done")

    return brain


def test_tools_are_offered_as_openai_wants_them(answered: Callable[..., Any]) -> None:
    offered: list[Any] = []

    def brain(_messages: Messages, tools: list[dict[str, Any]]) -> dict[str, Any]:
        offered.extend(tools)
        return saying("nothing to do")

    _, row = answered(brain)
    assert row.result["content"] == "nothing to do"
    assert [tool["function"]["name"] for tool in offered] == ["look_up_order", "refund"]
    assert [tool["function"]["description"] for tool in offered] == [
        "What is known about an order.",
        "Refund an order.",
    ]
    assert offered[1]["function"]["parameters"]["required"] == ["order_id", "cents"]


def test_several_calls_of_one_turn_run_in_their_order(answered: Callable[..., Any]) -> None:
    agent, row = answered(
        then_stop(
            calling(
                ("look_up_order", {"order_id": "A1"}),
                ("refund", {"order_id": "A1", "cents": 1}),
                ("refund", {"order_id": "A1", "cents": 2}),
            )
        )
    )
    assert agent.bank.booked == [1, 2]
    assert [list(one) for one in told(agent)] == [["result"]] * 3
    assert row.result == {
        "content": "done",
        "turns": 2,
        "tool_calls": 3,
        "input_tokens": 20,
        "output_tokens": 10,
    }


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("refnd", {}, "tool.unknown"),
        ("refund", "{not json", "tool.invalid-arguments"),
        ("refund", "", "tool.invalid-arguments"),
        ("refund", {"order_id": "A1", "cents": -5}, "tool.invalid-arguments"),
        ("refund", {"order_id": "A1"}, "tool.invalid-arguments"),
        ("refund", {"order_id": "A\x00", "cents": 5}, "payload.invalid"),
        ("refund", {"order_id": "A1", "cents": 99_999}, "effect.refused"),
        ("look_up_order", {"order_id": "none"}, "task.step-failed"),
    ],
)
def test_what_went_wrong_is_told_to_the_model(
    answered: Callable[..., Any], name: str, arguments: Any, code: str
) -> None:
    agent, row = answered(then_stop(calling((name, arguments))))
    assert row.result["content"] == "done"
    assert [one["error"]["code"] for one in told(agent)] == [code]
    assert agent.bank.booked == []


def test_a_model_that_asks_twice_gets_two_unless_a_business_key_says_otherwise(
    answered: Callable[..., Any],
) -> None:
    brain = then_stop(
        calling(("refund", {"order_id": "A1", "cents": 5})),
        calling(("refund", {"order_id": "A1", "cents": 5})),
        calling(("refund", {"order_id": "A1", "cents": 6})),
    )
    agent, _ = answered(brain)
    assert agent.bank.booked == [5, 5, 6]

    keys = {"refund": lambda request: f"refund:{request.order_id}"}
    agent, _ = answered(brain, keys=keys)
    assert agent.bank.booked == [5]
    first, second, third = told(agent)
    assert first == second == {"result": {"number": 1, "cents": 5}}
    assert third["error"]["code"] == "effect.key-conflict"


def test_what_is_in_doubt_is_not_told_to_the_model(answered: Callable[..., Any]) -> None:
    brain = then_stop(calling(("refund", {"order_id": "A1", "cents": 5})))

    class Silent(Bank):
        def book(self, cents: int) -> Any:
            super().book(cents)
            raise ConnectionError("no answer")

    agent, row = answered(brain, kind=EffectKind.AT_MOST_ONCE, bank=Silent())
    assert row.status is Status.PARKED
    assert row.error["code"] == "effect.in-doubt"
    assert len(agent.model.asked) == 1


def test_a_model_that_never_stops_is_stopped(answered: Callable[..., Any]) -> None:
    agent, row = answered(
        lambda *_: calling(("look_up_order", {"order_id": "A1"})),
        max_turns=3,
    )
    assert row.status is Status.FAILED
    assert row.error["code"] == "agent.turn-limit"
    assert len(agent.model.asked) == len(agent.looked_up) == 3


@effect(kind=EffectKind.IDEMPOTENT, sink="s")
def takes_a_number(call: EffectCall, number: int) -> int:
    return number


@step(name="badly.named")
def badly_named(query: OrderQuery) -> str:
    return query.order_id


@step(name="refund")
def also_refund(request: RefundRequest) -> int:
    return request.cents


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Tools(takes_a_number), "tool 'takes_a_number' takes int"),
        (lambda: Tools(badly_named), "at most 64 letters"),
        (
            lambda: Tools(also_refund, refund_at(Bank(), EffectKind.IDEMPOTENT)),
            "two tools of an agent have one name",
        ),
        (lambda: Tools(also_refund, keys={"refund": str}), "no effect 'refund' among the tools"),
        (lambda: Tools(keys={"typo": str}), "no effect 'typo' among the tools"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_when_declared(
    make: Callable[[], Tools], says: str
) -> None:
    with pytest.raises(SagaDefinitionError, match=says):
        make()
