"""Refresh the pins in requirements/ (run it with `make lock`).

`dev.txt` is resolved first and constrains the others, so that one environment can hold
any of the sets. The files are universal (markers for every platform and Python that we
support), carry hashes, and name no package index.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FACTORY = ["--extra=factory", "--extra=postgres"]
SETS = {
    # Everything: tests, linters, and what the other sets hold.
    "dev": [*FACTORY, "--extra=testing", "--extra=gevent", "--group=dev"],
    # `make demo`: the factory and the embedded servers.
    "demo": [*FACTORY, "--group=demo"],
    # The container image: the factory alone; its servers are elsewhere.
    "run": [*FACTORY, "--group=build"],
    # What `make lock` itself runs.
    "lock": ["--group=lock"],
}


def compile_set(name: str, selection: list[str], extra: list[str]) -> None:
    output = ROOT / "requirements" / f"{name}.txt"
    constraint = [] if name in ("dev", "lock") else ["--constraint=requirements/dev.txt"]
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"),
        *("--python-version=3.11", "--generate-hashes", "--no-annotate"),
        *("--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command=make lock"),
        *constraint,
        *selection,
        *extra,
        f"--output-file={output.relative_to(ROOT)}",
    ]
    # Only a set with extras holds the project's own dependencies.
    command += ["pyproject.toml"] if selection[0].startswith("--extra") else []
    subprocess.run(command, cwd=ROOT, check=True)
    pins = sum("==" in line for line in output.read_text().splitlines())
    print(f"requirements/{output.name}: {pins} packages")


def main() -> None:
    for name, selection in SETS.items():
        compile_set(name, selection, sys.argv[1:])


if __name__ == "__main__":
    main()
