"""Reading our own Markdown: fenced blocks with their directives, tables, links, headings.

A directive is a comment on the line before a fence, invisible to readers:

    <!-- docs: file tasks.py -->     the block is a file of the page's folder
    <!-- docs: python -->            the block runs as a script in that folder
    <!-- docs: output -->            what the block before it prints; `...` stands for anything
    <!-- docs: console -->           lines that begin with `$ ` run in a shell, with what they print
    <!-- docs: worker -->            the same, but the last command goes on until the page's end
    <!-- docs: from PATH -->         the block is part of that file of the repository, word for word
    <!-- docs: shown because ... --> the block is not run, and why
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[\w+-]*)[^`]*$")
_DIRECTIVE = re.compile(r"^ *<!-- docs: (?P<verb>\w+) ?(?P<argument>.*?) *-->$")
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *#*$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, and what its directive says about it."""

    page: Path
    line: int
    language: str
    verb: str | None
    argument: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return _split(page)[0]


def prose_of(page: Path) -> str:
    """A page without its fenced blocks."""
    return _split(page)[1]


def _split(page: Path) -> tuple[list[Block], str]:
    blocks: list[Block] = []
    prose: list[str] = []
    lines = page.read_text("utf-8").splitlines()
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        if opening is None:
            prose.append(lines[number])
            number += 1
            continue
        closing = number + 1
        while lines[closing].strip() != opening["fence"]:
            closing += 1
        said = _DIRECTIVE.match(lines[number - 1]) if number else None
        blocks.append(
            Block(
                page=page,
                line=number + 1,
                language=opening["language"],
                verb=said["verb"] if said else None,
                argument=said["argument"] if said else "",
                text=textwrap.dedent("\n".join(lines[number + 1 : closing])) + "\n",
            )
        )
        number = closing + 1
    return blocks, "\n".join(prose)


def links_of(page: Path) -> list[str]:
    """The targets of a page's links."""
    without_code = re.sub(r"`[^`]*`", "`code`", prose_of(page))
    return [link["target"] for link in _LINK.finditer(without_code)]


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = (_HEADING.match(line) for line in prose_of(page).splitlines())
    return {_slug(heading["title"]) for heading in headings if heading}


def _slug(title: str) -> str:
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def table_rows(page: Path, first_heading: str) -> list[list[str]]:
    """The cells of every table of a page whose first column has this heading."""
    rows: list[list[str]] = []
    inside = False
    for line in prose_of(page).splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells[0] == first_heading:
            inside = True
        elif inside and not set(cells[0]) <= set(":- "):
            rows.append(cells)
    return rows


def code_in(cell: str) -> str:
    """The text of a table cell that is one piece of code."""
    match = re.fullmatch(r"`([^`]+)`", cell)
    assert match, f"{cell!r} is not one piece of code"
    return match[1]
