"""The loop: ask, call tools, ask again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from fencepost.agents.model import Conversation, ModelReply
from fencepost.agents.tools import Tools
from fencepost.durable import TaskContext
from fencepost.errors import FencepostError
from fencepost.saga.steps import Step

MAX_TURNS = 16
"""Model calls of one loop, unless the caller says otherwise."""


class AgentTurnLimitError(FencepostError):
    """A model went on asking for tools past the limit."""

    code = "agent.turn-limit"


class AgentResult(BaseModel):
    """What a loop came to.

    Attributes:
        content: The model's last words.
        turns: Model calls on record.
        tool_calls: Tool calls on record.
    """

    content: str
    turns: int
    tool_calls: int
    input_tokens: int
    output_tokens: int


def run_agent(
    ctx: TaskContext,
    ask: Step[Conversation, ModelReply],
    tools: Tools,
    messages: Sequence[dict[str, Any]],
    *,
    max_turns: int = MAX_TURNS,
) -> AgentResult:
    """Let a model call tools until it answers without calling one.

    Args:
        ctx: Of the durable task; every model call and tool call is recorded in it.
        ask: Asks the model; `model_step` makes one.
        tools: What the model may call.
        messages: How the conversation begins, in OpenAI's form.
        max_turns: Model calls before the loop gives up.

    Raises:
        AgentTurnLimitError: The model still wanted tools after that many calls.
        StepFailedError: The model could not be asked.
    """
    conversation = list(messages)
    spent, called = [0, 0], 0
    for turn in range(1, max_turns + 1):
        reply = ctx.run(ask, Conversation(messages=conversation))
        spent = [spent[0] + reply.input_tokens, spent[1] + reply.output_tokens]
        if not reply.tool_calls:
            return AgentResult(
                content=reply.content or "",
                turns=turn,
                tool_calls=called,
                input_tokens=spent[0],
                output_tokens=spent[1],
            )
        conversation.append(_assistant(reply))
        for call in reply.tool_calls:
            called += 1
            content = tools.call(ctx, call)
            conversation.append({"role": "tool", "tool_call_id": call.id, "content": content})
    raise AgentTurnLimitError(
        f"the model still calls tools after {max_turns} turns", max_turns=max_turns
    )


def _assistant(reply: ModelReply) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": reply.content,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in reply.tool_calls
        ],
    }
