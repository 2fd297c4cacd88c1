"""Releases in which places were rounded and weights were products of them: read as they were made.

The version before rounded where a value lies in its bounds to a grid, of which all moments were
made. What it released is answered from as it was measured, or is not used.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import dpsql
from dpsql.answer.store import Store
from dpsql.errors import ProgrammingError
from dpsql.privacy.vault.codes.tally import AxisPlaces
from dpsql.workload import nodes
from dpsql.workload.cells import Nodes
from dpsql.workload.weights import block_unit
from tests.support.seam import zero_noise
from tests.support.tables import Tables, open_tables

CATALOG = """
[budget]
epsilon = 1000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
age = { type = "integer", domain = [0, 66] }
g = { type = "integer", domain = [0, 3] }
spent = { type = "number", bounds = [0, 5000] }
paid = { type = "number", bounds = [0, 5000] }
"""
GRIDS = {1: 1 << 12, 2: 1 << 7}
SQL = (
    *(
        "SELECT AVG(spent), COUNT(*) FROM t",
        "SELECT CORR(spent, paid) AS c, AVG(spent) AS a FROM t",
    ),
    *("SELECT g, COUNT(*), SUM(age) FROM t GROUP BY g ORDER BY g", "SELECT STDDEV(paid) FROM t"),
    "SELECT g, AVG(paid) AS a FROM t GROUP BY g ORDER BY g",
)
AFTER = (
    *SQL,
    *("SELECT COUNT(*) FROM t", "SELECT g, COUNT(*) FROM t GROUP BY g ORDER BY g"),
    *("SELECT AVG(paid) FROM t", "SELECT SUM(spent) FROM t", "SELECT SUM(age) FROM t"),
)


def on_grid(table: Any, terms: Any) -> dict[str, Nodes]:
    found = nodes.find_nodes(table, terms)
    return {
        key: replace(each, steps=0, grid=66 if each.column == "age" else GRIDS[each.degree])
        for key, each in found.items()
    }


def products(
    grids: Sequence[int], falls: Sequence[AxisPlaces], places: Any, weight: Any
) -> Iterator[Any]:
    """The weights of nodes: products of the steps of a grid."""
    if not falls:
        yield places, weight
        return
    grid, first = grids[0], falls[0]
    steps = np.rint(np.asarray(first.part) * grid).astype(np.int64)
    rest = grid - steps
    own = [rest, steps] if len(first.cells) == 2 else [rest**2, 2 * steps * rest, steps**2]
    for cells, each in zip(first.cells, own, strict=True):
        yield from products(grids[1:], falls[1:], places + cells, weight * each)


@contextmanager
def version_before() -> Iterator[None]:
    """Plan, measure and store as the version before did."""
    from dpsql.privacy.doors import measure
    from dpsql.privacy.vault.codes import tally
    from dpsql.privacy.vault.unit import rows

    tally_rows = tally.tally_rows

    def tallied(resolutions: Any, *asked: Any) -> Any:
        grids = [each.grid for each in resolutions if isinstance(each, Nodes)]

        def split(falls: Any, places: Any, unit: int) -> Iterator[Any]:
            assert unit == block_unit(resolutions)
            return products(grids, falls, places, 1)

        with mock.patch.object(tally, "_split", split):
            return tally_rows(*asked)

    count = rows.tally

    def counted(some: Any, kept: Any, table: Any, resolutions: Any, *asked: Any) -> Any:
        with mock.patch.object(rows, "tally_rows", lambda *each: tallied(resolutions, *each)):
            return count(some, kept, table, resolutions, *asked)

    with (
        mock.patch("dpsql.workload.layout.find_nodes", on_grid),
        mock.patch("dpsql.privacy.vault.vault.tally", counted),
        mock.patch.object(rows, "fits_nodes", return_value=True),
        mock.patch.object(measure, "_row_sum", block_unit),
    ):
        yield


@pytest.mark.parametrize("first", range(len(SQL)))
def test_what_was_released_before_is_read_as_it_was_made(tmp_path: Path, first: int) -> None:
    rng = random.Random(3)
    rows = [
        (rng.randrange(67), rng.randrange(4), rng.uniform(0, 5000), rng.uniform(100, 5000))
        for _ in range(500)
    ]
    tables: Tables = {"t": ("age BIGINT, g BIGINT, spent DOUBLE, paid DOUBLE", rows)}
    with open_tables(tmp_path, CATALOG, tables) as (old, database), zero_noise():
        with version_before():
            before = old.execute(SQL[first]).fetchall()
        known = database.execute(SQL[first]).fetchall()
        for one, two in zip(before, known, strict=True):
            assert one == pytest.approx(two, rel=0.02, abs=0.02)
        (release,) = Store(tmp_path / "t.toml").releases.all().values()
        measured = release.plan.parts[0].resolutions.values()
        assert all(each.grid for each in measured if isinstance(each, Nodes))
        old.close()
        with dpsql.connect(tmp_path / "t.toml", epsilon=1) as connection:
            entries = len(connection.entries())
            assert connection.execute(SQL[first]).fetchall() == before
            assert len(connection.entries()) == entries
            for sql in AFTER:
                if sql != SQL[first]:
                    found = connection.execute(sql).fetchall()
                    for one, two in zip(found, database.execute(sql).fetchall(), strict=True):
                        assert one == pytest.approx(two, rel=1e-4), sql


def test_what_the_version_before_planned_is_not_measured(tmp_path: Path) -> None:
    rows = [(1, 2, 3.0, 4.0)]
    tables: Tables = {"t": ("age BIGINT, g BIGINT, spent DOUBLE, paid DOUBLE", rows)}
    with (
        open_tables(tmp_path, CATALOG, tables) as (connection, _),
        mock.patch("dpsql.workload.layout.find_nodes", on_grid),
        pytest.raises(ProgrammingError, match="do not fit"),
    ):
        connection.execute(SQL[0])
