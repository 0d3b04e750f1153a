"""What users install: the wheel holds the engine alone, and works beside their own `tasks.py`."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from fencepost.testing import RedisServer
from tests.support.fleet import ROOT, Fleet

TASKS = '''\
"""A user's own module, with the name that Celery's tutorial gives it."""
import os

from celery import Celery

import fencepost
from fencepost import Saga, step

app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])


@app.task
def add(x, y):
    return x + y


@step
def double(x: int) -> int:
    return 2 * x


@step
def describe(x: int) -> str:
    return f"it is {x}"


sums = Saga("sums", input=int).then(double).then(describe)
fencepost.install(app, sagas=[sums], lease_ttl=5)
'''

START = """\
import fencepost, tasks
print(fencepost.__file__)
print(tasks.add.delay(2, 3).get(timeout=20))
print(fencepost.start(tasks.sums, 21).result(timeout=20))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the tree as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def run(*command: str | Path, **how: object) -> str:
    """Run a command to its end; its output."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **how)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


def pins(folder: Path) -> Path:
    """The locked versions, as constraints: those carry no hashes."""
    locked = re.findall(r"^[\w.-]+==\S+", (ROOT / "requirements/run.txt").read_text(), re.M)
    assert locked
    path = folder / "constraints.txt"
    path.write_text("\n".join(locked))
    return path


def test_the_wheel_holds_nothing_but_the_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fencepost"}
    assert len(tops) == 2
    assert "fencepost/py.typed" in names
    # What isn't Python has to be there too.
    source = ROOT / "src" / "fencepost"
    wanted = {
        f"fencepost/{path.relative_to(source)}"
        for path in source.rglob("*")
        if path.suffix in (".py", ".lua", ".mako") and "__pycache__" not in path.parts
    }
    assert wanted <= set(names)
    assert not [name for name in names if name.endswith((".pyc", ".db"))]


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(
    wheel: Path, tmp_path: Path, fleet_redis: RedisServer
) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=True, symlinks=True)
    python = home / "bin" / "python"
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-compile")
    run(python, "-m", "pip", "install", *quiet, "-c", pins(tmp_path), wheel)

    project = tmp_path / "project"
    project.mkdir()
    (project / "tasks.py").write_text(TASKS)
    (project / "start.py").write_text(START)
    environment = {
        "BROKER": fleet_redis.url_of(15),
        "FENCEPOST_DATABASE_URL": f"sqlite:///{tmp_path / 'fencepost.sqlite3'}",
        "PYTHONPATH": "",
        "PATH": f"{home / 'bin'}:/usr/bin:/bin",
    }
    run(home / "bin" / "fencepost", "migrate", env=environment, cwd=project)
    folder = tmp_path / "fleet"
    with Fleet(folder, "tasks", environment, cwd=project, python=str(python)) as fleet:
        (worker,) = fleet.ready(1)
        printed = run(python, "start.py", env=environment, cwd=project).splitlines()
        assert printed[1:] == ["5", "it is 42"]
        assert Path(printed[0]).is_relative_to(home)
        log = worker.log()
        assert "tasks.add" in log
        assert "Task sums[" in log
