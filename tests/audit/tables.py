"""Audits through the front door: whole catalogs on small tables that differ by one unit."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpsql
from dpsql.algebra.integer_rows import KronRows
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.connection import Connection
from dpsql.privacy.doors import exact_products
from dpsql.privacy.vault.vault import TableVault
from dpsql.workload.cells import Nodes
from tests.audit.lower_bound import epsilon_lower_bound
from tests.support.tables import write_tables

Row = tuple[str | None, float | None, str | None]
SALT = b"0123456789abcdef" * 2
ALPHA = 1e-3
LIMIT = 4
"""Rows that one unit may have: a charge for one instead is epsilon 4 instead of 1."""

CATALOG = """
[budget]
epsilon = 100000

[table.t]
source = "t.parquet"
privacy_unit = {unit}

[table.t.column]
x = {{ type = "number", domain = [0, 8], bins = 4, null = true }}
g = {{ type = "text", domain = ["a", "b", "c"], other = true }}
"""
BOUNDED = """
[budget]
epsilon = 100000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
x = {{ type = "number", bounds = [0, 8], null = {null} }}
g = {{ type = "text", domain = ["a", "b", "c"], other = true }}
"""
GRID = 16

ODD: list[float | None] = [
    None,
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    -1e308,
    -0.0,
    8.0,
    -1.0,
    3.0,
    1e19,
]
COUNT = "SELECT COUNT(*) FROM t"
GROUPS = "SELECT g, COUNT(*) FROM t GROUP BY g"
FILTERED = "SELECT COUNT(*) FILTER (WHERE x < 4), COUNT(*) FROM t"


def folder(place: Path, rows: Sequence[Row], by_unit: bool = False, catalog: str = CATALOG) -> Path:
    """Write a table and its catalog, and return the catalog's path."""
    unit = f'{{ column = "who", max_rows = {LIMIT} }}' if by_unit else '"row"'
    text = catalog.format(unit=unit, null="true")
    write_tables(place, text, {"t": ("who VARCHAR, x DOUBLE, g VARCHAR", rows)}).close()
    return place / "t.toml"


def counts(catalog: Path) -> NDArray[np.int64]:
    """Return the exact cells of a table, which no user can ask for."""
    table = read_catalog(catalog).tables["t"]
    sizes = [np.arange(column.size) for column in table.columns.values()]
    return TableVault(table, SALT).count(list(table.columns), sizes)


def sums(place: Path) -> None:
    """Add one row with any value to a sum: its weights are those of the value, clipped, alone."""
    base = crowd(1)
    for null, values in (("true", ODD), ("false", [None, math.nan, math.inf, 3.0])):
        text = BOUNDED.replace("{null}", null)
        without = node_sums(folder(place / null / "base", base, catalog=text))
        for i, x in enumerate(values):
            found = node_sums(folder(place / null / str(i), [*base, ("new", x, "a")], catalog=text))
            for degree in (1, 2):
                change = (found[degree] - without[degree]).tolist()
                assert change == weights(x, degree, null == "true"), (x, degree, null)


def node_sums(catalog: Path) -> dict[int, NDArray[np.int64]]:
    """Return the exact sums of the nodes of x, and of its NULL cell where there is one."""
    table = read_catalog(catalog).tables["t"]
    others = (0,) if table.columns["x"].null else ()
    opened = TableVault(table, SALT)
    return {degree: opened.tally([Nodes("x", degree, 1, GRID, others)]) for degree in (1, 2)}


def weights(x: float | None, degree: int, null: bool) -> list[int]:
    """Return what a row of this value must add: Bernstein weights that sum to GRID^degree."""
    if x is None or x != x:
        return [0] * (degree + 1) + [GRID**degree] * null
    w = round(min(max(x, 0), 8) / 8 * GRID)
    found = [math.comb(degree, k) * w**k * (GRID - w) ** (degree - k) for k in range(degree + 1)]
    return found + [0] * null


def crowd(seed: int, size: int = 40) -> Sequence[Row]:
    """Return rows of a few units, some with more rows than they may have."""
    draw = random.Random(seed)
    return [
        (
            draw.choice(["ann", "bob", "eve"]),
            draw.choice([1.0, 3.0, 5.0, None]),
            draw.choice("abcd"),
        )
        for _ in range(size)
    ]


def records(place: Path) -> None:
    """Add one row with any value: one cell grows by one, or none does, and nothing is raised."""
    base = crowd(1)
    without = counts(folder(place / "base", base))
    for i, (x, g) in enumerate(itertools.product(ODD, ["a", "z", None])):
        change = counts(folder(place / str(i), [*base, ("new", x, g)])) - without
        assert (change >= 0).all(), (x, g)
        assert change.sum() == (g is not None and (x is None or x != x or 0 <= x <= 8)), (x, g)


def units(place: Path) -> None:
    """Add a unit of many rows: at most LIMIT appear. Move rows about: nothing changes."""
    for seed in range(4):
        base = crowd(seed)
        new: list[Row] = [("new", x, g) for x, g in ((1.0, "a"), (5.0, "b")) for _ in range(3)]
        without = counts(folder(place / f"{seed}-base", base, by_unit=True))
        present = counts(folder(place / f"{seed}-more", [*new, *base], by_unit=True))
        assert (present >= without).all(), seed
        assert (present - without).sum() == LIMIT, seed
        moved = counts(folder(place / f"{seed}-moved", [*base[::-1], *new], by_unit=True))
        assert (moved == present).all(), seed


def shapes(place: Path) -> None:
    """Ask an empty and a full table the same: all but the numbers must be identical."""
    seen = []
    for name, rows in (("empty", []), ("one", crowd(3, 1)), ("full", crowd(3, 200))):
        with dpsql.connect(folder(place / name, rows), epsilon=10) as connection:
            seen.append([_shape(connection, sql) for sql in (COUNT, GROUPS, FILTERED)])
    assert seen[0] == seen[1] == seen[2]


def _shape(connection: Connection, sql: str) -> Any:
    result = connection.execute(sql).result
    keys = [
        [v for v, errors in zip(row, result.stddev, strict=True) if errors is None]
        for row in result.rows
    ]
    return result.columns, result.types, keys, result.stddev, result.notes, str(result.cost)


def exact_integers() -> None:
    """Multiply counts of any size: the rows are exact, modulo 2^64."""
    draw = random.Random(5)
    for size in (2**20, 2**40, 2**53, 2**61):
        matrix = np.array([[draw.randrange(-900, 900) for _ in range(6)] for _ in range(5)])
        vector = [draw.randrange(size) for _ in range(6)]
        found = exact_products.apply_rows(
            KronRows((matrix,), (6,)), np.array(vector, dtype=np.int64)
        )
        for row, value in zip(matrix.tolist(), found.tolist(), strict=True):
            true = sum(a * b for a, b in zip(row, vector, strict=True))
            assert (true - value) % 2**64 == 0, size


def statement(
    place: Path, sql: str, by_unit: bool = False, runs: int = 300, attempts: int = 2
) -> None:
    """Bound epsilon of a statement from below by its answers on neighbouring tables.

    The neighbours attain epsilon exactly, so only two bounds above it in a row are an alarm:
    a false one is rarer than one in a million. Where a fault is planted, one shows it. Everybody
    before has one row: which rows are kept of a unit with more depends on the folder.
    """
    base = [(f"{who}{i}", x, g) for i, (who, x, g) in enumerate(crowd(2, 12))]
    new: list[Row] = [("new", 1.0, "a")] * (3 * LIMIT if by_unit else 1)
    bounds = []
    for attempt in range(attempts):
        answers = []
        for name, rows in (("without", base), ("present", [*base, *new])):
            catalog = folder(place / f"{name}{attempt}", rows, by_unit)
            with dpsql.connect(catalog, epsilon=1) as connection:
                connection.set("fresh", "on")
                answers.append(np.array([_numbers(connection, sql) for _ in range(runs)]))
        bounds.append(epsilon_lower_bound(answers[0], answers[1], alpha=ALPHA))
        if bounds[-1] <= 1.0:
            return
    raise AssertionError(bounds)


def _numbers(connection: Connection, sql: str) -> list[float]:
    """The noisy numbers of a statement, whole or not."""
    result = connection.execute(sql).result
    noisy = [errors is not None for errors in result.stddev]
    found = [float(v) for row in result.rows for v, is_ in zip(row, noisy, strict=True) if is_]
    assert found
    return found
