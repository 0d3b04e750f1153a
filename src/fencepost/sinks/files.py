"""Files, published atomically under a fence, on one host or a file system with honest locks.

A resource is a file's path below the sink's folder. Beside what is published, `.fencepost/` keeps
for each resource a lock, its marks and applied keys, and the stale writes that were refused. It
must be on the same file system as the rest.

Publishing writes the new content aside, then its record (from here on it has landed), then moves
it into place. Whoever comes next after a crash in between completes the last of these.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from uuid import uuid4

from fencepost.errors import PayloadError, StaleLeaseFenceError
from fencepost.fence import FenceToken
from fencepost.sinks.contract import (
    Applied,
    Refusal,
    SinkBusyError,
    SinkCall,
    check_names,
)
from fencepost.sinks.manifest import Manifest

__all__ = ["FileSink", "PublishedFile"]

OWN_FOLDER = ".fencepost"

Change = Callable[[bytes | None], bytes]
Fill = Callable[[BinaryIO, Path], None]


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """What was published.

    Attributes:
        path: Below the sink's folder.
        sha256: Of the content, in hex.
        size: In bytes.
    """

    path: str
    sha256: str
    size: int


class FileSink:
    """Publishes files. Implements `ApplyingSink`.

    Readers always see a whole file, the old or the new one. While a writer is frozen inside its
    publication, nobody else gets in: `advance` raises `SinkBusyError`, and a takeover waits.

    Args:
        folder: Where files are published; made if absent. On a network file system, its locks
            must hold even where a client loses its connection.
        wait: How long to wait for the resource's lock.
        remembered: Keys and marks that are kept for each resource; the oldest are forgotten.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        wait: timedelta = timedelta(seconds=10),
        remembered: int = 1_000,
    ) -> None:
        self._folder = Path(folder)
        self._wait = wait.total_seconds()
        self._remembered = remembered

    def advance(self, resource: str, token: FenceToken) -> None:
        """See `FencedSink.advance`.

        Raises:
            StaleLeaseFenceError: The mark is higher.
            SinkBusyError: Somebody else has the lock.
        """
        with self._locked(resource) as place:
            manifest = place.checked(token, None)
            place.store(manifest.advanced(token, self._remembered))

    def apply(self, call: SinkCall, write: Change) -> Applied[PublishedFile]:
        """Publish what a function makes of the present content.

        Args:
            call: Which write this is; its resource is the file's path below the folder.
            write: Given the content, or None where there is no file; returns the new content.

        Raises:
            StaleLeaseFenceError: The mark is higher; it is on record.
            EffectKeyConflictError: The key was applied for a request with another digest.
            SinkBusyError: Somebody else has the lock.
            PayloadError: The resource is no path below the folder.
        """

        def fill(target: BinaryIO, present: Path) -> None:
            target.write(write(present.read_bytes() if present.exists() else None))

        return self._publish(call, fill)

    def publish(self, call: SinkCall, content: bytes | Path) -> Applied[PublishedFile]:
        """Publish bytes, or a copy of a file; see `apply`."""

        def fill(target: BinaryIO, _present: Path) -> None:
            if isinstance(content, bytes):
                target.write(content)
            else:
                with content.open("rb") as source:
                    shutil.copyfileobj(source, target)

        return self._publish(call, fill)

    def read(self, resource: str) -> bytes | None:
        """What is published, or None. Completes a publication that was interrupted."""
        with self._locked(resource) as place:
            return place.target.read_bytes() if place.target.exists() else None

    def refusals(self, resource: str) -> list[Refusal]:
        """The stale writes that were refused, oldest first."""
        with self._locked(resource) as place:
            return place.refusals()

    def _publish(self, call: SinkCall, fill: Fill) -> Applied[PublishedFile]:
        check_names(call.resource, call.key)
        with self._locked(call.resource) as place:
            manifest = place.checked(call.token, call)
            first = manifest.find(call)
            if first is not None:
                place.store(manifest.advanced(call.token, self._remembered))
                result = PublishedFile(**first.result)
                return Applied(result=result, replayed=True, epoch=first.epoch)
            draft = place.draft(fill)
            result = PublishedFile(call.resource, draft.sha256, draft.size)
            landed = manifest.with_applied(
                call, asdict(result), draft.name, {"draft": draft.name}, self._remembered
            )
            place.store(landed)
            place.settle(landed)
        return Applied(result=result, replayed=False, epoch=call.token.epoch)

    @contextmanager
    def _locked(self, resource: str) -> Iterator[_Place]:
        place = _Place(self._folder, resource)
        place.own.mkdir(parents=True, exist_ok=True)
        # A descriptor of its own: flock keeps out other threads as well as other processes.
        descriptor = os.open(place.own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(descriptor, self._wait, resource)
            place.settle(place.load())
            yield place
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Draft:
    name: str
    sha256: str
    size: int


class _Place:
    """A resource's files; every method but the constructor needs its lock."""

    def __init__(self, folder: Path, resource: str) -> None:
        check_names(resource)
        path = PurePosixPath(resource)
        bad = path.is_absolute() or ".." in path.parts or not path.parts
        if bad or str(path) != resource or path.parts[0] == OWN_FOLDER:
            raise PayloadError(f"a file sink's resource is a path below its folder: {resource!r}")
        self.resource = resource
        self.target = folder / path
        self.own = folder / OWN_FOLDER / hashlib.sha256(resource.encode()).hexdigest()[:40]

    def load(self) -> Manifest:
        try:
            return Manifest.load((self.own / "manifest.json").read_bytes())
        except FileNotFoundError:
            return Manifest()

    def store(self, manifest: Manifest) -> None:
        """Replace the manifest, durably. What it says has happened."""
        aside = self.own / "manifest.new"
        with aside.open("wb") as file:
            file.write(manifest.dump())
            _sync(file)
        aside.replace(self.own / "manifest.json")
        _sync_folder(self.own)

    def checked(self, token: FenceToken, call: SinkCall | None) -> Manifest:
        manifest = self.load()
        try:
            manifest.check(self.resource, token)
        except StaleLeaseFenceError:
            self._record(manifest, token, call)
            raise
        return manifest

    def draft(self, fill: Fill) -> _Draft:
        """Write new content aside, durably."""
        # Whatever could keep it from being moved into place must show before it has landed.
        if self.target.is_dir():
            raise PayloadError(f"{self.resource!r} is a folder: nothing can be published there")
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as problem:
            raise PayloadError(f"{self.resource!r} would be below a file: {problem}") from problem
        name = f"draft-{uuid4().hex}"
        descriptor = os.open(self.own / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(descriptor, "w+b") as file:
            fill(file, self.target)
            _sync(file)
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        # Its name must be as durable as the manifest that mentions it.
        _sync_folder(self.own)
        return _Draft(name, sha256, size)

    def settle(self, manifest: Manifest) -> None:
        """Move what has landed into place, and drop drafts that never did."""
        landed = (manifest.content or {}).get("draft")
        for draft in self.own.glob("draft-*"):
            if draft.name != landed:
                draft.unlink()
                continue
            draft.replace(self.target)
            _sync_folder(self.target.parent)

    def _record(self, manifest: Manifest, token: FenceToken, call: SinkCall | None) -> None:
        current, current_owner = manifest.mark(token)
        refusal: dict[str, Any] = {
            "execution_id": str(token.execution_id),
            "held": token.epoch,
            "current": current,
            "owner": token.owner,
            "current_owner": current_owner,
            "key": call.key if call is not None else None,
            "digest": call.digest if call is not None else None,
            "at": datetime.now(UTC).isoformat(),
        }
        with (self.own / "refused.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(refusal) + "\n")

    def refusals(self) -> list[Refusal]:
        try:
            lines = (self.own / "refused.jsonl").read_text("utf-8").splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            # A crash may have cut a line off; that is a lost note, not a lost fence.
            with contextlib.suppress(ValueError):
                stored = json.loads(line)
                at = datetime.fromisoformat(stored.pop("at"))
                found.append(Refusal(resource=self.resource, at=at, **stored))
        return found


def _lock(descriptor: int, wait: float, resource: str) -> None:
    give_up = time.monotonic() + wait
    pause = 0.001
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Not a blocking flock: its holder may be frozen, and then only a time-out helps.
            if time.monotonic() >= give_up:
                raise SinkBusyError(
                    f"the lock of {resource!r} is held by another writer for {wait} s",
                    service="sink",
                    resource=resource,
                ) from None
            time.sleep(pause)
            pause = min(0.05, pause * 2)
        else:
            return


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
