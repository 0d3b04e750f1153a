"""`python -m tests.acceptance.races.table` writes the table into `docs/payment-races.md`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.acceptance.races.catalogue import CATALOGUE, Race, races
from tests.acceptance.races.measure import Results, load

PAGE = Path(__file__).parents[3] / "docs" / "payment-races.md"
BEGIN, END = "<!-- races: begin -->", "<!-- races: end -->"

WAYS = ("keyed", "looks", "blind")
HEAD = "| race | right | Fencepost | Celery, keyed | Celery, looks | Celery, blind |"


def anchor(title: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def cells(race: Race, results: Results) -> list[str]:
    """What Celery alone came to, in each way; what is amiss is in bold."""
    if race.why_not_plain is not None:
        return ["n/a"] * len(WAYS)
    counts = [results[race.slug].get(way) for way in WAYS]
    return ["" if c is None else f"**{c}**" if c.wrong else str(c) for c in counts]


def right(race: Race, results: Results) -> str:
    """How many payments there should be."""
    if race.right is not None:
        return race.right
    counts = results.get(race.slug)
    return "1" if counts is None else str(next(iter(counts.values())).right)


def render(results: Results) -> str:
    """The table."""
    lines = [HEAD, "|---|---|---|---|---|---|"]
    for group, members in CATALOGUE.items():
        lines.append(f"| **{group}** | | | | | |")
        for race in members:
            link = f"[{race.title}](#{anchor(race.title)})"
            row = [link, right(race, results), race.here, *cells(race, results)]
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def score(results: Results) -> str:
    """What was measured, in two sentences."""
    counts = [count for ways in results.values() for count in ways.values()]
    hit = sum(any(count.wrong for count in ways.values()) for ways in results.values())
    keyed = [ways["keyed"] for ways in results.values() if "keyed" in ways]
    return (
        f"{len(list(races()))} races. Celery alone was measured {len(counts)} times in"
        f" {len(results)} of them, and the money, or what the shop believes of it, is wrong"
        f" {sum(count.wrong for count in counts)} times, in {hit} races. Keyed, which is the best"
        f" that it can do, it is wrong in {sum(count.wrong for count in keyed)} of {len(keyed)}."
    )


def written(page: str, results: Results) -> str:
    """The page with the table in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{score(results)}\n\n{render(results)}\n\n{END}{after}"


def main() -> None:
    """Write it."""
    PAGE.write_text(written(PAGE.read_text("utf-8"), load()), "utf-8")


if __name__ == "__main__":
    main()
