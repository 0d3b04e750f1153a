"""The file sink: crashes at every step of a publication, and what else the suite can't ask."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from fencepost import FenceToken
from fencepost.errors import ConfigurationError, PayloadError, StaleLeaseFenceError
from fencepost.sinks import Claim, SinkBusyError
from fencepost.sinks.files import FileSink
from fencepost.testing.sinks import call, owner, successor

ROOT = Path(__file__).parents[3]

# Ends like a killed process at the n-th call that changes something on the disk.
PUBLISH_AND_DIE = """
import os, sys
from pathlib import Path
from uuid import UUID

fatal, folder, key, execution_id, epoch = sys.argv[1:]
left = int(fatal)
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.truncate"}

def audit(event, arguments):
    global left
    writes = event == "open" and isinstance(arguments[0], str) and arguments[2] & 3
    if folder in str(arguments[:1]) and (event in CHANGES or writes):
        left -= 1
        if left < 0:
            os._exit(70)

from fencepost import FenceToken
from fencepost.sinks import Claim
from fencepost.sinks.files import FileSink

sys.addaudithook(audit)
token = FenceToken(UUID(execution_id), int(epoch), "dies", "")
FileSink(folder).apply(
    Claim(key=key, token=token, resource="report.txt"),
    lambda present: (present or b"") + b"line\\n",
)
"""


def publish_and_die(folder: Path, at: int, key: str, token: FenceToken) -> bool:
    """Whether it died."""
    arguments = [str(at), str(folder), key, str(token.execution_id), str(token.epoch)]
    command = [sys.executable, "-c", PUBLISH_AND_DIE, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 70), done.stderr
    return done.returncode == 70


def test_a_writer_killed_at_any_point_has_written_once_or_not_at_all(tmp_path: Path) -> None:
    """And whoever comes next, with the same key, makes it once."""
    seen = set()
    for at in range(100):
        folder = tmp_path / f"killed-{at}"
        sink = FileSink(folder)
        first = owner(1)
        sink.publish(Claim(key="before", token=first, resource="report.txt"), b"old\n")
        died = publish_and_die(folder, at, "once", first)
        visible = (folder / "report.txt").read_bytes()
        assert visible in (b"old\n", b"old\nline\n"), "a reader saw half a file"
        receipt = sink.apply(
            Claim(key="once", token=successor(first), resource="report.txt"),
            lambda present: (present or b"") + b"line\n",
        )
        assert (folder / "report.txt").read_bytes() == b"old\nline\n"
        assert sink.read("report.txt") == b"old\nline\n"
        assert receipt.result.size == len(b"old\nline\n")
        seen.add((visible, receipt.replayed))
        leftovers = [p.name for p in folder.rglob("draft-*")]
        assert leftovers == []
        if not died:
            break
    else:
        raise AssertionError("a publication makes more than 100 changes")
    # Not landed; landed but not in place yet; in place.
    assert seen == {(b"old\n", False), (b"old\n", True), (b"old\nline\n", True)}


def test_a_publication_that_was_interrupted_is_completed_by_readers_too(tmp_path: Path) -> None:
    for at in range(100):
        folder = tmp_path / f"killed-{at}"
        token = owner(1)
        if not publish_and_die(folder, at, "once", token):
            break
        found = FileSink(folder).read("report.txt")
        on_disk = folder / "report.txt"
        assert found == (on_disk.read_bytes() if on_disk.exists() else None)


def test_a_writer_frozen_in_mid_write_holds_its_successor_up(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, wait=timedelta(milliseconds=20))
    zombie = owner(1)

    def frozen(_present: bytes | None) -> bytes:
        with pytest.raises(SinkBusyError, match="held by another writer"):
            FileSink(tmp_path, wait=timedelta(milliseconds=20)).advance("r", successor(zombie))
        return b"in time"

    sink.apply(call("r", zombie), frozen)
    sink.advance("r", successor(zombie))
    with pytest.raises(StaleLeaseFenceError):
        sink.publish(call("r", zombie), b"late")
    assert sink.read("r") == b"in time"


def test_a_killed_writers_lock_is_free(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, wait=timedelta(milliseconds=20))
    sink.advance("r", owner(1))
    (lock,) = tmp_path.rglob("lock")
    script = (
        "import fcntl, os, sys; fd = os.open(sys.argv[1], os.O_RDWR);"
        "fcntl.flock(fd, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    with pytest.raises(SinkBusyError):
        sink.advance("r", owner(1))
    holder.kill()
    holder.communicate()
    sink.advance("r", owner(1))


@pytest.mark.parametrize(
    "resource",
    ["../out", "a/../../out", "/etc/passwd", ".", "a//b", "a/", "./a", ".fencepost/x", "a/.."],
)
def test_a_resource_is_a_path_below_the_folder(tmp_path: Path, resource: str) -> None:
    sink = FileSink(tmp_path / "files")
    for operation in (
        lambda: sink.publish(call(resource, owner(1)), b"x"),
        lambda: sink.advance(resource, owner(1)),
        lambda: sink.read(resource),
    ):
        with pytest.raises(PayloadError):
            operation()
    assert not (tmp_path / "files").exists()


def test_where_a_file_cannot_go_nothing_has_landed(tmp_path: Path) -> None:
    """A publication must not land and then be impossible to complete."""
    sink = FileSink(tmp_path)
    sink.publish(call("a/b", owner(1)), b"x")
    once = call("a", owner(1))
    with pytest.raises(PayloadError, match="folder"):
        sink.publish(once, b"y")
    with pytest.raises(PayloadError, match="below a file"):
        sink.publish(call("a/b/c", owner(1)), b"y")
    (tmp_path / "a" / "b").unlink()
    (tmp_path / "a").rmdir()
    assert not sink.publish(once, b"y").replayed
    assert sink.read("a") == b"y"


def test_a_write_that_raises_leaves_nothing(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    once = call("r", owner(1))

    def fails(_present: bytes | None) -> bytes:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        sink.apply(once, fails)
    assert sink.read("r") is None
    assert not list(tmp_path.rglob("draft-*"))
    assert not sink.publish(once, b"x").replayed


def test_a_file_is_published_as_a_copy(tmp_path: Path) -> None:
    source = tmp_path / "built.zip"
    source.write_bytes(b"zip" * 1000)
    sink = FileSink(tmp_path / "shop")
    receipt = sink.publish(call("v1/built.zip", owner(1)), source)
    assert (receipt.result.path, receipt.result.size) == ("v1/built.zip", 3000)
    published = tmp_path / "shop" / "v1" / "built.zip"
    assert published.read_bytes() == source.read_bytes()
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(published.stat().st_mode) == 0o666 & ~umask


def test_readers_never_see_a_half_written_file(tmp_path: Path) -> None:
    """The name stands for one inode or the other."""
    sink = FileSink(tmp_path)
    token = owner(1)
    sink.publish(call("r", token), b"a" * 100_000)
    with (tmp_path / "r").open("rb") as opened:
        sink.publish(call("r", token), b"b" * 100_000)
        assert set(opened.read()) == {ord("a")}
    assert set((tmp_path / "r").read_bytes()) == {ord("b")}


def test_only_so_many_keys_are_remembered(tmp_path: Path) -> None:
    sink = FileSink(tmp_path, remembered=2)
    token = owner(1)
    claims = [call("r", token) for _ in range(3)]
    for claim in claims:
        sink.publish(claim, b"x")
    assert [sink.publish(claim, b"x").replayed for claim in (claims[2], claims[1])] == [True, True]
    assert not sink.publish(claims[0], b"x").replayed


def test_a_manifest_that_is_none_is_refused(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    sink.advance("r", owner(1))
    (manifest,) = tmp_path.rglob("manifest.json")
    for broken in ("not json", "[]", '{"format": 99}'):
        manifest.write_text(broken)
        with pytest.raises(ConfigurationError, match="manifest"):
            sink.advance("r", owner(1))


def test_a_line_of_the_record_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    zombie = owner(1)
    sink.advance("r", successor(zombie))
    with pytest.raises(StaleLeaseFenceError):
        sink.advance("r", zombie)
    (record,) = tmp_path.rglob("refused.jsonl")
    record.write_text(record.read_text() + '{"execution_id": "cut')
    assert len(sink.refusals("r")) == 1


def test_the_lock_is_an_ordinary_flock(tmp_path: Path) -> None:
    """Other programs may take part."""
    sink = FileSink(tmp_path, wait=timedelta(0))
    sink.advance("r", owner(1))
    (lock,) = tmp_path.rglob("lock")
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SinkBusyError):
            sink.advance("r", owner(1))
