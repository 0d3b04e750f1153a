"""The bounded talk with a model: tools, answers, objections, and an end in any case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionMessageParam,
    ChatCompletionMessageToolCallParam,
)
from pydantic import ValidationError

from fencepost import NeedsPerson
from ledger.policy import Violation
from ledger.vocabulary import RecoveryPlan
from tasks.planner import prompt, untrusted
from tasks.planner.inspection import Inspector
from tasks.planner.journal import Journal
from tasks.planner.model import ANSWER_TOKENS, Reply, ToolCall
from tasks.planner.tokens import count_tokens

Judge = Callable[[RecoveryPlan], list[Violation]]
"""The deterministic policy: all that forbids a plan."""


class Asks(Protocol):
    """A model."""

    def ask(self, messages: Sequence[ChatCompletionMessageParam]) -> Reply:
        """Reply to a conversation."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a conversation ends, whatever the model does.

    Attributes:
        rounds: Requests in all.
        answers: Answers that are judged; the last bad one leads to a person.
        tool_calls: Tool calls that are carried out for one reply.
        tokens: Tokens, both ways together; a request that could go beyond isn't sent.
    """

    rounds: int = 10
    answers: int = 3
    tool_calls: int = 4
    tokens: int = 60_000


class Conversation:
    """One attempt to get an acceptable plan out of a model.

    Args:
        task: What is asked.
        model: Who is asked, and under which name it is journaled (model and server).
        inspector: The tool.
        judge: The policy, which has the last word.
        journal: Where each call is recorded before its answer is used.
    """

    def __init__(
        self,
        task: prompt.Task,
        *,
        model: Asks,
        model_name: str,
        inspector: Inspector,
        judge: Judge,
        journal: Journal,
        limits: Limits,
    ) -> None:
        self._model = model
        self._model_name = model_name
        self._inspector = inspector
        self._judge = judge
        self._journal = journal
        self._limits = limits
        self._messages = prompt.opening(task)
        self._spent = 0
        self._since_answer = (0, 0)
        self._inspected = False
        self._last: list[str] = []

    def run(self) -> RecoveryPlan:
        """Talk until a plan passes the policy.

        Raises:
            NeedsPerson: No acceptable plan within the limits; says what stood against the last.
        """
        answers = 0
        for _ in range(self._limits.rounds):
            if self._spent + count_tokens(self._messages) + ANSWER_TOKENS > self._limits.tokens:
                raise self._given_up(f"the budget of {self._limits.tokens} tokens is used up")
            turn, reply = self._ask()
            if reply.tool_calls:
                self._use_tools(reply)
                continue
            plan, violations = self._assess(reply)
            answer = {"text": reply.text or reply.refusal} if plan is None else _data(plan)
            self._journal.judged(turn, reply.model, answer, violations, self._since_answer)
            self._since_answer = (0, 0)
            if plan is not None and not violations:
                return plan
            answers += 1
            self._last = [violation.message for violation in violations]
            if answers >= self._limits.answers:
                raise self._given_up(f"{answers} answers were not acceptable")
            self._messages += [
                {"role": "assistant", "content": reply.text or reply.refusal or "(no answer)"},
                prompt.complaint(self._last),
            ]
        raise self._given_up(f"{self._limits.rounds} requests led to no acceptable answer")

    def _ask(self) -> tuple[int, Reply]:
        request = {"messages": list(self._messages)}
        turn, reply = self._journal.model(
            self._model_name, request, lambda: self._model.ask(self._messages)
        )
        tokens_in, tokens_out = self._since_answer
        self._since_answer = tokens_in + reply.prompt_tokens, tokens_out + reply.completion_tokens
        self._spent += reply.prompt_tokens + reply.completion_tokens
        return turn, reply

    def _use_tools(self, reply: Reply) -> None:
        self._messages.append(_tool_message(reply))
        for index, call in enumerate(reply.tool_calls):
            if index >= self._limits.tool_calls:
                result = f"error: only {self._limits.tool_calls} tool calls are carried out at once"
            elif call.name != prompt.TOOL:
                result = f"error: there is no such tool; there is {prompt.TOOL}"
            else:
                result = self._inspect(call)
            self._messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

    def _inspect(self, call: ToolCall) -> str:
        request = {"arguments": call.arguments}
        text = self._journal.tool(
            prompt.TOOL, request, lambda: self._inspector.call(call.arguments)
        )
        self._inspected = self._inspected or not text.startswith("error:")
        return text

    def _assess(self, reply: Reply) -> tuple[RecoveryPlan | None, list[Violation]]:
        if reply.refusal:
            return None, [_unusable("the answer is a refusal")]
        if reply.finish_reason == "length":
            return None, [_unusable("the answer was cut off: be briefer")]
        try:
            raw = RecoveryPlan.model_validate_json(_unwrapped(reply.text))
            # Escapes such as \u0000 become characters only now.
            plan = RecoveryPlan.model_validate(untrusted.cleaned_data(_data(raw)))
        except ValidationError as problem:
            return None, [_unusable(_described(error)) for error in problem.errors()[:5]]
        if not self._inspected:
            return plan, [_unusable(f"call {prompt.TOOL} before you answer")]
        return plan, self._judge(plan)

    def _given_up(self, why: str) -> NeedsPerson:
        against = f"; against the last one: {'; '.join(self._last)}" if self._last else ""
        reason = f"no recovery plan from {self._model_name}: {why}{against}"
        self._journal.give_up(reason)
        return NeedsPerson(reason[:2000])


def _unwrapped(text: str) -> str:
    """The JSON of an answer that a model has put into a Markdown code block."""
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```"):
        return bare[3:-3].removeprefix("json").strip()
    return bare


def _described(error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    return f"{place}: {error['msg']}" if place else str(error["msg"])


def _unusable(message: str) -> Violation:
    return Violation("plan.unusable-answer", "answer", message)


def _data(plan: RecoveryPlan) -> dict[str, Any]:
    return plan.model_dump(mode="json")


def _tool_message(reply: Reply) -> ChatCompletionAssistantMessageParam:
    calls: list[ChatCompletionMessageToolCallParam] = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in reply.tool_calls
    ]
    return {"role": "assistant", "content": reply.text or None, "tool_calls": calls}
