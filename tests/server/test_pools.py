"""A curator's acts while pools have connections: the next use works, or connects anew by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dpsql.server.catalog_twin import Twin, open_twin
from tests.server.test_reload import ACTS
from tests.support.jdbc import java
from tests.support.pools import Lost, OfAsyncpg, OfJdbc, OfPsycopg, OfSqlAlchemy, Pool, Refused
from tests.support.served import served

ROWS = 3
GONE = {"analyst leaves", "user leaves", "password"}
"""Acts after which ana does not come in by the password that the pool has."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),  # cursors of lost ones
]


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with java() as found:
        yield found


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    """One for the servers of all acts, none of which closes it."""
    found = open_twin("auto", "clinic")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Twin, "close", lambda twin: None)
        yield found
    found.close()


@pytest.mark.parametrize("act", ACTS)
def test_no_pool_keeps_a_dead_connection(act: str, catalog: Path, twin: Twin, jvm: Any) -> None:
    work, goes_on = ACTS[act]
    kinds: tuple[Callable[[int], Pool], ...]
    kinds = (OfPsycopg, OfSqlAlchemy, OfAsyncpg, partial(OfJdbc, jvm=jvm))
    with served(catalog, twin) as server, ExitStack() as stack:
        pools = [kind(server.port) for kind in kinds]
        for pool in pools:
            stack.callback(pool.close)
        kept = [(pool, pool.keep(half)) for pool in pools for half in (False, True)]
        for pool in pools:  # one more, that is idle
            assert pool.use() == ROWS
        work(catalog)
        server.watch.look()
        for pool in pools:
            if act in GONE:
                with pytest.raises(Refused):
                    pool.use()
            else:
                assert pool.use() == ROWS, pool
        for pool, each in kept:
            if goes_on:
                assert pool.go_on(each) == ROWS, pool
            else:
                with pytest.raises(Lost):
                    pool.go_on(each)
        for pool in pools if act not in GONE else ():
            assert [pool.use() for _ in range(4)] == [ROWS] * 4
