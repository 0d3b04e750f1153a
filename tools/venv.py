"""Bring the project's virtual environment up to date: `python3 tools/venv.py SET`.

Used by the Makefile. Standard library only, and it starts on any Python 3.7+, so that a
machine with an old `python3` gets a clear message (or a newer Python found beside it).
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
NEWER_NAMES = ("python3.14", "python3.13", "python3.12", "python3.11")
PROBE = "import ensurepip, sys, venv; print(*sys.version_info[:2])"


def fail(message: str) -> None:
    sys.stderr.write(f"\nfencepost: {message}\n")
    raise SystemExit(1)


def version_of(python: str) -> tuple[int, int] | None:
    """The version of an interpreter that can make environments, else None."""
    probe = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        return None
    major, minor = probe.stdout.split()
    return int(major), int(minor)


def require_capable_python() -> None:
    """Return if this Python can do it; continue in one that can; or say what to install."""
    have = sys.version_info[:2]
    if have >= OLDEST and version_of(sys.executable) is not None:
        return
    for name in NEWER_NAMES:
        path = shutil.which(name)
        if path and (version_of(path) or (0, 0)) >= OLDEST:
            os.execv(path, [path, *sys.argv])
    if have >= OLDEST:
        fail(
            f"this Python ({sys.executable}) cannot make virtual environments.\n"
            f"  Debian, Ubuntu: sudo apt-get install python{have[0]}.{have[1]}-venv\n"
            "  elsewhere: install Python 3.11 or newer, with its `venv` and `ensurepip` modules."
        )
    fail(
        f"Python 3.11 or newer is needed; `{sys.executable}` is {have[0]}.{have[1]}.\n"
        "  macOS: brew install python@3.13    Debian, Ubuntu: sudo apt-get install python3 "
        "python3-venv\n  Then run make again, or name it: make PYTHON=/path/to/python3.13 ..."
    )


def digest_of_inputs() -> str:
    """One digest for all sets: a set installed from other pins must make every set stale."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    relevant = {key: project.get(key) for key in ("build-system", "project", "dependency-groups")}
    digest = hashlib.sha256(json.dumps(relevant, sort_keys=True).encode())
    digest.update(repr((sys.version_info[:3], str(ROOT))).encode())
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        digest.update(lock.name.encode() + lock.read_bytes())
    return digest.hexdigest()


def read_stamp(stamp: Path, digest: str) -> set[str]:
    """The sets that are installed from exactly these inputs."""
    try:
        found = json.loads(stamp.read_text())
    except (OSError, ValueError):
        return set()
    return set(found["sets"]) if found["digest"] == digest else set()


def make_environment(venv: Path) -> None:
    python = venv / "bin" / "python"
    # A base Python that was upgraded or removed leaves a dead link behind.
    if venv.exists() and version_of(str(python)) != sys.version_info[:2]:
        print(f"fencepost: {venv.name} belongs to another Python; making it anew")
        shutil.rmtree(venv)
    if not venv.exists():
        print(f"fencepost: making {venv.name} with Python {sys.version.split()[0]}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)


def pip(venv: Path, what: str, *arguments: str) -> None:
    """Run pip quietly behind one progress line; show its output only if it fails."""
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--progress-bar=off"]
    environment = {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    live = sys.stdout.isatty()
    began, count, output = time.monotonic(), 0, []
    print(f"fencepost: installing {what} ...", end="" if live else "\n", flush=True)
    process = subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
    )
    assert process.stdout is not None
    for line in process.stdout:
        output.append(line)
        collecting = re.match(r"Collecting ([^ =;]+)", line)
        if collecting:
            count += 1
        if live and collecting:
            shown = f"{count} packages, {collecting.group(1)}"
            print(f"\r\033[Kfencepost: installing {what} ... {shown}", end="", flush=True)
        elif live and line.startswith("Installing collected"):
            print(f"\r\033[Kfencepost: installing {what} ... unpacking", end="", flush=True)
    if process.wait() != 0:
        sys.stderr.write("\n" + "".join(output[-40:]))
        fail(f"pip could not install {what} (its last lines are above).")
    seconds = time.monotonic() - began
    print(f"{chr(13) if live else ''}fencepost: installed {what} in {seconds:.0f} s", flush=True)


def main() -> None:
    require_capable_python()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=["demo", "dev", "lock"], help="which pinned requirements")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    chosen = parser.parse_args()
    venv: Path = ROOT / chosen.venv

    with (ROOT / "requirements").joinpath(f"{chosen.set}.txt").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two makes at once must not install into each other
        stamp, digest = venv / ".fencepost-stamp", digest_of_inputs()
        installed = read_stamp(stamp, digest)
        # The dev set holds all of the demo set, at the same pins.
        if {chosen.set, "dev"} & installed and version_of(str(venv / "bin" / "python")):
            return
        make_environment(venv)
        stamp.unlink(missing_ok=True)
        name = f"requirements/{chosen.set}.txt"
        pip(venv, name, "--require-hashes", "-r", str(ROOT / name))
        if chosen.set != "lock":
            editable = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
            pip(venv, "fencepost (editable)", *editable)
        stamp.write_text(json.dumps({"digest": digest, "sets": sorted({*installed, chosen.set})}))


if __name__ == "__main__":
    main()
