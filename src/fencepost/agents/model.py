"""Asking a model: a step over any client with OpenAI's chat completions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

from pydantic import BaseModel, Field

from fencepost.agents.tools import ToolCall, Tools
from fencepost.errors import FencepostError
from fencepost.retry import RetryPolicy
from fencepost.saga.steps import Step

MAY_PASS = frozenset({408, 409, 425, 429})
"""HTTP statuses below 500 after which asking again may help."""


class ModelUnavailableError(FencepostError):
    """A model could not be asked now; later may help."""

    code = "agent.model-unavailable"


MODEL_RETRIES = RetryPolicy(
    attempts=6,
    first_delay=timedelta(seconds=2),
    max_delay=timedelta(minutes=2),
    retry_on=(ModelUnavailableError, ConnectionError, TimeoutError),
)
"""On top of the client's own retries: these survive a worker and hold no slot while they wait."""


class ModelReply(BaseModel):
    """A model's answer, as far as a loop needs it."""

    content: str | None = None
    tool_calls: list[ToolCall] = Field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0


class Conversation(BaseModel):
    """The input of a model call: messages in OpenAI's form."""

    messages: list[dict[str, Any]]


class ChatClient(Protocol):
    """The part of `openai.OpenAI` that is used."""

    @property
    def chat(self) -> Any:
        """The chat API."""
        ...


def model_step(
    client: ChatClient,
    *,
    model: str,
    tools: Tools,
    name: str = "ask_model",
    retry: RetryPolicy = MODEL_RETRIES,
    **options: Any,
) -> Step[Conversation, ModelReply]:
    """A step that asks a model, through any client with OpenAI's chat completions.

    Args:
        client: An `openai.OpenAI`, with its own time-out and retries.
        model: The model's name.
        tools: What it may call.
        name: The step's name.
        retry: For what may pass: no connection, time-outs, 429, 5xx, an empty answer.
        **options: Further arguments of the completion, such as `temperature`.
    """

    def ask(conversation: Conversation) -> ModelReply:
        try:
            answer = client.chat.completions.create(
                model=model, messages=conversation.messages, tools=tools.definitions(), **options
            )
        except Exception as problem:
            if may_pass(problem):
                raise ModelUnavailableError(f"{type(problem).__name__}: {problem}") from problem
            raise
        if not getattr(answer, "choices", None):
            raise ModelUnavailableError("the model's server sent an answer without choices")
        return _reply(answer)

    return Step(ask, name=name, retry=retry)


def may_pass(problem: Exception) -> bool:
    """Whether an error of an OpenAI client is worth another try; told without importing one."""
    status = getattr(problem, "status_code", None)
    if isinstance(status, int):
        exhausted = getattr(problem, "code", None) == "insufficient_quota"
        return (status in MAY_PASS or status >= 500) and not exhausted
    return any(kind.__name__ == "APIConnectionError" for kind in type(problem).__mro__)


def _reply(answer: Any) -> ModelReply:
    message, usage = answer.choices[0].message, answer.usage
    calls = [
        ToolCall(
            id=_storable(call.id),
            name=_storable(call.function.name),
            arguments=_storable(call.function.arguments),
        )
        for call in message.tool_calls or []
        if getattr(call, "function", None) is not None
    ]
    content = message.content or getattr(message, "refusal", None)
    return ModelReply(
        content=None if content is None else _storable(content),
        tool_calls=calls,
        input_tokens=usage.prompt_tokens if usage else 0,
        output_tokens=usage.completion_tokens if usage else 0,
    )


def _storable(text: str) -> str:
    """Without NULs and halves of characters, which no database takes."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
