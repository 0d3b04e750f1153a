"""One exchange with the model's server: ask, and make one kind of reply of what servers answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import openai
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from pydantic import BaseModel, ConfigDict

from tasks.planner import prompt, untrusted
from tasks.planner.client import without_secret
from tasks.planner.errors import PlannerRefusedError, PlannerUnavailableError
from tasks.planner.settings import PlannerSettings
from tasks.planner.tokens import count_tokens

ANSWER_TOKENS = 4_000
"""The longest answer that is asked for, hidden reasoning included."""

TEXT_LIMIT = 20_000
"""Characters of an answer that are kept."""

CALLS_LIMIT = 16
"""Tool calls of one reply that are kept."""

ARGUMENTS_LIMIT = 2_000
"""Characters of a tool call's arguments that are kept."""

ID_LIMIT = 200
"""Characters of names and ids that are kept."""


class ToolCall(BaseModel):
    """A tool call that the model asks for; `arguments` is JSON text, unchecked."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    arguments: str


class Reply(BaseModel):
    """What the model answered.

    Attributes:
        model: The model that the server says has answered.
        finish_reason: As the server gives it: `stop`, `tool_calls`, `length`, ...
        prompt_tokens: Tokens sent, counted by the server (estimated where it doesn't).
        completion_tokens: Tokens received, likewise.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    finish_reason: str
    text: str
    refusal: str
    tool_calls: tuple[ToolCall, ...]
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Dialect:
    """How much of the API a server understands."""

    answer_form: Literal["json_schema", "json_object", "free"]
    limit_name: Literal["max_completion_tokens", "max_tokens"]

    def options(self) -> dict[str, Any]:
        """The arguments of a completion that differ from dialect to dialect."""
        options: dict[str, Any] = {self.limit_name: ANSWER_TOKENS}
        if self.answer_form == "json_schema":
            schema = {"name": "RecoveryPlan", "strict": True, "schema": prompt.plan_schema()}
            options["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self.answer_form == "json_object":
            options["response_format"] = {"type": "json_object"}
        return options


DIALECTS = (
    Dialect("json_schema", "max_completion_tokens"),
    Dialect("json_object", "max_tokens"),
    Dialect("free", "max_tokens"),
)
"""Tried in this order until the server takes one; it refuses with a 4xx what it doesn't know."""

_NOT_UNDERSTOOD = (400, 404, 415, 422, 501)


class Model:
    """A model behind a client; remembers which dialect its server understood.

    Args:
        client: See `client.connect`.
        settings: That the client was made from.
        before_request: Called before each request; may raise to stop here.
    """

    def __init__(
        self,
        client: OpenAI,
        settings: PlannerSettings,
        *,
        before_request: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._dialects = list(DIALECTS)
        self._before_request = before_request

    def ask(self, messages: Sequence[ChatCompletionMessageParam]) -> Reply:
        """Send the conversation and return the reply.

        Raises:
            PlannerUnavailableError: No answer after the client's own retries; later may help.
            PlannerRefusedError: The server refuses for good, or is no chat completion server.
        """
        while True:
            self._before_request()
            try:
                answer = self._client.chat.completions.create(
                    model=self._settings.model,
                    messages=list(messages),
                    tools=prompt.tools(),
                    tool_choice="auto",
                    **self._dialects[0].options(),
                )
            except openai.APIStatusError as problem:
                if problem.status_code in _NOT_UNDERSTOOD and len(self._dialects) > 1:
                    del self._dialects[0]
                    continue
                # Without the cause: it holds the request, headers and all.
                raise self._translated(problem) from None
            except (openai.APIConnectionError, openai.APIResponseValidationError) as problem:
                raise PlannerUnavailableError(
                    self._safe(f"{self._settings.base_url}: {problem}"),
                    base_url=self._settings.base_url,
                ) from None
            except ValueError:
                raise PlannerUnavailableError(
                    f"{self._settings.base_url} sent a body that is not JSON",
                    base_url=self._settings.base_url,
                ) from None
            return self._reply(answer, messages)

    def _translated(
        self, problem: openai.APIStatusError
    ) -> PlannerUnavailableError | PlannerRefusedError:
        status = problem.status_code
        passing = status in (408, 409, 425, 429) or status >= 500
        if problem.code == "insufficient_quota":
            passing = False
        kind = PlannerUnavailableError if passing else PlannerRefusedError
        hint = {
            401: " (is OPENAI_API_KEY right?)",
            404: " (are OPENAI_BASE_URL and FACTORY_PLANNER_MODEL right?)",
        }.get(status, "")
        message = f"{self._settings.base_url} answered {status}: {problem.message}"
        return kind(self._safe(message)[:1000] + hint, status=status)

    def _reply(self, answer: object, messages: Sequence[ChatCompletionMessageParam]) -> Reply:
        # The client builds its objects without checking them, so an error page or
        # {"error": ...} with status 200 arrives here as well.
        if not isinstance(answer, ChatCompletion):
            raise PlannerRefusedError(
                f"{self._settings.base_url} doesn't answer as a chat completion server"
                " (is OPENAI_BASE_URL right?)"
            )
        choice = next(iter(answer.choices or ()), None)
        if choice is None:
            raise PlannerUnavailableError(
                f"{self._settings.base_url} sent an answer without choices"
            )
        message = choice.message
        calls = tuple(
            ToolCall(
                id=_kept(call.id, ID_LIMIT) or f"call_{n}",
                name=_kept(call.function.name, ID_LIMIT),
                arguments=_kept(call.function.arguments, ARGUMENTS_LIMIT),
            )
            for n, call in enumerate((message.tool_calls or ())[:CALLS_LIMIT])
            if call.type == "function"
        )
        text = _kept(message.content)
        usage = answer.usage
        return Reply(
            model=_kept(answer.model, ID_LIMIT) or self._settings.model,
            finish_reason=_kept(choice.finish_reason, ID_LIMIT) or "stop",
            text=text,
            refusal=_kept(message.refusal),
            tool_calls=calls,
            prompt_tokens=usage.prompt_tokens if usage else count_tokens(list(messages)),
            completion_tokens=usage.completion_tokens
            if usage
            else count_tokens([text, *(call.arguments for call in calls)]),
        )

    def _safe(self, text: str) -> str:
        return without_secret(text, self._settings)


def _kept(text: str | None, limit: int = TEXT_LIMIT) -> str:
    """What is kept of a text from the server; no database is given a NUL or half a character."""
    return untrusted.cleaned(text or "")[:limit]
