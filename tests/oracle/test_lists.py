"""Lists of conditions on several columns: public rows joined by ranges, keys and texts at once."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import dpsql
from dpsql.sql.cells.signed_products import SignedProducts
from dpsql.sql.query import Expression
from dpsql.workload.term import Pattern
from tests.support.differences import agree, answerable, differences
from tests.support.effort import effort
from tests.support.seam import zero_noise
from tests.support.tables import Tables, World, open_tables

STATEMENTS = effort(12)
CATALOG = """
[budget]
epsilon = 100000
delta = 1e-6

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
age = { type = "integer", domain = [0, 11] }
sex = { type = "text", domain = ["F", "M"], null = true }
edu = { type = "integer", domain = [0, 3] }
w = { type = "number", bins = [0, 1, 2.5, 5] }
pay = { type = "number", bounds = [0, 100] }

[table.codes]
source = "codes.parquet"
public = true

[table.codes.column]
edu = { type = "integer" }
sex = { type = "text" }
name = { type = "text" }
size = { type = "number" }

[table.visits]
source = "visits.parquet"
privacy_unit = { column = "id", max_rows = 3 }

[table.visits.column]
ward = { type = "text", domain = ["A", "B", "C"] }
age = { type = "integer", domain = [0, 11] }
"""
CODES = [(0, "F", "x", 1.0), (1, "M", "y", 2.5), (2, "F", "x", None), (9, "M", "z", 1.0)]
DATA: Tables = {
    "t": "SELECT (hash(i) % 12)::INT AS age, CASE hash(i, 1) % 7 WHEN 0 THEN NULL WHEN 1 THEN 'M'"
    " WHEN 2 THEN 'M' ELSE 'F' END AS sex, (hash(i, 2) % 4)::INT AS edu,"
    " [0.0, 1.0, 2.5][(hash(i, 3) % 3)::INT + 1] AS w, (hash(i, 4) % 101)::DOUBLE AS pay"
    " FROM range(2500) r(i)",
    "codes": ("edu BIGINT, sex VARCHAR, name VARCHAR, size DOUBLE", CODES),
    "visits": "SELECT i // 2 AS id, ['A', 'B', 'C'][(i % 3)::INT + 1] AS ward,"
    " (i % 12)::INT AS age FROM range(300) r(i)",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with opened(tmp_path_factory.mktemp("lists")) as world:
        yield world


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    with zero_noise(), open_tables(folder, CATALOG, DATA) as (connection, database):
        connection.execute("SET mechanism = identity")
        yield connection, database


class Writer:
    """Draws joins with lists, and what is grouped and counted over them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def pick(self, *texts: str) -> str:
        return self.rng.choice(texts)

    def listed(self) -> str:
        rows = []
        for _ in range(self.rng.choice([1, 2, 4, 7])):
            lo = self.rng.randrange(-1, 12)
            text = self.pick("'F'", "'M'", "'M'", "'q'", "NULL")
            edge = self.pick("0", "1", "2.5")
            rows.append(f"({lo}, {lo + self.rng.randrange(8)}, {text}, {edge})")
        return f"(VALUES {', '.join(rows)}) AS v(lo, hi, s, edge)"

    def joined(self) -> tuple[str, list[str], list[str]]:
        """FROM, the columns of the list, and numbers among them."""
        way = self.rng.randrange(4)
        left = self.pick("JOIN", "JOIN", "LEFT JOIN")
        if way == 0:
            on = "t.edu = codes.edu AND t.sex = codes.sex"
            on = self.pick(on, f"{on} AND age > size", "t.edu <= codes.edu AND t.sex = codes.sex")
            return f"t {left} codes ON {on}", ["codes.name", "codes.edu"], ["size", "codes.edu"]
        if way == 1:
            return "t JOIN codes USING (edu, sex)", ["codes.name", "size"], ["size"]
        tests = ["age BETWEEN v.lo AND v.hi", "age < hi", "age >= lo", "age IN (lo, hi)"]
        more = ["sex = v.s", "edu <= v.hi - 4", "w >= edge", "w < v.edge", "coalesce(sex, 'q') = s"]
        both = [self.rng.choice(tests), *self.rng.sample(more, self.rng.choice([1, 2]))]
        keys, numbers = ["v.lo", "v.s", "lo + hi", "s IS NULL", "edge"], ["lo", "hi - lo", "edge"]
        if left == "JOIN" and self.rng.random() < 0.3:
            return f"t, {self.listed()} WHERE {' AND '.join(both)}", keys, numbers
        if left == "JOIN" and self.rng.random() < 0.3:
            both.append("age + edu > lo")
        return f"t {left} {self.listed()} ON {' AND '.join(both)}", keys, numbers

    def statement(self) -> str:
        source, columns, numbers = self.joined()
        keys = self.rng.sample(columns, self.rng.choice([0, 1, 2]))
        keys += self.rng.sample(["age", "t.edu", "t.sex", "age // 4"], self.rng.choice([0, 0, 1]))
        number = self.rng.choice(numbers)
        cells = [
            *("COUNT(*)", "SUM(age)", f"COUNT({number})", "COUNT(*) FILTER (WHERE age > 5)"),
            *(f"COUNT(*) FILTER (WHERE {number} > 2)", "COUNT(t.sex)"),
        ]
        if "LEFT" not in source:
            cells += [f"SUM({number})", f"SUM(age * {number})", f"AVG({number} + age)", "AVG(pay)"]
        chosen = self.rng.sample(cells, 2)
        where = self.pick("", "", "age > 2", "t.edu IN (1, 2)", "t.sex = 'F' OR age < 4")
        if where:
            where = (" AND " if "WHERE" in source else " WHERE ") + f"({where})"
        group = f" GROUP BY {', '.join(keys)} HAVING COUNT(*) > 0" if keys else ""
        return f"SELECT {', '.join([*keys, *chosen])} FROM {source}{where}{group}"


def settled(row: Sequence[Any]) -> tuple[str, ...]:
    """A row as texts that can be sorted; an empty sum is 0 here, and measures lie on a grid."""
    out = []
    for value in row:
        plain = float(value) if isinstance(value, int | float | Decimal) else value
        number = isinstance(plain, float) and not isinstance(value, bool)
        out.append(f"{plain:.2f}".replace("-0.00", "0.00") if number else str(value))
    return tuple(out)


def alike(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    one, two = sorted(map(settled, found)), sorted(map(settled, expected))
    if len(one) != len(two):
        return False
    pairs = [pair for a, b in zip(one, two, strict=True) for pair in zip(a, b, strict=True)]
    return all(a == b or _close(a, b) for a, b in pairs)


def _close(a: str, b: str) -> bool:
    if b == "None":
        return a == "0.00"
    try:
        return math.isclose(float(a), float(b), rel_tol=1e-3, abs_tol=0.02)
    except ValueError:
        return False


def statements(count: int) -> Iterator[str]:
    writer = Writer(random.Random(17))
    return itertools.islice(iter(writer.statement, ""), count)


def test_answers_are_those_of_the_database(world: World) -> None:
    agree(world, statements(STATEMENTS), alike)


ABSENT = ("NULL", "(NULL)", "CAST(NULL AS VARCHAR)")
MEMBERS = {
    "age": ("1", "3", "11", "99", "(7)", "NULLIF(1, 1)", *ABSENT[:2]),
    "sex": ("'F'", "'M'", "NULLIF('M', 'M')", *ABSENT),
}


def memberships(count: int) -> Iterator[str]:
    """Conditions on what lists contain, some of them beside a NULL."""
    rng = random.Random(18)
    for _ in range(count):
        name = rng.choice(list(MEMBERS))
        listed = ", ".join(rng.choices(MEMBERS[name], k=rng.choice([1, 1, 2, 3])))
        form = rng.choice(
            ["LIST_CONTAINS([{}], {})", "ARRAY_CONTAINS([{}], {})", "{1} = ANY([{0}])"]
        )
        test = form.format(listed, name)
        test = rng.choice(["{}", "NOT {}", "({}) IS NULL", "({}) IS NOT TRUE"]).format(test)
        yield f"SELECT COUNT(*) FROM t WHERE {test}"


def test_what_lists_contain_is_what_the_database_says(world: World) -> None:
    agree(world, answerable(world[1], memberships(STATEMENTS)), alike)


V = "(VALUES (1, 4, 'F'), (3, 9, 'M'), (3, 9, 'F')) AS v(lo, hi, s)"
ON = "age BETWEEN v.lo AND v.hi AND sex = v.s"
LISTED = "age BETWEEN v.lo AND v.hi AND sex <> v.s"
"""Of no column alone: public rows are a list."""


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT s, COUNT(*) AS n FROM t JOIN {V} ON {ON} GROUP BY s ORDER BY n DESC LIMIT 1",
        f"SELECT s, SUM(COUNT(*)) OVER (ORDER BY s) FROM t JOIN {V} ON {ON} GROUP BY s",
        f"SELECT s, edu, COUNT(*) FROM t JOIN {V} ON {ON} GROUP BY ROLLUP (s, edu)",
        f"SELECT lo, MEDIAN(edu), MODE(age) FROM t JOIN {V} ON {ON} GROUP BY lo",
        f"SELECT MEDIAN(v.lo) FROM t JOIN {V} ON {ON}",
        f"SELECT age - v.lo, COUNT(*) FROM t JOIN {V} ON {ON} GROUP BY 1",
        f"WITH v(lo, hi, s) AS (VALUES (1, 4, 'F')) SELECT COUNT(*) FROM t JOIN v ON {ON}",
        f"WITH v AS (SELECT edu AS lo, edu + 3 AS hi, sex AS s FROM codes) SELECT s, COUNT(*)"
        f" FROM t JOIN v ON {ON} GROUP BY s",
        f"SELECT COUNT(*) FROM (SELECT age, sex FROM t WHERE edu = 1) AS q JOIN {V} ON {ON}",
        f"SELECT s, n FROM (SELECT v.s, COUNT(*) AS n FROM t JOIN {V} ON {ON} GROUP BY v.s) AS q",
        f"SELECT v.s, b.k, COUNT(*) FROM t JOIN {V} ON {ON} JOIN (VALUES (1, 'F', 5), (2, 'M', 6))"
        " AS b(e, x, k) ON edu = b.e AND sex = b.x GROUP BY v.s, b.k",
        f"SELECT v.s, b.k, COUNT(*) FROM t JOIN {V} ON {ON} JOIN (VALUES (1, 5), (2, 6)) AS b(e, k)"
        " ON edu >= b.e GROUP BY v.s, b.k",
        "SELECT v.lo, COUNT(DISTINCT id) FROM visits JOIN (VALUES (1, 4, 'A'), (3, 9, 'B'))"
        " AS v(lo, hi, s) ON age BETWEEN v.lo AND v.hi AND ward = v.s GROUP BY v.lo",
    ],
)
def test_what_is_done_with_them(world: World, sql: str) -> None:
    connection, database = world
    found, expected = connection.execute(sql).fetchall(), database.execute(sql).fetchall()
    assert alike(found, expected), (found, expected)


@pytest.mark.parametrize(
    ("sql", "code", "place"),
    [
        (f"SELECT age - v.lo, COUNT(*) FROM t JOIN {V} ON {LISTED} GROUP BY 1",
         "E_GROUP_BY", "age -"),
        (f"SELECT MEDIAN(v.lo) FROM t JOIN {V} ON {LISTED}", "E_JOIN", "v.lo"),
        (
            f"SELECT COUNT(*) FROM t LEFT JOIN {V} ON age > lo AND sex = s AND age + edu > hi",
            "E_JOIN",
            "age > lo",
        ),
        (f"SELECT COUNT(*) FROM t JOIN {V} ON w > v.lo AND sex = v.s", "E_BIN_EDGE", "w"),
        (f"SELECT COUNT(*) FROM t FULL JOIN {V} ON {ON}", "E_JOIN", ""),
        (f"SELECT COUNT(DISTINCT id) FROM visits JOIN {V} ON age > lo AND ward <> s",
         "E_AGGREGATE", "1, 4"),
    ],
)  # fmt: skip
def test_what_does_not_work_is_refused_in_place(
    world: World, sql: str, code: str, place: str
) -> None:
    connection, _ = world
    before = connection.budget
    with pytest.raises(dpsql.Error) as caught:
        connection.execute(sql)
    error = caught.value
    assert error.code == code
    assert error.hint
    assert error.span is not None
    assert place in error.span.text[error.span.start :]
    assert connection.budget == before


def test_too_many_rows_are_refused(world: World) -> None:
    rows = ", ".join(f"({i % 9}, 'F')" for i in range(150))
    lists = " ".join(
        f"JOIN (VALUES {rows}) AS {n}(a, s) ON age > {n}.a AND sex <= {n}.s" for n in "xy"
    )
    with pytest.raises(dpsql.ProgrammingError, match="E_TOO_LARGE"):
        world[0].execute(f"SELECT COUNT(*) FROM t {lists}")


def test_rectangles_are_planned_as_such(tmp_path: Path) -> None:
    """The forecast is that of the same counts, each written as a statement of its own."""
    with open_tables(tmp_path, CATALOG, DATA) as (connection, _):
        joined = connection.explain(f"SELECT lo, s, COUNT(*) FROM t JOIN {V} ON {ON} GROUP BY ALL")
        apart = connection.explain(
            "SELECT "
            + ", ".join(
                f"COUNT(*) FILTER (WHERE age BETWEEN {lo} AND {hi} AND sex = '{s}') AS c{k}"
                for k, (lo, hi, s) in enumerate([(1, 4, "F"), (3, 9, "M"), (3, 9, "F")])
            )
            + " FROM t"
        )
        assert joined.rmse == pytest.approx(apart.rmse, rel=0.02)


def test_lists_in_scripts_and_parameters(world: World) -> None:
    connection, database = world
    cursor = connection.cursor()
    sql = "SELECT s, COUNT(*) FROM t JOIN (VALUES (?, ?)) AS v(lo, s) ON age > lo AND sex = s"
    sql += " GROUP BY 1"
    cursor.execute(sql, [3, "F"])
    assert cursor.fetchall() == database.execute(sql, [3, "F"]).fetchall()
    many = connection.executescript(
        f"SELECT COUNT(*) FROM t JOIN {V} ON {ON}; SELECT COUNT(*) FROM t"
    )
    assert (
        many.fetchall() == database.execute(f"SELECT COUNT(*) FROM t JOIN {V} ON {ON}").fetchall()
    )


def _first_row(self: SignedProducts, found: Any, expression: Expression, row: int) -> Any:
    return (
        found if self.listing is None or not expression.listed else found[:: len(self.listing.rows)]
    )


def _nobody(self: SignedProducts, listing: object) -> Pattern:
    return Pattern({"age": np.zeros(12, dtype=np.int64)}, np.zeros(1, dtype=np.bool_))


FAULTS = {
    "conditions of the first row": (
        "dpsql.sql.cells.signed_products.SignedProducts.of_row",
        _first_row,
    ),
    "rows without a match are lost": (
        "dpsql.sql.cells.signed_products.SignedProducts._unmatched",
        _nobody,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, fault: str) -> None:
    target, instead = FAULTS[fault]
    with mock.patch(target, instead), opened(tmp_path) as world:
        assert any(differences(world, statements(25), alike))
