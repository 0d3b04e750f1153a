"""Three-step executions beside plain Celery's chain of three tasks: `make bench`.

Both run in the same process, one after the other, on the same workers and the same servers.
Exits with 1 if an execution or a chain did not end as it should.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import sqlalchemy as sa

from fencepost.stores.sql import migrate
from fencepost.testing import embedded_postgres, embedded_redis
from tests.support.fleet import Fleet
from tests.support.waiting import wait_for

POLL_SECONDS = 0.05
WARM_UP = 20


@dataclass(frozen=True)
class Measured:
    """How long a number of three-step runs took, from the first start to the last end."""

    what: str
    runs: int
    errors: int
    seconds: float

    def __str__(self) -> str:
        rate = self.runs / self.seconds
        return (
            f"{self.what:<34} {self.runs:>6} runs  {self.errors} errors  {self.seconds:7.2f} s"
            f"  {rate:7.1f} runs/s  {3 * rate:7.1f} steps/s"
        )


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=2, help="`celery worker` processes")
    parser.add_argument("--concurrency", type=int, default=1, help="of each worker")
    parser.add_argument("--database", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument("--lease-ttl", type=float, default=30.0, help="seconds")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each contestant")
    return parser.parse_args()


@contextmanager
def servers(folder: Path, database: str) -> Iterator[tuple[str, str]]:
    """A Valkey and a database, real and new: their URLs."""
    with ExitStack() as stack:
        valkey = stack.enter_context(embedded_redis(folder / "valkey"))
        if database == "sqlite":
            yield valkey.url, f"sqlite:///{folder / 'bench.sqlite3'}"
        else:
            # As durable as in production: commits reach the disk.
            yield valkey.url, stack.enter_context(embedded_postgres(folder / "postgres")).url


def main() -> int:
    """Run both contestants and print what was measured."""
    options = arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-bench-")))
        redis_url, database_url = stack.enter_context(servers(folder, options.database))
        migrate(database_url)
        environment = {
            "BENCH_REDIS_URL": redis_url,
            "FENCEPOST_DATABASE_URL": database_url,
            "FENCEPOST_LEASE_TTL": str(options.lease_ttl),
        }
        os.environ.update(environment)
        fleet = stack.enter_context(Fleet(folder, "benchmarks.app", environment))
        fleet.ready(options.workers, concurrency=options.concurrency)
        contestants = [fencepost_saga(), plain_chain(redis_url)]
        for run in contestants:
            run(WARM_UP, options.timeout)
        measured = [run(options.executions, options.timeout) for run in contestants]
        describe(options)
        for one in measured:
            print(one)
        ours, plain = measured
        print(f"\nFencepost takes {ours.seconds / plain.seconds:.2f} times as long.")
    return int(any(one.errors for one in measured))


Contestant = Callable[[int, float], Measured]


def fencepost_saga() -> Contestant:
    """A saga of three steps, each committed before the next."""
    from benchmarks.app import fp, saga
    from fencepost.stores.sql.schema import executions as table

    def ended(execution_ids: list[Any], *, well: bool = False) -> int:
        condition = table.c.status == "succeeded" if well else table.c.ended_at.is_not(None)
        query = sa.select(sa.func.count()).where(condition, table.c.execution_id.in_(execution_ids))
        with fp.database.connect() as connection:
            return int(connection.execute(query).scalar_one())

    def run(runs: int, timeout: float) -> Measured:
        began = time.perf_counter()
        ids = [fp.start(saga, number).execution_id for number in range(runs)]
        wait_for(lambda: ended(ids) == runs, timeout, "all executions", poll=POLL_SECONDS)
        seconds = time.perf_counter() - began
        values = [fp.handle(ids[n], saga).result(0) for n in (0, runs - 1)]
        wrong = int(values != [3, runs + 2])
        return Measured(
            "Fencepost, saga of three steps", runs, runs - ended(ids, well=True) + wrong, seconds
        )

    return run


def plain_chain(redis_url: str) -> Contestant:
    """Plain Celery's chain of three tasks on the same app, whose settings are Fencepost's."""
    from benchmarks.app import app, publish_chain

    client = redis.Redis.from_url(redis_url)
    backend: Any = app.backend

    def run(runs: int, timeout: float) -> Measured:
        began = time.perf_counter()
        ids = [publish_chain(number) for number in range(runs)]
        keys = [backend.get_key_for_task(one) for one in ids]
        wait_for(
            lambda: int(client.exists(*keys)) == runs, timeout, "all chains", poll=POLL_SECONDS
        )
        seconds = time.perf_counter() - began
        results = [app.AsyncResult(one) for one in ids]
        wrong = sum(
            result.state != "SUCCESS" or result.result != number + 3
            for number, result in enumerate(results)
        )
        return Measured("plain Celery, chain of three tasks", runs, wrong, seconds)

    return run


def describe(options: argparse.Namespace) -> None:
    """Say under what conditions the numbers were made."""
    durable = "fsync on" if options.database == "postgres" else "WAL, synchronous = FULL"
    print(
        f"{options.workers} prefork workers -c {options.concurrency}, {os.cpu_count()} processors,"
        f" {options.database} ({durable}), Valkey without persistence,\n"
        f"acks_late, prefetch 1, lease TTL {options.lease_ttl:g} s, steps that do nothing."
        " Each of our steps is on disk before\nthe next begins; of the chain nothing is.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
