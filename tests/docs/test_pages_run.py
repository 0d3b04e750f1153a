"""What the documentation shows is done, line by line, on a real Valkey, SQLite and PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks_of, name_of
from tests.docs.session import Session

SHOWN_REDIS = "redis://localhost:6379/0"
SHOWN_POSTGRES = "postgresql+psycopg://shop:secret@localhost/shop"
DONE = {"file", "python", "console", "worker"}
RUNNABLE = [page for page in PAGES if DONE & {str(block.verb) for block in blocks_of(page)}]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, redis_url: str, request: pytest.FixtureRequest
) -> None:
    blocks = blocks_of(page)
    replacements = {SHOWN_REDIS: redis_url}
    if any(SHOWN_POSTGRES in block.text for block in blocks):
        replacements[SHOWN_POSTGRES] = request.getfixturevalue("postgres_url")
    with Session(tmp_path, replacements) as session:
        session.play(blocks)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_python_block_goes_unrun_without_a_reason(page: Path) -> None:
    for block in blocks_of(page):
        if block.language in ("python", "py"):
            assert block.verb is not None, f"{block} has no directive"
        if block.verb == "shown":
            assert block.argument.startswith("because "), f"{block} doesn't say why it isn't run"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_shows_of_a_file_is_in_it(page: Path) -> None:
    for block in blocks_of(page):
        if block.verb == "from":
            lines = [
                line.strip() for line in (ROOT / block.argument).read_text("utf-8").splitlines()
            ]
            shown = [line.strip() for line in block.text.splitlines()]
            starts = [n for n in range(len(lines)) if lines[n : n + len(shown)] == shown]
            assert starts, f"{block}: {block.argument} has no such lines"


def test_the_readme_adds_fencepost_in_under_25_lines() -> None:
    [app] = [b for b in blocks_of(ROOT / "README.md") if b.verb == "file"]
    assert app.argument == "tasks.py"
    lines = [line for line in app.text.splitlines() if line.strip()]
    assert len(lines) < 25
    compile(app.text, "tasks.py", "exec")
