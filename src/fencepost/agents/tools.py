"""What a model may call: effects and steps, as OpenAI tool definitions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from fencepost import serde
from fencepost.durable import TaskContext
from fencepost.effects import Effect
from fencepost.errors import (
    EffectKeyConflictError,
    EffectRefusedError,
    PayloadError,
    SagaDefinitionError,
    StepFailedError,
)
from fencepost.saga.steps import Step

Tool = Effect[Any, Any] | Step[Any, Any]

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What OpenAI's API takes as a tool's name."""


class ToolCall(BaseModel):
    """A model's wish to call a tool.

    Attributes:
        id: The model's own name for the call.
        arguments: JSON text, as the model wrote it.
    """

    id: str
    name: str
    arguments: str


class Tools:
    """Functions that a model may call, as OpenAI tool definitions.

    Args:
        *tools: Effects (performed once under their key) and steps (run once, for reading). Each
            takes an object, such as a pydantic model.
        keys: Business keys, by the tool's name, made from the request: `{"refund": lambda
            request: f"refund:{request.order_id}"}`. Without one, each call of the model has a key
            of its own, and a model that asks twice gets two.

    Raises:
        SagaDefinitionError: Two tools have one name, or a tool can't be one; says which.
    """

    def __init__(
        self, *tools: Tool, keys: Mapping[str, Callable[[Any], str]] | None = None
    ) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._keys = dict(keys or {})
        if len(self._tools) < len(tools):
            raise SagaDefinitionError("two tools of an agent have one name")
        for name in self._keys:
            if not isinstance(self._tools.get(name), Effect):
                raise SagaDefinitionError(f"keys: there is no effect {name!r} among the tools")
        self._definitions = [_definition(tool) for tool in tools]

    def definitions(self) -> list[dict[str, Any]]:
        """For the `tools` argument of a chat completion."""
        return self._definitions

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
            result = self._run(ctx, tool, value)
        except (EffectRefusedError, EffectKeyConflictError, StepFailedError, PayloadError) as told:
            return _trouble(told.code, told.message)
        data = serde.dump(result, _output_type(tool), what=f"result of tool {call.name!r}")
        return json.dumps({"result": data})

    def _run(self, ctx: TaskContext, tool: Tool, value: Any) -> Any:
        if isinstance(tool, Step):
            return ctx.run(tool, value)
        key = self._keys.get(tool.name)
        return ctx.perform(tool, value, key=None if key is None else key(value))


def _definition(tool: Tool) -> dict[str, Any]:
    schema = serde.adapter(_input_type(tool)).json_schema()
    if schema.get("type") != "object":
        raise SagaDefinitionError(
            f"tool {tool.name!r} takes {serde.describe(_input_type(tool))}: a model gives its"
            " arguments as an object, so let it take a pydantic model",
            tool=tool.name,
        )
    if not TOOL_NAME.fullmatch(tool.name):
        raise SagaDefinitionError(
            f"tool {tool.name!r}: models take names of at most 64 letters, digits, _ and -; give it"
            " one with name=...",
            tool=tool.name,
        )
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
