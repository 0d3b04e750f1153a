"""A resource's record, for sinks that store one document per resource. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from fencepost.errors import ConfigurationError
from fencepost.fence import FenceToken
from fencepost.sinks.contract import SinkCall, check_same_request, stale

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of an applied key.

    Attributes:
        result: JSON-compatible.
        epoch: Of the owner whose write it was.
        owner: Its name.
        digest: Of the request.
        nonce: Tells a write from its own repetition.
    """

    result: Any
    epoch: int
    owner: str
    digest: str | None
    nonce: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Marks and applied keys of one resource, and what is published there.

    Attributes:
        version: Grows by one with each change.
        marks: (epoch, owner) by execution id; the one that was raised last comes last.
        applied: By key, oldest first.
        content: What is published, JSON-compatible.
    """

    version: int = 0
    marks: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    applied: Mapping[str, Entry] = field(default_factory=dict)
    content: Any = None

    def check(self, resource: str, token: FenceToken) -> None:
        """Refuse a token below the mark.

        Raises:
            StaleLeaseFenceError: The mark is higher.
        """
        epoch, _ = self.mark(token)
        if epoch > token.epoch:
            raise stale(resource, token, epoch)

    def mark(self, token: FenceToken) -> tuple[int, str]:
        """The epoch and owner that the token is compared with; epoch 0 if there is none."""
        return self.marks.get(str(token.execution_id), (0, ""))

    def find(self, call: SinkCall) -> Entry | None:
        """What the key was applied with, if it was.

        Raises:
            EffectKeyConflictError: For a request with another digest.
        """
        entry = self.applied.get(call.key)
        if entry is not None:
            check_same_request(call, entry.digest)
        return entry

    def advanced(self, token: FenceToken, remembered: int) -> Self:
        """With the mark raised to the token's epoch."""
        execution_id = str(token.execution_id)
        marks = {k: v for k, v in self.marks.items() if k != execution_id}
        marks[execution_id] = (token.epoch, token.owner)
        return replace(self, version=self.version + 1, marks=_last(marks, remembered))

    def with_applied(
        self, call: SinkCall, result: Any, nonce: str, content: Any, remembered: int
    ) -> Self:
        """With the mark raised, the key applied, and new content."""
        token = call.token
        entry = Entry(result, token.epoch, token.owner, call.digest, nonce)
        applied = _last({**self.applied, call.key: entry}, remembered)
        return replace(self.advanced(token, remembered), applied=applied, content=content)

    def dump(self) -> bytes:
        """As stored."""
        document = {
            "format": FORMAT,
            "version": self.version,
            "content": self.content,
            "marks": self.marks,
            "applied": {
                key: {
                    "result": entry.result,
                    "epoch": entry.epoch,
                    "owner": entry.owner,
                    "digest": entry.digest,
                    "nonce": entry.nonce,
                }
                for key, entry in self.applied.items()
            },
        }
        return json.dumps(document, ensure_ascii=False).encode()

    @classmethod
    def load(cls, stored: bytes) -> Self:
        """From what was stored.

        Raises:
            ConfigurationError: It isn't a manifest, or one of a later version of Fencepost.
        """
        try:
            document = json.loads(stored)
            if document["format"] != FORMAT:
                raise ConfigurationError(f"manifest format {document['format']} isn't {FORMAT}")
            return cls(
                version=document["version"],
                content=document["content"],
                marks={k: (epoch, owner) for k, (epoch, owner) in document["marks"].items()},
                applied={key: Entry(**entry) for key, entry in document["applied"].items()},
            )
        except (ValueError, KeyError, TypeError) as problem:
            raise ConfigurationError(f"this is not a sink's manifest: {problem}") from problem


def _last(items: dict[str, Any], count: int) -> dict[str, Any]:
    return dict(list(items.items())[-count:])
