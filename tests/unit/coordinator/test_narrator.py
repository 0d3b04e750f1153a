from __future__ import annotations

import io

from rich.console import Console

from coordinator.narrator import LOG_WIDTH, Narrator, console
from fencepost.records import CheckpointKind
from tests.unit.coordinator.facts import BEGAN, checkpoint, execution


def narrator(*, terminal: bool = False) -> tuple[Narrator, io.StringIO]:
    out = io.StringIO()
    made = Narrator(Console(file=out, width=60, force_terminal=terminal, highlight=False))
    made.begin(BEGAN)
    return made, out


def test_a_log_has_one_line_a_second_and_no_control_characters() -> None:
    told, out = narrator()
    countdown = told.countdown(5.0)
    for tenths in range(50, 0, -1):
        countdown.show(tenths / 10)
    countdown.end()
    lines = out.getvalue().splitlines()
    assert len(lines) == 5
    assert "\x1b" not in out.getvalue()
    assert "5.0 s left" in lines[0]
    assert "1.0 s left" in lines[-1]


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    told, out = narrator(terminal=True)
    countdown = told.countdown(5.0)
    countdown.show(3.0)
    countdown.end()
    countdown.end()
    assert "\x1b[" in out.getvalue()


def test_a_line_has_its_time_its_worker_and_its_epoch() -> None:
    told, out = narrator()
    told.facts([checkpoint(execution("one"), CheckpointKind.STEP, "stage", epoch=2, at=3.25)])
    line = out.getvalue()
    assert line.count("\n") == 1
    assert "3.2s" in line
    assert "worker-a" in line
    assert "stage ✓" in line
    assert "(epoch 2)" in line


def test_what_others_wrote_is_not_taken_for_markup() -> None:
    told, out = narrator()
    told.detail("[red]a model's words[/red] [link=http://x]y[/link]")
    assert "[red]a model's words[/red] [link=http://x]y[/link]" in out.getvalue()


def test_long_lines_are_left_whole() -> None:
    told, out = narrator()
    told.note("x" * 300)
    assert out.getvalue().count("\n") == 1


def test_tables_in_a_log_get_room() -> None:
    assert console().is_terminal or console().width == LOG_WIDTH
