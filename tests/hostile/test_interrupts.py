"""Ctrl-C while DuckDB works, which catches it itself, is an interrupt and not a failure."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import duckdb
import pytest

from dpsql.privacy.vault.base import sealed
from dpsql.sealed import Sealed

LONG = "SELECT SUM(SQRT(i * j)) FROM range(100000) AS t(i), range(100000) AS s(j)"


def in_the_vault() -> object:
    return sealed(lambda: duckdb.connect().execute(LONG).fetchall())


def over_public_values() -> object:
    return Sealed().run(LONG)


@pytest.mark.parametrize("work", [in_the_vault, over_public_values])
def test_an_interrupt_within_duckdb_is_one(work: Callable[[], object]) -> None:
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            work()
    finally:
        timer.join()
    assert caught.value.__context__ is None or caught.value.__suppress_context__
