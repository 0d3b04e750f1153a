"""The staging and publish stores beside a real ledger."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from ledger import artifacts, attempts, database
from ledger.errors import ArtifactDamagedError
from ledger.models import ArtifactStatus
from ledger.publishing import PublishStore, file_name, release_digest
from ledger.staging import StagingStore
from ledger.vocabulary import LockedCandidate, StagedModuleArtifact
from tests.integration.factory.test_ledger import candidate, staged, token

pytestmark = pytest.mark.usefixtures("ledger_url")


@pytest.fixture
def made() -> LockedCandidate:
    opened = candidate()
    with database.session() as session:
        attempts.open_attempt(session, token(execution_id=opened.execution_id), opened)
    return opened


def put(of: LockedCandidate, module: str, content: bytes, epoch: int = 1) -> StagedModuleArtifact:
    """A staged file; its row is the caller's."""
    digest = hashlib.sha256(content).hexdigest()
    artifact = staged(of, module, epoch).model_copy(update={"sha256": digest, "size": len(content)})
    StagingStore().write(artifact.path, lambda stream: stream.write(content))
    return artifact


def record(*recorded: StagedModuleArtifact) -> None:
    with database.session() as session:
        for artifact in recorded:
            artifacts.record(session, artifact)


def test_a_file_without_a_row_is_an_orphan(made: LockedCandidate) -> None:
    seen, unseen = put(made, "a", b"1"), put(made, "b", b"2")
    record(seen)
    store = StagingStore()
    with database.session() as session:
        assert store.orphans(session) == [unseen.path]
        assert store.sweep(session) == []  # too young
        assert store.sweep(session, older_than=None) == [unseen.path]
        artifacts.mark(session, seen.step_key, ArtifactStatus.COMPENSATED)
        assert store.orphans(session) == [seen.path]
    assert store.remove(seen.path)
    assert not store.remove(seen.path)
    assert list(store.root.iterdir()) == []


def test_an_old_orphan_is_swept(made: LockedCandidate) -> None:
    old = put(made, "a", b"1")
    then = time.time() - 7200
    os.utime(StagingStore().locate(old.path), (then, then))
    with database.session() as session:
        assert StagingStore().sweep(session, older_than=timedelta(hours=1)) == [old.path]


def test_a_file_is_whole_or_absent(made: LockedCandidate) -> None:
    artifact = put(made, "a", b"old")

    def fails(stream: object) -> None:
        stream.write(b"half")  # type: ignore[attr-defined]
        raise OSError("no space left on device")

    store = StagingStore()
    with pytest.raises(OSError, match="no space"):
        store.write(artifact.path, fails)
    assert store.locate(artifact.path).read_bytes() == b"old"
    assert list(store.files()) == [artifact.path]


def test_older_epochs_are_removed_and_newer_ones_are_not(made: LockedCandidate) -> None:
    files = [put(made, "a", b"x", epoch) for epoch in (1, 2, 3, 12)]
    other = put(made, "ab", b"x", 1)
    assert StagingStore().remove_older_epochs(files[2].path, 3) == [files[0].path, files[1].path]
    assert set(StagingStore().files()) == {files[2].path, files[3].path, other.path}


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", ""])
def test_paths_stay_inside_of_the_store(path: str) -> None:
    with pytest.raises(ValueError, match="not a path inside"):
        StagingStore().locate(path)


def publish(*staged_artifacts: StagedModuleArtifact) -> str:
    store, published = StagingStore(), PublishStore()
    digest = release_digest("shop", "1.0", staged_artifacts)
    directory = published.directory_for("shop", "1.0", digest)
    published.put(directory, {store.locate(a.path): a for a in staged_artifacts})
    return directory


def test_a_release_appears_whole_and_may_be_put_again(made: LockedCandidate) -> None:
    modules = put(made, "a", b"1"), put(made, "b", b"2")
    directory = publish(*modules)
    root = PublishStore().root
    before = {p: p.stat().st_ino for p in (root / directory).iterdir()}
    assert {p.name for p in before} == {file_name(m) for m in modules}
    assert publish(*modules) == directory
    assert {p: p.stat().st_ino for p in (root / directory).iterdir()} == before
    assert [p.name for p in (root / "shop").iterdir()] == [Path(directory).name]


def test_a_staged_file_that_changed_is_not_published(made: LockedCandidate) -> None:
    good, bad = put(made, "a", b"1"), put(made, "b", b"2")
    StagingStore().locate(bad.path).write_bytes(b"3")
    with pytest.raises(ArtifactDamagedError, match="isn't what was staged"):
        publish(good, bad)
    StagingStore().remove(bad.path)
    with pytest.raises(ArtifactDamagedError, match="is missing"):
        publish(good, bad)
    with database.session() as session:
        assert PublishStore().orphans(session) == []


def test_a_published_file_that_changed_is_noticed(made: LockedCandidate) -> None:
    module = put(made, "a", b"1")
    target = PublishStore().root / publish(module) / file_name(module)
    target.write_bytes(b"9")
    with pytest.raises(ArtifactDamagedError, match="move its folder away"):
        publish(module)
    target.unlink()
    with pytest.raises(ArtifactDamagedError, match="move it away"):
        publish(module)


def test_directories_without_promotions_are_orphans(made: LockedCandidate) -> None:
    directory = publish(put(made, "a", b"1"))
    incoming = PublishStore().root / "shop" / f".incoming-{uuid4().hex}"
    incoming.mkdir()
    with database.session() as session:
        store = PublishStore()
        assert set(store.orphans(session)) == {directory, f"shop/{incoming.name}"}
        assert store.orphans(session, "other") == []
        assert store.sweep(session) == []
        assert len(store.sweep(session, older_than=None)) == 2
    assert list(store.root.iterdir()) == []


def test_the_ledgers_command_lists_and_removes(made: LockedCandidate) -> None:
    path = put(made, "a", b"1").path

    def run(*arguments: str) -> str:
        command = [sys.executable, "-m", "ledger", *arguments]
        root = Path(__file__).parents[3]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        return done.stdout

    run("migrate")
    assert "as this version needs them" in run("check")
    assert f"staging: {path}" in run("sweep")
    assert "1 removed" in run("sweep", "--remove", "--hours", "0")
    assert "0 without a row" in run("sweep")
