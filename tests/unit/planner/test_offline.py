"""The default: the real client, a deterministic model behind it, no network."""

from __future__ import annotations

import socket

import openai
import pytest

from tasks.planner import next_attempt, plan_recovery
from tasks.planner.client import connect
from tasks.planner.settings import PlannerSettings

NEEDS_V3 = "the host requires wire ABI v3, but the module was built with v1"


def no_network(*arguments, **keywords):
    raise AssertionError("the offline planner opened a socket")


def test_plans_from_the_diagnostics_without_a_network(world, monkeypatch):
    monkeypatch.setattr(socket, "socket", no_network)
    monkeypatch.setattr(socket, "create_connection", no_network)
    ctx, failure = world.failed()

    planned = plan_recovery(ctx, failure)

    assert planned.plan.added_flags == ("--abi-compat=v2",)
    following = next_attempt(planned)
    assert following.flags == ("--opt-level=3", "--deterministic", "--abi-compat=v2")
    assert following.attempt == 2
    assert "minimum is wire ABI v2" in planned.plan.root_cause


def test_other_diagnostics_lead_to_another_plan(world):
    policy = {"allowed_flags": ("--abi-compat=v2", "--abi-compat=v3"), "max_attempts": 3}
    ctx, failure = world.failed(world.request(policy=policy), stderr=NEEDS_V3)

    assert plan_recovery(ctx, failure).plan.added_flags == ("--abi-compat=v3",)


def test_the_tool_is_called_before_the_answer(world):
    ctx, failure = world.failed()

    plan_recovery(ctx, failure)

    assert [call.kind for call in world.calls()] == ["model", "tool", "model"]
    assert [call.seq for call in world.calls()] == [1, 2, 3]
    assert "wire ABI v1" in world.calls()[1].answer["text"]


def test_token_counts_are_of_the_texts(world):
    ctx, failure = world.failed()
    plan_recovery(ctx, failure)
    short = world.plans()[-1]

    longer = world.request(attempt=2, flags=("--deterministic",))
    ctx, failure = world.failed(longer, stdout="booked a refund\n" * 200)
    plan_recovery(ctx, failure)
    long = world.plans()[-1]

    assert short.accepted
    assert short.turn == 3
    models = [call for call in world.calls() if call.kind == "model"][:2]
    assert short.tokens_in == sum(call.tokens_in for call in models)
    assert short.tokens_out == sum(call.tokens_out for call in models) > 0
    assert 600 < long.tokens_in - short.tokens_in < 1200


def test_the_same_conversation_gets_the_same_answer():
    task = '{"allowed_flags": ["--x=1"], "current_flags": []}'
    answers = set()
    for _ in range(2):
        with connect(PlannerSettings()) as client:
            answer = client.chat.completions.create(
                model="m",
                messages=[
                    {
                        "role": "user",
                        "content": f"```json\n{task}\n```",
                    }
                ],
            )
            answers.add(answer.model_dump_json())

    assert len(answers) == 1


def test_the_offline_server_knows_only_chat_completions():
    with connect(PlannerSettings()) as client:
        with pytest.raises(openai.NotFoundError):
            client.models.list()
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="m", messages=[])
