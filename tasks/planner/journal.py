"""The planner's memory: what was asked, answered and decided, each committed before it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from fencepost import StepContext, serde
from ledger import plans
from ledger.models import Plan
from ledger.planner_records import CallKind, ModelCall
from ledger.policy import Violation
from ledger.vocabulary import RecoveryPlan
from tasks.planner.model import Reply

Sessions = Callable[[], AbstractContextManager[Session]]
"""Opens a session that commits when its block ends well."""


@dataclass(frozen=True, slots=True)
class Journaled:
    """A recorded call.

    Attributes:
        seq: Its number among the calls of the step, from 1.
        answer: What came back, as JSON data.
    """

    seq: int
    answer: dict[str, Any]


class Journal:
    """The calls and answers of one step key.

    A repeated run (after a crash, on another worker) walks through the recorded calls and pays
    only for what was not recorded. Where two workers record the same call, the first one's
    answer stays and both go on with it.

    Args:
        ctx: Whose step key and epoch the records carry.
        sessions: The ledger.
    """

    def __init__(self, ctx: StepContext, sessions: Sessions) -> None:
        self._ctx = ctx
        self._sessions = sessions
        self._conversation = self._current_conversation()

    def accepted(self) -> RecoveryPlan | None:
        """The plan that an earlier run of this step has accepted, if any."""
        query = sa.select(Plan.answer).where(
            Plan.step_key == self._ctx.step_key, Plan.accepted.is_(True)
        )
        with self._sessions() as session:
            answer = session.scalars(query.order_by(Plan.turn).limit(1)).first()
        return None if answer is None else RecoveryPlan.model_validate(answer)

    def model(
        self, name: str, request: dict[str, Any], ask: Callable[[], Reply]
    ) -> tuple[int, Reply]:
        """The recorded reply to a request; asked for if there is none.

        Args:
            name: Of the model.
            request: All that the reply depends on, as JSON data.
            ask: Called at most once.

        Returns:
            The call's number, and the reply.
        """

        def answer() -> tuple[dict[str, Any], int, int]:
            reply = ask()
            return reply.model_dump(mode="json"), reply.prompt_tokens, reply.completion_tokens

        journaled = self._call(CallKind.MODEL, name, request, answer)
        return journaled.seq, Reply.model_validate(journaled.answer)

    def tool(self, name: str, request: dict[str, Any], run: Callable[[], str]) -> str:
        """The recorded result of a tool call; the tool is run if there is none."""
        journaled = self._call(CallKind.TOOL, name, request, lambda: ({"text": run()}, 0, 0))
        return str(journaled.answer["text"])

    def judged(
        self,
        turn: int,
        model: str,
        answer: dict[str, Any],
        violations: Sequence[Violation],
        tokens: tuple[int, int],
    ) -> None:
        """Record what the policy says of an answer; idempotent by `turn`.

        Args:
            turn: The number of the call that brought the answer.
            model: Who answered.
            answer: A plan, or `{"text": ...}` where it is none.
            violations: Empty if the plan is accepted.
            tokens: In and out, since the answer before this one.
        """
        exists = sa.select(Plan.id).where(Plan.step_key == self._ctx.step_key, Plan.turn == turn)
        self._insert_unless(
            exists,
            lambda session: plans.record(
                session,
                self._ctx.token,
                attempt_id=self._ctx.execution_id,
                turn=turn,
                model=model,
                answer=answer,
                violations=violations,
                tokens_in=tokens[0],
                tokens_out=tokens[1],
            ),
        )

    def give_up(self, reason: str) -> None:
        """Close the conversation: the next run of this step starts a new one."""
        self._call(
            CallKind.GIVEN_UP, "", {"conversation": "closed"}, lambda: ({"why": reason}, 0, 0)
        )

    def _current_conversation(self) -> int:
        query = sa.select(sa.func.max(ModelCall.conversation)).where(
            ModelCall.step_key == self._ctx.step_key, ModelCall.kind == CallKind.GIVEN_UP.value
        )
        with self._sessions() as session:
            return (session.scalar(query) or 0) + 1

    def _call(
        self,
        kind: CallKind,
        name: str,
        request: dict[str, Any],
        answer: Callable[[], tuple[dict[str, Any], int, int]],
    ) -> Journaled:
        digest = serde.digest({"kind": kind.value, "name": name, "request": request})
        recorded = self._recorded(digest)
        if recorded is not None:
            return recorded
        data, tokens_in, tokens_out = answer()

        def insert(session: Session) -> None:
            row = ModelCall(
                attempt_id=self._ctx.execution_id,
                step_key=self._ctx.step_key,
                seq=self._next_seq(session),
                conversation=self._conversation,
                kind=kind.value,
                name=name,
                request_digest=digest,
                request=request,
                answer=data,
                tokens_in=tokens_in,
                tokens_out=tokens_out,
                epoch=self._ctx.epoch,
            )
            session.add(row)
            session.flush()

        self._insert_unless(self._find(digest).with_only_columns(ModelCall.id), insert)
        journaled = self._recorded(digest)
        if journaled is None:
            raise RuntimeError("a call was recorded and can't be read")
        return journaled

    def _find(self, digest: str) -> sa.Select[ModelCall]:
        return sa.select(ModelCall).where(
            ModelCall.step_key == self._ctx.step_key,
            ModelCall.conversation == self._conversation,
            ModelCall.request_digest == digest,
        )

    def _recorded(self, digest: str) -> Journaled | None:
        with self._sessions() as session:
            row = session.scalars(self._find(digest)).first()
            return None if row is None else Journaled(row.seq, row.answer)

    def _insert_unless(self, exists: sa.Select[int], insert: Callable[[Session], None]) -> None:
        """Insert in a transaction of its own, unless another run of this step was first."""
        # A model takes its time: whoever lost the lease meanwhile has nothing to record.
        self._ctx.check()
        try:
            with self._sessions() as session:
                if session.scalars(exists).first() is None:
                    insert(session)
        except sa.exc.IntegrityError:
            with self._sessions() as session:
                if session.scalars(exists).first() is None:
                    raise

    def _next_seq(self, session: Session) -> int:
        query = sa.select(sa.func.max(ModelCall.seq)).where(
            ModelCall.step_key == self._ctx.step_key
        )
        return (session.scalar(query) or 0) + 1
