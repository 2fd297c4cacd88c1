"""Fixtures: a private copy of the demonstration data with a ledger of its own."""

from __future__ import annotations

import gc
import itertools
import os
import re
import shutil
import signal
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import duckdb
import pytest
from _pytest.doctest import DoctestModule

import dpsql
from dpsql import sealed
from dpsql.dbapi.connection import Connection
from dpsql.privacy.vault.files import duckdb_pool
from dpsql.sealed import SealedConnection
from tests.support.costs import Costs, slow_files
from tests.support.one_reader import CONFINED, close_reader, one_reader
from tests.support.quick import SEARCHED, full_plans, quick_plans
from tests.support.tables import close_scribes

DEMO = Path(__file__).parent.parent / "demo_data"
SLOW = slow_files()
NUMBERS = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Count what tests cost, where that is asked for: see ``tests/support/costs.py``."""
    if "COSTS" in os.environ:
        config.pluginmanager.register(Costs())


def pytest_unconfigure() -> None:
    """Let go of DuckDB: a callback of hypothesis, which the collector keeps to the very end, keeps
    the strategies that were drawn from, their functions and the modules of these.
    """
    gc.callbacks.clear()


def pytest_collection() -> None:
    """Do not search for garbage among modules and thousands of tests, of which nothing goes."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Nor ever again: of the CPU of the tests it is a fortieth."""
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import slow files where no slow test is wanted."""
    return True if collection_path in SLOW and "not slow" in config.option.markexpr else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples in the docstrings of the package, and not in those of tests."""
    return [found for found in (yield) if not isinstance(found, DoctestModule)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow files."""
    for item in items:
        if item.path in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_open() -> Iterator[None]:
    """Fail at the end when a connection to DuckDB outlives the test that opened it."""
    yield
    for each in (sealed.ahead, duckdb_pool.ahead):  # as when a process ends
        each.close()
    gc.unfreeze()
    gc.collect()
    known = [each for each in gc.get_objects() if isinstance(each, duckdb.DuckDBPyConnection)]
    left = [each for each in known if is_open(each)]
    assert left == [], "held by a module, a parameter or a fault kept with its traceback"


def is_open(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether a connection still takes statements."""
    try:
        connection.execute("SELECT 1")
    except duckdb.ConnectionException:
        return False
    return True


def at(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Keep anchors, caches and histories below a folder, away from the user's own."""
    for name in ("STATE", "CACHE", "DATA", "CONFIG"):
        patch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))


@pytest.fixture(scope="session", autouse=True)
def _state_of_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ledgers that a module keeps have anchors that go with them.

    Where those of the user were taken, the next run met them: a folder in memory has the name of
    one before the machine started anew, and a ledger is missing that its anchor knows.
    """
    with pytest.MonkeyPatch.context() as patch:
        at(tmp_path_factory.mktemp("state"), patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def _evaluators_share_an_instance(_nothing_is_left_open: None) -> Iterator[None]:
    """Evaluators are connections to one sealed DuckDB, of which a start takes 12 ms of CPU.

    Each has temporary tables and statements of its own, as in an instance of its own.
    """
    kept = SealedConnection()._connection

    def connect(self: SealedConnection) -> None:
        self._connection = kept.cursor()

    with mock.patch.object(SealedConnection, "__init__", connect):
        yield
    kept.close()


@pytest.fixture(scope="session", autouse=True)
def _scribes_end(_nothing_is_left_open: None) -> Iterator[None]:
    """Files are written by one DuckDB, too, and read by those that are kept."""
    yield
    close_scribes()
    close_reader()
    duckdb_pool.end_readers()


@pytest.fixture(scope="session", autouse=True)
def _interrupts_arrive() -> None:
    """Undo that a shell ignores SIGINT for what it runs in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def room_of(path: Path) -> str:
    """The folder below that of all tests that a module of tests is in, however deep."""
    return path.relative_to(Path(__file__).parent).parts[0]


@pytest.fixture(scope="module", autouse=True)
def _plans_are_quick(request: pytest.FixtureRequest) -> Iterator[None]:
    """Plans of little search, where tests ask what answers are, not how good plans are."""
    with nullcontext() if room_of(request.path) in SEARCHED else quick_plans():
        yield


@pytest.fixture(scope="module", name="one_reader")
def _one_reader() -> Iterator[None]:
    """One DuckDB for the files of all tests of a module."""
    with one_reader():
        yield


@pytest.fixture(scope="module", autouse=True)
def _readers_are_one(request: pytest.FixtureRequest) -> None:
    """And for all modules but those that ask about readers."""
    if room_of(request.path) not in CONFINED:
        request.getfixturevalue("one_reader")


@pytest.fixture(name="quick_plans")
def _quick_plans() -> Iterator[None]:
    """Plans of little search, where a test among others asks for answers."""
    with quick_plans():
        yield


@pytest.fixture(name="full_plans")
def _full_plans() -> Iterator[None]:
    """Plans as users have them, where a test asks about them."""
    with full_plans():
        yield


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a test. pytest's own first looks at those of all the tests before it."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{next(NUMBERS)}-{name}"
    folder.mkdir(0o700)
    return folder


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept for a user is a test's own."""
    at(tmp_path, monkeypatch)


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A folder with the demonstration catalogs, data and workloads."""
    folder = tmp_path / "demo"
    folder.mkdir()
    for pattern in ("*.toml", "*.parquet", "*.sql", "*.txt"):
        for source in DEMO.glob(pattern):
            shutil.copy(source, folder)
    return folder


@pytest.fixture
def adult(demo: Path) -> Iterator[Connection]:
    """A connection to the Adult demonstration catalog, one unit of epsilon per request."""
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        yield connection
