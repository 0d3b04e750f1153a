"""A ledger with a failed release in it, and models that say what a test wants them to say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

import ledger
from fencepost import Failure, FenceToken, StepContext
from ledger import database
from ledger.models import Attempt, AttemptStatus, Diagnostics, Plan
from ledger.planner_records import ModelCall
from ledger.vocabulary import GateSpec, ModuleSpec, ReleasePolicy, ReleaseRequest
from tasks.planner import client as planner_client
from tasks.planner import step as planner_step

COLLECTOR = (
    "telemetry-collector: offset 0: the frame header announces 1031479909 bytes; its version byte"
    " says wire ABI v1, this collector's minimum is wire ABI v2 (header of 12 bytes)"
)


@dataclass
class World:
    """One release line in a ledger of its own, and the environment of a worker."""

    url: str
    lineage_id: UUID = field(default_factory=uuid4)

    def session(self) -> AbstractContextManager[Session]:
        """On the ledger."""
        return database.session(self.url)

    def request(self, **changes: Any) -> ReleaseRequest:
        """What the failed attempt was asked to do."""
        values: dict[str, Any] = {
            "name": "storefront",
            "version": "2026.1",
            "modules": [ModuleSpec(name="payment-engine", directory=Path("/src/payment-engine"))],
            "flags": ("--opt-level=3", "--deterministic"),
            "policy": ReleasePolicy(
                allowed_flags=("--abi-compat=v2", "--opt-level=2"), max_attempts=3
            ),
            "gate": GateSpec(check=Path("/src/check.py")),
        }
        return ReleaseRequest.model_validate(values | changes)

    def failed(
        self, request: ReleaseRequest | None = None, stderr: str = COLLECTOR, stdout: str = ""
    ) -> tuple[StepContext, Failure[ReleaseRequest]]:
        """Put a failed, compensated attempt into the ledger; what its planning step is given."""
        request = request or self.request()
        execution_id = self.lineage_id if request.attempt == 1 else uuid4()
        with self.session() as session:
            session.add(
                Attempt(
                    execution_id=execution_id,
                    lineage_id=self.lineage_id,
                    attempt=request.attempt,
                    release=request.name,
                    version=request.version,
                    flags=list(request.flags),
                    request=request.model_dump(mode="json"),
                    status=AttemptStatus.COMPENSATED,
                    step_key=f"{execution_id}:lock_candidate:1",
                    epoch=1,
                )
            )
            session.flush()
            session.add(
                Diagnostics(
                    id=uuid4(),
                    attempt_id=execution_id,
                    step_key=f"{execution_id}:gate:1",
                    epoch=1,
                    passed=False,
                    command=["python", "check.py"],
                    exit_code=1,
                    timed_out=False,
                    duration_ms=120,
                    stdout=stdout,
                    stderr=stderr,
                    stdout_bytes=len(stdout),
                    stderr_bytes=len(stderr),
                    artifacts=[],
                )
            )
        failure = Failure[ReleaseRequest](
            error_type="ledger.errors.ReleaseGateFailedError",
            code="release.gate-failed",
            message="the check failed",
            input=request,
            step="gate",
            visit=1,
        )
        return self.context(execution_id), failure

    def context(self, execution_id: UUID, **changes: Any) -> StepContext:
        """The planning step's context; `epoch` may be changed beside its own fields."""
        step_key = f"{execution_id}:plan_recovery:1"
        token = FenceToken(execution_id, changes.pop("epoch", 1), "worker-a", step_key)
        values: dict[str, Any] = {
            "execution_id": execution_id,
            "lineage_id": self.lineage_id,
            "root_id": self.lineage_id,
            "parent_id": None,
            "step": "plan_recovery",
            "visit": 1,
            "attempt": 1,
            "token": token,
            "saga_input": None,
            "results": {},
            "lease_lost": lambda: False,
        }
        return StepContext(**(values | changes))

    def plans(self) -> list[Plan]:
        """The judged answers, in order."""
        with self.session() as session:
            return list(session.scalars(sa.select(Plan).order_by(Plan.id)))

    def calls(self) -> list[ModelCall]:
        """The journal, in order."""
        with self.session() as session:
            return list(session.scalars(sa.select(ModelCall).order_by(ModelCall.id)))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A migrated ledger that the planner's steps find through the environment."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger.migrate(url)
    monkeypatch.setenv("FENCEPOST_DATABASE_URL", url)
    for name in ("FACTORY_PLANNER", "OPENAI_API_KEY", "OPENAI_BASE_URL", "FACTORY_PLANNER_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return World(url)


class Script(httpx2.BaseTransport):
    """A model that answers with the given messages, one for each request, and remembers all.

    A message is a text, a tool call's arguments (a dict), or a function of the request's body.
    """

    def __init__(self, *answers: Any) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._answers = iter(answers)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer with the next message."""
        body = json.loads(request.read())
        self.bodies.append(body)
        answer = next(self._answers)
        if callable(answer):
            answer = answer(body)
        if isinstance(answer, httpx2.Response):
            return answer
        return httpx2.Response(200, json=completion(answer))


def completion(answer: str | dict[str, Any] | list[dict[str, Any]]) -> dict[str, Any]:
    """A chat completion with a text, or with a tool call for each dict of arguments."""
    if isinstance(answer, str):
        message: dict[str, Any] = {"role": "assistant", "content": answer}
    else:
        calls = answer if isinstance(answer, list) else [answer]
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": f"call_{n}",
                    "type": "function",
                    "function": {
                        "name": call.pop("_name", "inspect_failed_attempt"),
                        "arguments": json.dumps(call),
                    },
                }
                for n, call in enumerate(map(dict, calls))
            ],
        }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }


def plan(*added: str, removed: Iterable[str] = (), **changes: Any) -> str:
    """A plan as a model writes it."""
    values = {
        "root_cause": "The collector reads v2.",
        "explanation": "",
        "added_flags": list(added),
        "removed_flags": list(removed),
        "confidence": 0.8,
    }
    return json.dumps(values | changes)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Script]:
    """Put a scripted model behind the planner's client."""

    def install(*answers: Any) -> Script:
        script = Script(*answers)

        def connect(settings: Any) -> Any:
            return planner_client.connect(
                settings.model_copy(update={"max_retries": 0}), transport=script
            )

        monkeypatch.setattr(planner_step, "connect", connect)
        return script

    return install


@pytest.fixture
def say() -> Callable[..., str]:
    """Write a plan as a model does; see `plan`."""
    return plan


@pytest.fixture
def reply() -> Callable[..., httpx2.Response]:
    """A completion with a text, whose choice or message differs in some fields."""

    def build(
        text: str, *, finish_reason: str = "stop", refusal: str | None = None
    ) -> httpx2.Response:
        data = completion(text)
        data["choices"][0]["finish_reason"] = finish_reason
        data["choices"][0]["message"]["refusal"] = refusal
        return httpx2.Response(200, json=data)

    return build
