"""A place of its own for the ledger of every test, and a PostgreSQL server for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.privacy.place import Place
from tests.support.postgres import Server, server, short_folder
from tests.support.spark import small_spark


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a fresh place for a ledger."""
    return Place(tmp_path)


@pytest.fixture(scope="session")
def started() -> Iterator[Server]:
    """A database on a server that all workers of a run share."""
    with server(short_folder()) as found:
        yield found


@pytest.fixture
def database(started: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """That database, which catalogs reach by CLINIC_DSN."""
    monkeypatch.setenv("CLINIC_DSN", started.address)
    return started


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One Spark for all tests of a worker: a start takes 10 seconds of a core."""
    with small_spark(tmp_path_factory.mktemp("spark")):
        yield
