"""Differential oracle of names and scope: what DuckDB takes a name for, dpsql takes it for.

Random statements in which aliases hide columns, positions follow ``*``, windows have names and
public rows are joined on text or on bins. Every group has rows, and ORDER BY ends in all positions,
so that answers without noise are DuckDB's row by row.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from sqlglot import exp

from dpsql.catalog.domain import Bins
from dpsql.sql.measures.sums import _Amounts
from dpsql.sql.query import Output
from dpsql.sql.shell.expressions import Expressions
from tests.oracle.test_shapes import settle
from tests.support.differences import Rows, agree, answerable, differences
from tests.support.effort import effort, first_seed
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

pytestmark = pytest.mark.slow

STATEMENTS = effort(25)
SEED = first_seed(19)

CATALOG = """
[budget]
epsilon = 1000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
a = { type = "integer", domain = [0, 3] }
b = { type = "text", domain = ["x", "y"], null = true }
c = { type = "boolean", domain = [false, true] }
w = { type = "number", bins = [0, 1, 2.5, 5] }

[table.codes]
source = "codes.parquet"
public = true

[table.codes.column]
code = { type = "text" }
label = { type = "text" }
size = { type = "integer" }
edge = { type = "number" }
"""
CODES = [("x", "m", 1, 0.0), ("y", "f", 2, 1.0), ("z", "m", 4, 2.5), ("x", "Europe", 8, 1.0)]
LISTED = "(VALUES ('x', 'm', 3), ('y', 'low', 5), ('q', 'y', 7)) AS v(code, label, size)"
ALIASES = ("a", "b", "c", "k", "x", "label", "size", "total")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with opened(tmp_path_factory.mktemp("names")) as world:
        yield world


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    """A connection without noise and the database."""
    rng = random.Random(3)
    cells = itertools.product(range(4), ("x", "y", None), (False, True), (0.0, 1.0, 2.5))
    rows = [cell for cell in cells for _ in range(rng.randrange(1, 6))]
    tables: Tables = {
        "t": ("a BIGINT, b VARCHAR, c BOOLEAN, w DOUBLE", rows),
        "codes": ("code VARCHAR, label VARCHAR, size BIGINT, edge DOUBLE", CODES),
    }
    with zero_noise(), open_tables(folder, CATALOG, tables) as (connection, database):
        connection.execute("SET mechanism = identity")
        yield connection, database


class Writer:
    """Draws statements whose names may mean several things."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def pick(self, *texts: str) -> str:
        return self.rng.choice(texts)

    def statement(self) -> str:
        ways: list[Callable[[], str]] = [self.measured, self.joined, self.joined, self.shell]
        return self.rng.choice(ways)()

    def aliased(self, items: list[str]) -> tuple[list[str], list[str]]:
        """Items under names that may be those of columns, or under none, and the names."""
        names = self.rng.sample(ALIASES, len(items))
        shown = [
            f"{item} AS {name}" if self.rng.random() < 0.7 else item
            for item, name in zip(items, names, strict=True)
        ]
        used = [name for item, name in zip(shown, names, strict=True) if " AS " + name in item]
        return shown, used

    def order(self, count: int, names: list[str], others: list[str]) -> str:
        """ORDER BY: names, positions and expressions, then every position."""
        listed = [str(i + 1) for i in range(count)]
        first = [*names, *self.rng.sample(listed, min(2, count)), *others]
        chosen = self.rng.sample(first, min(len(first), self.rng.choice([1, 1, 2])))
        ways = [f"{each}{self.pick('', ' DESC', ' NULLS FIRST')}" for each in chosen]
        return " ORDER BY " + ", ".join([*ways, *listed])

    def measured(self) -> str:
        """A SELECT that is measured."""
        keys = self.rng.sample(["a", "b", "c", "-a", "a // 2", "t.a", "upper(b)", "w"], 2)
        return self.grouped("t", keys, ["COUNT(*)", "SUM(a)", "COUNT(b)", "-COUNT(*)"])

    def joined(self) -> str:
        """A SELECT over private rows that public rows are joined to."""
        on, alias = self.rng.choice(
            [
                ("t JOIN codes ON b = code", "codes"),
                ("codes JOIN t ON t.b = codes.code", "codes"),
                ("t, codes WHERE b = code", "codes"),
                (f"t JOIN {LISTED} ON v.code = b", "v"),
                (f"t JOIN {LISTED} ON b = code AND label <> 'low'", "v"),
                ("t JOIN codes ON w >= edge", "codes"),
                ("t JOIN codes ON w < edge AND label <> 'f'", "codes"),
                ("t LEFT JOIN codes ON b = code AND size < 3", "codes"),
            ]
        )
        keys = self.rng.sample(["a", "label", f"{alias}.label", "size", "size + 1", "b", "c"], 2)
        cells = ["COUNT(*)", "SUM(size)", "COUNT(label)", "SUM(size + 1)", "AVG(size)", "SUM(a)"]
        if "LEFT" in on:  # the sum of an empty group is 0
            cells = ["COUNT(*)", "COUNT(label)"]
        cells += [f"COUNT(*) FILTER (WHERE {self.test(alias)})"]
        return self.grouped(on, keys, cells, alias)

    def test(self, alias: str = "") -> str:
        """A condition on columns of the private table or of public rows."""
        if not alias:
            return self.pick("a > 0", "b = 'x'", "b IN (SELECT code FROM codes)", "c OR a = 1")
        return self.pick(
            *("label = 'm'", f"{alias}.label <> 'f'", "label IN ('m', 'Europe')", "'m' = label"),
            *("label LIKE 'm%'", "size > 1", "label IS NOT NULL", "size BETWEEN 2 AND 5"),
            *(f"upper({alias}.label) = 'M'", "code = 'x'", "label NOT IN ('f', 'low')", "a > 1"),
        )

    def grouped(self, source: str, keys: list[str], cells: list[str], alias: str = "") -> str:
        chosen = self.rng.sample(cells, self.rng.choice([1, 2]))
        key = keys[0]
        windows = [f"RANK() OVER (ORDER BY COUNT(*), {', '.join(keys)})"]
        windows += [
            f"SUM(COUNT(*)) OVER (ORDER BY {key})",
            f"DENSE_RANK() OVER (ORDER BY {', '.join(keys)})",
        ]
        if self.rng.random() < 0.4:
            chosen.append(self.rng.choice(windows))
        items = [*keys, *chosen]
        shown, names = self.aliased(items)
        way = self.rng.randrange(3)
        group = ", ".join(["1", "2"] if way == 0 else keys)
        if way == 1:
            group = ", ".join(n if f" AS {n}" in s else k for k, s, n in self.named(keys, shown))
        where = self.test(alias) if self.rng.random() < 0.5 else ""
        if where:
            where = (" AND " if "WHERE" in source else " WHERE ") + where
        having = self.pick("", "", " HAVING COUNT(*) > 3", f" HAVING {key} IS NOT NULL")
        having = " HAVING COUNT(*) > 0" if where else having  # there are no groups without rows
        others = [*keys, f"-{cells[0]}", "COUNT(*)"]
        order = self.order(len(items), names, others)
        limit = self.pick("", "", " LIMIT 5", " LIMIT 4 OFFSET 1")
        return (
            f"SELECT {', '.join(shown)} FROM {source}{where} GROUP BY {group}{having}{order}{limit}"
        )

    def named(self, keys: list[str], shown: list[str]) -> list[tuple[str, str, str]]:
        return [
            (key, item, item.rpartition(" AS ")[2]) for key, item in zip(keys, shown, strict=False)
        ]

    def shell(self) -> str:
        """A SELECT over measured tables and public ones."""
        inner = "(SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b) AS q"
        other = "(SELECT a AS k, COUNT(*) AS m FROM t GROUP BY a) AS r"
        source, width = self.rng.choice(
            [
                (inner, 3),
                (f"{inner} JOIN codes ON b = code", 7),
                (f"{inner} JOIN {other} ON a = k", 5),
                (f"{inner} JOIN (SELECT a, SUM(a) AS s FROM t GROUP BY a) AS r USING (a)", 4),
            ]
        )
        star = self.pick("*", "q.*", "")
        count = {"*": width, "q.*": 3, "": 0}[star]
        exprs = ["n + 1", "-a", "upper(b)", "n // 2", "-n", "q.a"]
        windows = ["RANK() OVER (ORDER BY n, a, b)", "SUM(n) OVER (ORDER BY a)", "n * 2"]
        items = [*self.rng.sample(exprs, 2), self.rng.choice(windows)]
        shown, names = self.aliased(items)
        if star:
            shown.insert(self.rng.choice([0, len(shown), 1]), star)
        if " USING" in source and star == "q.*":
            names = []
        where = self.pick("", " WHERE n > 4", " WHERE b = 'x'", " WHERE q.a > 0")
        order = self.order(count + len(items), names, ["n", "a + 0", "q.a", "-n"])
        limit = self.pick("", " LIMIT 6", " LIMIT 3 OFFSET 2")
        return f"SELECT {', '.join(shown)} FROM {source}{where}{order}{limit}"


def statements(world: World, count: int) -> Iterator[str]:
    """The first so many that DuckDB answers."""
    writer = Writer(random.Random(SEED))
    return itertools.islice(answerable(world[1], iter(writer.statement, "")), count)


def alike(found: Rows, expected: Rows) -> bool:
    return [tuple(map(settle, row)) for row in found] == [
        tuple(map(settle, row)) for row in expected
    ]


def test_names_mean_what_they_mean_to_duckdb(world: World) -> None:
    agree(world, statements(world, STATEMENTS), alike)


def _any_literal(tree: exp.Expr, is_public: object) -> list[exp.Expr]:
    return [each for each in tree.find_all(exp.Literal) if isinstance(each.parent, exp.EQ)]


def _written_item(top: Expressions, items: Sequence[Output], node: exp.Expr) -> Output:
    listed = top.select.expressions
    place = min(int(node.name), len(listed)) - 1
    names = [column.name for column in items]
    name = listed[place].alias_or_name
    return items[names.index(name) if name in names else 0]


def _by_carrier(amounts: _Amounts, name: str, node: exp.Expr) -> bool:
    return isinstance(amounts.scope.table.columns[name].domain, Bins)


FAULTS = {
    "columns before aliases": ("dpsql.sql.shell.expressions.find_alias", None),
    "public columns taken for private ones": ("dpsql.sql.cells.cell_edges._compared", _any_literal),
    "positions before the star": (
        "dpsql.sql.shell.expressions.Expressions.column_at",
        _written_item,
    ),
    "public columns summed as bins": ("dpsql.sql.measures.sums._Amounts.is_measure", _by_carrier),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, fault: str) -> None:
    target, instead = FAULTS[fault]
    with opened(tmp_path) as world, mock.patch(target, instead or mock.Mock(return_value=None)):
        assert any(differences(world, statements(world, 60), alike))
