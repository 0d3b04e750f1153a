"""The links between workers and servers do what they are told."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa

from tests.chaos.network import Network, State

TABLE = "CREATE TABLE notes (what text)"


@pytest.fixture
def direct(postgres_url: str) -> sa.URL:
    return sa.make_url(postgres_url).set(drivername="postgresql")


@pytest.fixture
def network(direct: sa.URL) -> Iterator[Network]:
    with Network() as network:
        network.link("w1-postgres", direct.port or 0)
        yield network


def through(network: Network, direct: sa.URL, **more: str) -> psycopg.Connection:
    url = direct.set(port=network.links["w1-postgres"].port)
    return connected(url, **more)


def connected(url: sa.URL, **more: str) -> psycopg.Connection:
    return psycopg.connect(url.render_as_string(hide_password=False), connect_timeout=5, **more)  # type: ignore[arg-type] # options by name


def notes(direct: sa.URL) -> int:
    with connected(direct) as connection:
        row = connection.execute("SELECT count(*) FROM notes").fetchone()
    assert row is not None
    return int(row[0])


def test_an_answer_is_lost_after_the_commit(network: Network, direct: sa.URL) -> None:
    with connected(direct) as connection:
        connection.execute(TABLE)
    network.lose("w1-postgres", 1)
    client = through(network, direct)
    client.execute("INSERT INTO notes VALUES ('landed')")
    with pytest.raises(psycopg.OperationalError):
        client.commit()
    assert notes(direct) == 1
    assert network.links["w1-postgres"].lost == 1
    # Only that one: the next is answered.
    with through(network, direct) as client:
        client.execute("INSERT INTO notes VALUES ('answered')")
    assert notes(direct) == 2


def test_nothing_else_is_lost_while_a_loss_is_armed(network: Network, direct: sa.URL) -> None:
    network.lose("w1-postgres", 1)
    with through(network, direct) as client:
        assert client.execute("SELECT 1").fetchone() == (1,)
        client.rollback()
    assert network.lose("w1-postgres", 0) == 0


def test_who_is_cut_off_is_told(network: Network, direct: sa.URL) -> None:
    client = through(network, direct)
    network.set("w1-postgres", State.CUT)
    with pytest.raises(psycopg.OperationalError):
        client.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        through(network, direct)
    network.heal()
    with through(network, direct) as healed:
        assert healed.execute("SELECT 1").fetchone() == (1,)


def test_what_is_sent_into_silence_never_arrives(network: Network, direct: sa.URL) -> None:
    with connected(direct) as connection:
        connection.execute(TABLE)
    client = through(network, direct, tcp_user_timeout="30000")
    client.autocommit = True
    network.set("w1-postgres", State.SILENT)
    client.pgconn.send_query(b"INSERT INTO notes VALUES ('into the void')")
    client.pgconn.flush()
    network.heal()
    with pytest.raises(psycopg.OperationalError):
        client.execute("SELECT 1")
    assert notes(direct) == 0
