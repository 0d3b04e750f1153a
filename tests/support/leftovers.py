"""What a demonstration has left running."""

from __future__ import annotations

from pathlib import Path

import psutil


def left_by(runs: Path) -> list[psutil.Process]:
    """Processes that name the run's folder in their arguments or environment."""
    found = []
    for process in psutil.process_iter():
        try:
            said = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if process.pid != psutil.Process().pid and any(str(runs) in word for word in said):
            found.append(process)
    return found
