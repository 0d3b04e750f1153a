"""Named crash points.

`reach("effect.applied")` is a no-op until the environment variable `FENCEPOST_FAULTS` names a
folder. There, a test or scenario arms a point by writing `<anything>.json`:

    {"point": "step.before-commit", "action": "freeze", "match": {"step": "stage"}}

Actions: `kill` and `freeze` (SIGKILL, SIGSTOP to the process group), `kill-self` and `freeze-self`
(to the process alone), `term` (SIGTERM to the group's leader), `raise` (RuntimeError), `exit`
(`os._exit`), `pause` (wait until the file `<anything>.go` appears), `note` (only leave the record).
A plan fires once, unless it says `"times": n`. The process that takes it renames the file, so two
workers never take the same one, and leaves its pid and the facts of the point in
`<anything>.fired-<n>` for the test to read.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENVIRONMENT = "FENCEPOST_FAULTS"

Hook = Callable[[str, dict[str, Any]], None]
_hooks: list[Hook] = []


def install(hook: Hook | None) -> None:
    """Replace the environment's fault plans by a function (in-process tests), or undo that."""
    _hooks[:] = [] if hook is None else [hook]


def armed() -> bool:
    """Whether the environment of this process names a folder with fault plans."""
    return bool(os.environ.get(ENVIRONMENT))


def reach(point: str, **facts: Any) -> None:
    """Announce that execution has come to a named point.

    Args:
        point: Dotted name, such as `commit.before`.
        **facts: What a plan's `match` is compared with, as strings.
    """
    if _hooks:
        _hooks[0](point, facts)
        return
    folder = os.environ.get(ENVIRONMENT)
    if folder:
        _fire_first_match(Path(folder), point, {k: str(v) for k, v in facts.items()})


def arm(
    folder: Path,
    point: str,
    action: str,
    *,
    match: dict[str, str] | None = None,
    times: int = 1,
    name: str | None = None,
) -> Path:
    """Write a fault plan; returns the file whose disappearance shows that it has fired."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name or point}.json"
    plan = {"point": point, "action": action, "match": match or {}, "times": times, "fired": 0}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(plan))
    partial.rename(path)
    return path


def fired(path: Path) -> list[dict[str, Any]]:
    """What has been recorded each time the plan at `path` fired: pid, pgid, point, facts."""
    records = sorted(path.parent.glob(f"{path.stem}.fired-*"))
    return [json.loads(record.read_text()) for record in records]


def _fire_first_match(folder: Path, point: str, facts: dict[str, str]) -> None:
    for path in sorted(folder.glob("*.json")):
        try:
            plan = json.loads(path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            continue
        wanted: dict[str, str] = plan["match"]
        if plan["point"] != point or any(facts.get(k) != v for k, v in wanted.items()):
            continue
        if _claim(path, plan, facts):
            _act(plan["action"], path)
            return


def _claim(path: Path, plan: dict[str, Any], facts: dict[str, str]) -> bool:
    count = plan["fired"] + 1
    record = path.with_suffix(f".fired-{count}")
    taken = path.with_suffix(f".taken-{os.getpid()}")
    try:
        path.rename(taken)
    except FileNotFoundError:
        return False
    partial = record.with_suffix(".partial-record")
    partial.write_text(
        json.dumps(
            {"pid": os.getpid(), "pgid": os.getpgrp(), "point": plan["point"], "facts": facts}
            | {"action": plan["action"], "at": time.time()}
        )
    )
    if count < plan["times"]:
        taken.write_text(json.dumps(plan | {"fired": count}))
        taken.rename(path)
    else:
        taken.unlink()
    partial.rename(record)
    return True


_TO_GROUP = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP}
_TO_ITSELF = {"kill-self": signal.SIGKILL, "freeze-self": signal.SIGSTOP}


def _act(action: str, path: Path) -> None:
    match action:
        case "kill" | "freeze":
            os.killpg(os.getpgrp(), _TO_GROUP[action])
        case "kill-self" | "freeze-self":
            os.kill(os.getpid(), _TO_ITSELF[action])
        case "term":
            os.kill(os.getpgrp(), signal.SIGTERM)
        case "raise":
            raise RuntimeError(f"fault plan {path.stem}")
        case "exit":
            os._exit(70)
        case "note":
            pass
        case "pause":
            go = path.with_suffix(".go")
            while not go.exists():
                time.sleep(0.01)
        case _:
            raise ValueError(f"{path}: unknown action {action!r}")
