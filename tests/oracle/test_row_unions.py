"""UNION ALL of rows each of which is a privacy unit, at random: answers are DuckDB's own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import dpsql
from tests.oracle.test_ordinary import TESTS, differ, opened
from tests.support.effort import effort, first_seed
from tests.support.oracle import VALUES, declare_view, mentioned, open_world, settle

STATEMENTS = effort(20)
SAME = ["a", "b", "c", "d", "e", "a // 3", "upper(b)", "month(d)"]
DIFFERENT = [
    ["a", "e", "a + 1", "length(b)", "4", "NULL", "abs(e)"],
    ["b", "upper(b)", "'all'", "CASE WHEN c THEN 'yes' ELSE 'no' END", "CAST(a AS VARCHAR)"],
    ["c", "a > 3", "TRUE", "e IS NULL", "NULL"],
    ["d", "d", "DATE '2024-01-01'", "CAST(NULL AS DATE)"],
]
MEASURED = ["q", "a", "q + 1", "2 * q", "a * e", "7"]
WHERE = [*TESTS, "a + e > 3", "c OR a > 5", "TRUE"]


def part(items: list[str], rng: random.Random) -> str:
    """One SELECT of a union."""
    where = f" WHERE {rng.choice(WHERE)}" if rng.random() < 0.7 else ""
    sql = f"SELECT {', '.join(items)} FROM t{where}"
    source = rng.random()
    if source < 0.15:
        inner = f"FROM t AS u{where.replace('t.a', 'u.a')}"
        return f"SELECT * FROM (SELECT {', '.join(items)} {inner}) AS s"
    return f"({sql})" if source < 0.25 else sql


def statement(rng: random.Random) -> str:
    """Groups of the rows of a union."""
    count = rng.randint(2, 3)
    same, different = rng.choice(SAME), rng.choice(DIFFERENT)
    parts = []
    for number in range(count):
        values = [f"'part {number}'", same, rng.choice(different), rng.choice(MEASURED)]
        names = ["AS p", "AS s", "AS k", "AS m"] if number == 0 or rng.random() < 0.3 else [""] * 4
        parts.append(
            part([" ".join(each).strip() for each in zip(values, names, strict=True)], rng)
        )
    union = " UNION ALL ".join(parts)
    keys = rng.choice([[], ["p"], ["s"], ["k"], ["p", "k"], ["k", "s"]])
    shown = rng.sample(
        [
            *("COUNT(*) AS n", "SUM(m) AS sum", "AVG(m) AS mean", "COUNT(m) AS known"),
            *("COUNT(*) FILTER (WHERE p = 'part 1') AS one", "COUNT(k) AS told"),
        ],
        2,
    )
    where = rng.choice(["", "", " WHERE p <> 'part 0'", " WHERE k IS NOT NULL", " WHERE s IS NULL"])
    group = f" GROUP BY {', '.join(keys)} HAVING COUNT(*) > 0.5" if keys else ""
    if rng.random() < 0.3:
        return f"WITH u AS ({union}) SELECT {', '.join([*keys, *shown])} FROM u{where}{group}"
    return f"SELECT {', '.join([*keys, *shown])} FROM ({union}) AS u{where}{group}"


@pytest.mark.slow
def test_unions_of_rows_are_answered_as_by_duckdb(tmp_path: Path) -> None:
    rng = random.Random(first_seed(3))
    rows = [tuple(map(rng.choice, VALUES)) for _ in range(300)]
    checked = 0
    with opened(tmp_path, rows) as (database, connection):
        for _ in range(STATEMENTS):
            sql = statement(rng)
            declare_view(database, mentioned(connection, sql))
            expected = [tuple(map(settle, row)) for row in database.execute(sql).fetchall()]
            found = [tuple(map(settle, row)) for row in connection.execute(sql).fetchall()]
            assert not differ(found, expected), f"{sql}\n{found[:9]}\n{expected[:9]}"
            checked += 1
    assert checked == STATEMENTS


def test_unpivot_of_rows_is_answered_as_by_duckdb(tmp_path: Path) -> None:
    rng = random.Random(4)
    rows = [tuple(map(rng.choice, VALUES)) for _ in range(200)]
    source = "(UNPIVOT (SELECT a, e, b, c FROM t) ON a, e INTO NAME which VALUE v)"
    with opened(tmp_path, rows) as (database, connection):
        declare_view(database, "abce")
        for shown in (
            "which, AVG(v) AS mean, COUNT(*) AS n",
            "which, v, COUNT(*) AS n",
            "which, c, SUM(v) AS sum",
            "b, COUNT(*) FILTER (WHERE v > 2) AS n",
        ):
            keys = ", ".join(shown.split(", ")[: 1 + ("v," in shown or "c," in shown)])
            sql = f"SELECT {shown} FROM {source} GROUP BY {keys} HAVING COUNT(*) > 0.5"
            expected = [tuple(map(settle, row)) for row in database.execute(sql).fetchall()]
            found = [tuple(map(settle, row)) for row in connection.execute(sql).fetchall()]
            assert not differ(found, expected), f"{sql}\n{found}\n{expected}"


def test_a_row_adds_to_every_part_that_has_it(tmp_path: Path) -> None:
    """Noise follows from how often a row counts: twice of two parts, once of parts that it is in
    one of, and thrice where a third part has every row."""
    once, twice = "SELECT a FROM t", "SELECT a FROM t UNION ALL SELECT a FROM t"
    apart = "SELECT a FROM t WHERE c UNION ALL SELECT a FROM t WHERE NOT c"
    thrice = f"{twice} UNION ALL SELECT e FROM t"
    with open_world(tmp_path, []) as (connection, _):
        connection.execute("SET noise = laplace")
        connection.execute("SET mechanism = identity")

        def error(union: str) -> float:
            result = connection.execute(f"SELECT COUNT(*) AS n FROM ({union}) AS u").result
            (column,) = result.stddev
            assert column is not None
            assert column[0] is not None
            return float(column[0])

        single = error(once)
        assert error(apart) == pytest.approx(single)
        assert error(twice) == pytest.approx(2 * single, rel=1e-3)
        assert error(thrice) == pytest.approx(3 * single, rel=1e-3)


@pytest.mark.parametrize(
    "union",
    [
        "SELECT a FROM t UNION ALL SELECT b FROM t",
        "SELECT a FROM t UNION ALL SELECT a, b FROM t",
        "SELECT a FROM t UNION ALL SELECT age FROM adult",
        "SELECT a FROM t UNION ALL BY NAME SELECT a FROM t",
        "SELECT a, b, e, a, e FROM t UNION ALL SELECT e, upper(b), a, e, a FROM t UNION ALL "
        "SELECT -a, lower(b), -e, -a, -e FROM t",
    ],
)
def test_what_no_union_has_is_refused(tmp_path: Path, union: str) -> None:
    with open_world(tmp_path, []) as (connection, _), pytest.raises(dpsql.Error) as caught:
        connection.execute(f"SELECT COUNT(*) FROM ({union}) AS u")
    assert caught.value.code == "E_SET_OP"
    assert caught.value.hint
