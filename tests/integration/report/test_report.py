"""A run as a page: read from real facts, and readable without anything else."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fencepost import Saga, step
from fencepost.cli.app import app
from fencepost.decide import CANCELLED, told
from fencepost.records import EventName
from fencepost.report import Outside, Section, read, render
from fencepost.report.model import Ended, Kind
from fencepost.stores.sql import SqlEffectStore
from tests.support.inline import Inline


@step
def unpack(number: int) -> None: ...


@step(compensate=unpack)
def pack(number: int) -> int:
    return number


@step
def send(number: int) -> int:
    return number


parcel = Saga("parcel", input=int).then(pack).then(send)


@pytest.fixture
def fleet(sqlite_url: str) -> Any:
    fleet = Inline(sqlite_url, [parcel])
    yield fleet
    fleet.close()


def timeline_of(fleet: Inline, run: Any, *outside: Outside) -> Any:
    return read(fleet.store, SqlEffectStore(fleet.store), run, outside)


def test_a_run_without_trouble_is_one_segment_that_was_ended(fleet: Inline) -> None:
    run = fleet.run(parcel, 1)
    timeline = timeline_of(fleet, run)
    (lane,) = timeline.lanes
    (segment,) = lane.segments
    assert (segment.name, segment.epoch, segment.ended) == ("parcel", 1, Ended.DONE)
    assert [m.text for m in timeline.marks] == ["pack is done", "send is done"]


def test_a_takeover_shows_what_was_lost_and_what_was_refused(fleet: Inline) -> None:
    run = fleet.start(parcel, 1)
    with fleet.frozen_at("step.after", step="send"):
        fleet.drain()
    timeline = timeline_of(fleet, run)
    (lane,) = timeline.lanes
    assert [(s.epoch, s.ended) for s in lane.segments] == [(1, Ended.LOST), (2, Ended.DONE)]
    kinds = [mark.kind for mark in timeline.marks]
    assert kinds.count(Kind.TAKEOVER) == 1
    assert Kind.REFUSED in kinds
    (refused, *_) = [mark for mark in timeline.marks if mark.kind is Kind.REFUSED]
    assert refused.epoch == 1


def test_whoever_a_cancel_fenced_out_has_lost_it(fleet: Inline) -> None:
    run = fleet.start(parcel, 1)

    def cancel() -> None:
        fleet.store.turn_back(run, told(CANCELLED, "no"), EventName.CANCELLED, {"by": "ann"})

    with fleet.meanwhile("step.after", cancel, step="send"):
        fleet.drain()
    timeline = timeline_of(fleet, run)
    segments = [s for lane in timeline.lanes for s in lane.segments]
    assert [(s.epoch, s.ended) for s in segments] == [(1, Ended.LOST), (3, Ended.DONE)]
    assert "execution.cancelled: by ann" in [mark.text for mark in timeline.marks]
    assert Kind.UNDO in [mark.kind for mark in timeline.marks]


def test_what_runs_is_open(fleet: Inline) -> None:
    run = fleet.start(parcel, 1)
    seen = []
    with fleet.meanwhile("step.after", lambda: seen.append(timeline_of(fleet, run)), step="send"):
        fleet.drain()
    ((segment,),) = [lane.segments for lane in seen[0].lanes]
    assert segment.ended is Ended.OPEN


class Page(HTMLParser):
    """Counts tags, and refuses what would need something else."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert tag not in ("script", "img", "link", "iframe")
        assert not {name for name, _ in attrs} & {"src", "href", "onclick"}


def test_the_page_stands_alone_and_trusts_no_text(fleet: Inline) -> None:
    run = fleet.run(parcel, 1)
    row = fleet.row(run)
    outside = Outside(
        "w<b>", row.created_at, row.created_at + timedelta(seconds=1), "frozen & cold"
    )
    evil = "<script>alert(1)</script>"
    page = render(
        evil,
        timeline_of(fleet, run, outside),
        summary=[evil],
        sections=[Section(evil, ("ok", "what"), [(True, evil), (False, "no")])],
    )
    parser = Page()
    parser.feed(page)
    assert parser.tags.count("svg") == 1
    assert "frozen &amp; cold" in page
    assert not re.search(r"https?://", page)


def test_the_command_writes_it(fleet: Inline, sqlite_url: str, tmp_path: Path) -> None:
    run = fleet.run(parcel, 1)
    target = tmp_path / "run.html"
    arguments = ["report", str(run), "--database-url", sqlite_url, "-o", str(target)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "2 entries" in done.output
    assert "The invariants, from stored facts" in target.read_text()


def test_a_run_that_is_not_there_is_a_clear_error(fleet: Inline, sqlite_url: str) -> None:
    arguments = ["report", "no-id", "--database-url", sqlite_url]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert "no execution no-id" in done.output
