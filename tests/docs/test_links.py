"""Links between pages, and to files of the repository, resolve."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, anchors_of, links_of, name_of, prose_of

REACHED_FROM = [ROOT / "README.md", DOCS / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
    for target in links_of(page):
        if target.startswith(("https://", "mailto:")):
            continue
        path, _, anchor = unquote(target).partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.is_relative_to(ROOT), f"{target} leaves the repository"
        assert there.exists(), f"{target} doesn't exist"
        if anchor:
            assert anchor in anchors_of(there), f"{target}: no such heading"


def test_every_page_can_be_reached() -> None:
    reached: set[Path] = set()
    todo = list(REACHED_FROM)
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        todo += [(page.parent / t.partition("#")[0]).resolve() for t in links_of(page) if t]
    assert set(DOCS.rglob("*.md")) <= reached


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tests_that_are_named_exist(page: Path) -> None:
    for name in re.findall(r"`(tests/[\w/.:-]+)`", prose_of(page)):
        path, _, test = name.partition("::")
        assert (ROOT / path).exists(), f"{name} doesn't exist"
        if test:
            function = test.rpartition("::")[2]
            assert f"def {function}(" in (ROOT / path).read_text("utf-8"), f"no test {name}"
