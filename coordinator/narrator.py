"""Tells a story on a terminal as it happens; in a log, line by line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.text import Text

from coordinator.phrases import Line, Tone, lines
from coordinator.watch import Fact

LOG_WIDTH = 120
_STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.BAD: "bold red",
    Tone.UNDO: "yellow",
    Tone.ALARM: "bold magenta",
}


def console(*, to_stderr: bool = False) -> Console:
    """A console for narration: the terminal's width, or wide enough for whole lines in a log."""
    made = Console(stderr=to_stderr, highlight=False, soft_wrap=False)
    if not made.is_terminal:
        made = Console(stderr=to_stderr, highlight=False, width=LOG_WIDTH)
    return made


class Narrator:
    """Writes a scenario's lines.

    Args:
        out: From `console`.
    """

    def __init__(self, out: Console) -> None:
        self.out = out
        self._began = datetime.now(UTC)
        self._countdown: Countdown | None = None

    def begin(self, at: datetime) -> None:
        """Count the seconds of all lines from here."""
        self._began = at

    def act(self, title: str, *explained: str) -> None:
        """A new part of the story."""
        self.out.print()
        self.out.print(Rule(Text(title, style="bold"), align="left"))
        for sentence in explained:
            self.out.print(Text(sentence, style="dim"))

    def facts(self, facts: Sequence[Fact]) -> None:
        """What was committed."""
        for line in lines(facts):
            self.line(line)

    def line(self, line: Line) -> None:
        """One thing that happened."""
        told = self._at(line.at)
        told.append(f"{line.worker:<9} ", style="cyan")
        told.append(f"{line.who:<20} ", style="bold")
        told.append(line.text, style=_STYLES[line.tone])
        told.append(f"  (epoch {line.epoch})", style="dim")
        self.out.print(told, soft_wrap=True)

    def note(self, text: str, *, style: str = "bold cyan") -> None:
        """Something that the scenario itself does or sees, now."""
        self.out.print(self._at(datetime.now(UTC)).append(text, style=style), soft_wrap=True)

    def _at(self, when: datetime) -> Text:
        seconds = (when - self._began).total_seconds()
        return Text().append(f"{seconds:6.1f}s  ", style="dim")

    def detail(self, text: str, *, style: str = "dim") -> None:
        """More about the line before; taken literally, whoever wrote it."""
        for each in text.splitlines():
            self.out.print(Text(f"         {each}", style=style), soft_wrap=True)

    def show(self, what: RenderableType) -> None:
        """A table, say."""
        self.out.print(what)

    def countdown(self, ttl: float) -> Countdown:
        """Show how long a lease still lasts."""
        return Countdown(self, ttl)


class Countdown:
    """A bar on a terminal, one line a second in a log.

    Args:
        narrator: Where it is shown.
        ttl: Of the lease, in seconds.
    """

    def __init__(self, narrator: Narrator, ttl: float) -> None:
        self._narrator = narrator
        self._shown: int | None = None
        self._progress: Progress | None = None
        if narrator.out.is_terminal:
            columns: Iterable[TextColumn | BarColumn] = (
                TextColumn("          {task.description}"),
                BarColumn(bar_width=40, complete_style="magenta"),
                TextColumn("{task.fields[left]:.1f} s left"),
            )
            self._progress = Progress(*columns, console=narrator.out, transient=True)
            self._task = self._progress.add_task("the lease in Redis", total=ttl, left=ttl)
            self._progress.start()

    def show(self, remaining: float) -> None:
        """What Redis says, in seconds."""
        if self._progress is not None:
            self._progress.update(self._task, completed=remaining, left=remaining)
            return
        whole = math.ceil(remaining)
        if whole != self._shown:
            self._shown = whole
            self._narrator.note(f"the lease in Redis: {remaining:.1f} s left", style="magenta")

    def end(self) -> None:
        """The lease has run out, or nobody wants to know any more."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
