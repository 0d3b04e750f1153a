"""Agent loops in durable tasks: model calls are journaled, tools go through `ctx.perform`.

A loop that is killed anywhere repeats no tool's effect and no model call whose answer was
recorded. A model call whose answer was not recorded yet is made again: inference is not exactly
once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Protocol

from pydantic import BaseModel, Field, ValidationError

from fencepost import serde
from fencepost.durable import TaskContext
from fencepost.effects import Effect
from fencepost.errors import EffectRefusedError, FencepostError, StepFailedError
from fencepost.saga.steps import Step

Tool = Effect[Any, Any] | Step[Any, Any]

MAX_TURNS = 16
"""Model calls of one loop, unless the caller says otherwise."""


class AgentTurnLimitError(FencepostError):
    """A model went on asking for tools past the limit."""

    code = "agent.turn-limit"


class ToolCall(BaseModel):
    """A model's wish to call a tool.

    Attributes:
        id: The model's own name for the call.
        arguments: JSON text, as the model wrote it.
    """

    id: str
    name: str
    arguments: str


class ModelReply(BaseModel):
    """A model's answer, as far as a loop needs it."""

    content: str | None = None
    tool_calls: list[ToolCall] = Field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0


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


class Conversation(BaseModel):
    """The input of a model call: messages in OpenAI's form."""

    messages: list[dict[str, Any]]


class Tools:
    """Functions that a model may call, as OpenAI tool definitions.

    Args:
        *tools: Effects (performed once under their key) and steps (run once, for reading).
    """

    def __init__(self, *tools: Tool) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def definitions(self) -> list[dict[str, Any]]:
        """For the `tools` argument of a chat completion."""
        return [_definition(tool) for tool in self._tools.values()]

    def call(self, ctx: TaskContext, call: ToolCall) -> str:
        """Run a tool as part of the task; returns JSON text for the model.

        What the model got wrong and what the sink refused is told to the model. What is in doubt
        is not: the task then waits or parks.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(sorted(self._tools))
            return _trouble("tool.unknown", f"there is no tool {call.name!r}; there are: {known}")
        try:
            value = serde.adapter(_input_type(tool)).validate_json(call.arguments)
        except ValidationError as problem:
            errors = problem.errors(include_url=False, include_input=False, include_context=False)
            return _trouble("tool.invalid-arguments", json.dumps(errors, default=str))
        try:
            result = ctx.perform(tool, value) if isinstance(tool, Effect) else ctx.run(tool, value)
        except (EffectRefusedError, StepFailedError) as problem:
            return _trouble(problem.code, problem.message)
        data = serde.dump(result, _output_type(tool), what=f"result of tool {call.name!r}")
        return json.dumps({"result": data})


class ChatClient(Protocol):
    """The part of `openai.OpenAI` that is used."""

    @property
    def chat(self) -> Any:
        """The chat API."""
        ...


def model_step(
    client: ChatClient, *, model: str, tools: Tools, name: str = "ask_model", **options: Any
) -> Step[Conversation, ModelReply]:
    """A step that asks a model, through any client with OpenAI's chat completions.

    Args:
        client: An `openai.OpenAI`, with its own time-out and retries.
        model: The model's name.
        tools: What it may call.
        name: The step's name.
        **options: Further arguments of the completion, such as `temperature`.
    """

    def ask(conversation: Conversation) -> ModelReply:
        answer = client.chat.completions.create(
            model=model, messages=conversation.messages, tools=tools.definitions(), **options
        )
        message, usage = answer.choices[0].message, answer.usage
        calls = [
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in message.tool_calls or []
        ]
        return ModelReply(
            content=message.content,
            tool_calls=calls,
            input_tokens=usage.prompt_tokens if usage else 0,
            output_tokens=usage.completion_tokens if usage else 0,
        )

    return Step(ask, name=name)


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


def _definition(tool: Tool) -> dict[str, Any]:
    schema = serde.adapter(_input_type(tool)).json_schema()
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": (tool.__doc__ or tool.name).strip().partition("\n")[0],
            "parameters": schema,
        },
    }


def _input_type(tool: Tool) -> Any:
    return tool.request_type if isinstance(tool, Effect) else tool.input_type


def _output_type(tool: Tool) -> Any:
    return tool.result_type if isinstance(tool, Effect) else tool.output_type


def _trouble(code: str, message: str) -> str:
    return json.dumps({"error": {"code": code, "message": message}})
