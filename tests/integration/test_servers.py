"""The embedded servers: they come up, come back where they were, and leave nothing running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fencepost.testing import (
    PostgresServer,
    RedisServer,
    ServerError,
    _account,
    _postgres,
    _process,
    _server,
    embedded_postgres,
    embedded_redis,
)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with embedded_postgres(tmp_path_factory.mktemp("own"), fsync=False) as server:
        yield server


def client_of(server: RedisServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def wait_until(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def descendants() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_redis_answers_and_leaves_nothing_running(tmp_path: Path) -> None:
    before = descendants()
    with embedded_redis(tmp_path) as server:
        with client_of(server) as client:
            assert client.ping()
            assert client.info("server")["process_id"] == server.pid
        during = descendants() - before
        assert server.pid in during
    assert descendants() <= before
    assert all(gone(pid) for pid in during)
    assert not server.running


def test_redis_killed_and_restarted_is_empty_on_the_same_port(tmp_path: Path) -> None:
    with embedded_redis(tmp_path) as server:
        url, pid = server.url, server.pid
        with client_of(server) as client:
            client.set("lease", "held")
        server.kill()
        assert gone(pid)
        server.restart(empty=True)
        assert server.url == url
        assert server.pid != pid
        with client_of(server) as client:
            assert client.dbsize() == 0


def test_redis_with_appendonly_keeps_its_data_unless_told_to_forget(tmp_path: Path) -> None:
    with embedded_redis(tmp_path, appendonly=True) as server:
        with client_of(server) as client:
            client.set("lease", "held")
        server.restart()
        with client_of(server) as client:
            assert client.get("lease") == "held"
        server.restart(empty=True)
        with client_of(server) as client:
            assert client.get("lease") is None


def test_redis_demands_its_password(tmp_path: Path) -> None:
    with embedded_redis(tmp_path, password='s3 "cret\\/@') as server:
        with client_of(server) as client:
            assert client.ping()
        stranger = redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0))
        with pytest.raises(redis.AuthenticationError):
            stranger.ping()
        stranger.close()
        arguments = " ".join(psutil.Process(server.pid).cmdline())
        assert "s3" not in arguments


def test_redis_keeps_out_of_the_ports_of_outgoing_connections(tmp_path: Path) -> None:
    with embedded_redis(tmp_path) as server:
        assert 20_000 <= server.port < 32_000


def test_a_port_that_is_lost_in_between_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        draws = iter([taken, taken, _process.free_port()])
        monkeypatch.setattr(_server, "free_port", lambda: next(draws))
        with embedded_redis(tmp_path) as server:
            assert server.port != taken
            with client_of(server) as client:
                assert client.ping()


def test_a_missing_wheel_is_named_with_the_remedy() -> None:
    with pytest.raises(ServerError, match=r"no-such-server.*pip install \"fencepost\[testing\]\""):
        _server.package_folder("no_such_server", "An embedded Nothing")


def test_a_server_that_cannot_start_says_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary: list[Path] = []

    def watched(account: _process.Account | None) -> Path:
        temporary.append(_account.private_folder(account))
        return temporary[-1]

    monkeypatch.setattr(_postgres, "private_folder", watched)
    with (
        pytest.raises(ServerError, match="no_such_parameter"),
        embedded_postgres(tmp_path, settings={"no_such_parameter": "1"}),
    ):
        pass
    assert not (tmp_path / "postgres-data").exists()
    assert not any(folder.exists() for folder in temporary)


def test_postgres_answers(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert postgres.url.startswith("postgresql+psycopg://")
    assert psutil.Process(postgres.pid).uids().effective != 0


def test_postgres_demands_its_password(postgres: PostgresServer) -> None:
    wrong = postgres.dsn.replace(postgres.password, "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_postgres_killed_keeps_what_was_committed(postgres: PostgresServer) -> None:
    url, pid = postgres.url, postgres.pid
    connection = psycopg.connect(postgres.dsn)
    connection.execute("create table kept (id int)")
    connection.commit()
    sessions = psutil.Process(pid).children()
    assert sessions
    postgres.kill()
    assert all(gone(process.pid) for process in sessions)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("select 1")
    connection.close()
    postgres.restart()
    assert postgres.url == url
    with psycopg.connect(postgres.dsn) as again:
        assert again.execute("select count(*) from kept").fetchone() == (0,)


def test_postgres_killed_and_restarted_empty_on_the_same_port(postgres: PostgresServer) -> None:
    url = postgres.url
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("create table lost (id int)")
    postgres.kill()
    postgres.restart(empty=True)
    assert postgres.url == url
    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("select to_regclass('lost')").fetchone() == (None,)


def test_postgres_finds_its_data_again_in_the_same_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "kept"
    with embedded_postgres(folder, fsync=False) as server:
        # As root, pytest's closed folders make the data go to a temporary place.
        in_place = (folder / "postgres-data").exists()
        with psycopg.connect(server.dsn) as connection:
            connection.execute("create table kept (id int)")
    with embedded_postgres(folder, fsync=False) as server, psycopg.connect(server.dsn) as again:
        found = again.execute("select to_regclass('kept')").fetchone()
    assert found == (("kept",) if in_place else (None,))


def test_postgres_leaves_a_folder_alone_that_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "postgres-data").mkdir()
    precious = tmp_path / "postgres-data" / "precious"
    precious.write_text("mine")
    server = PostgresServer(tmp_path)
    server._data = tmp_path / "postgres-data"
    with pytest.raises(ServerError, match="move it away"):
        server.start()
    assert precious.read_text() == "mine"


def test_postgres_in_a_closed_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    before = descendants()
    (tmp_path / "closed").mkdir(mode=0o700)
    with embedded_postgres(tmp_path / "closed", fsync=False) as server:
        data, during = server._data, descendants() - before
        with psycopg.connect(server.dsn) as connection:
            connection.execute("select 1")
    assert all(gone(pid) for pid in during)
    assert descendants() <= before
    if os.geteuid() == 0:
        assert not data.parent.exists()


def test_copied_programs_run(tmp_path: Path) -> None:
    package = _server.package_folder("embedded_postgres", "A test")
    copied = _account.copy_programs(package, tmp_path)
    program = copied / "pginstall" / "bin" / "initdb"
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert "PostgreSQL" in answer.stdout


def test_reach_is_judged_by_every_folder_above(tmp_path: Path) -> None:
    stranger = _process.Account(uid=54321, gid=54321)
    closed = tmp_path / "closed"
    (closed / "open").mkdir(parents=True)
    closed.chmod(0o700)
    assert not _account.reachable(closed / "open", stranger)
    assert _account.reachable(Path("/usr"), stranger)
    assert _account.reachable(closed / "open", None)


CHILD = """
import sys, time
from fencepost.testing import embedded_postgres, embedded_redis
with embedded_redis(sys.argv[1]) as redis, embedded_postgres(sys.argv[1], fsync=False) as sql:
    print(redis.pid, sql.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Another process that owns a server of each kind, and their pids."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    yield process, pids
    process.kill()
    process.wait()
    process.stdout.close()


def test_servers_end_when_their_owner_is_killed(
    owner: tuple[subprocess.Popen[str], list[int]],
) -> None:
    process, servers = owner
    assert len(servers) == 2
    everything = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    assert set(servers) <= set(everything)
    process.send_signal(signal.SIGKILL)
    assert wait_until(lambda: all(gone(pid) for pid in everything))


def test_servers_survive_a_frozen_owner(owner: tuple[subprocess.Popen[str], list[int]]) -> None:
    process, servers = owner
    process.send_signal(signal.SIGSTOP)
    assert wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    assert not wait_until(lambda: any(gone(pid) for pid in servers), seconds=1.0)


if sys.platform == "linux":  # elsewhere nothing tells a server that its guardian was killed

    def test_a_server_ends_when_its_guardian_is_killed(tmp_path: Path) -> None:
        with embedded_redis(tmp_path) as server:
            pid = server.pid
            guardian = psutil.Process(pid).parent()
            assert guardian is not None
            guardian.kill()
            assert wait_until(lambda: gone(pid))
