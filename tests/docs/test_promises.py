"""The claim is bounded, and worded once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, name_of, prose_of

PROMISE = (
    "At-least-once execution with effectively exactly-once external effects, where the sink"
    " enforces an atomic idempotency key or a fence. For a sink that enforces neither, Fencepost"
    " reconciles or stops for a person; it never guesses."
)
MODELS = (
    "Model inference is not exactly once: a call may repeat if its answer was not yet recorded."
)


def plain(text: str) -> str:
    return " ".join(re.sub(r"[*>]", " ", text).split())


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "guarantees.md"], ids=name_of)
def test_the_promise_is_made_in_full(page: Path) -> None:
    text = plain(prose_of(page))
    assert PROMISE in text
    assert MODELS in text


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_nothing_is_promised_exactly_once_bare(page: Path) -> None:
    text = plain(prose_of(page)).replace(PROMISE, "").replace(MODELS, "")
    claims = [m[0] for m in re.finditer(r"[^.:;|]*exactly[ -]once[^.:;|]*", text)]
    assert not [claim for claim in claims if not re.search(r"\b(not|never)\b", claim)]
