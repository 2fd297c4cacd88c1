"""``COLUMNS(...)`` and ``*`` beside aggregates, at random: columns, names and answers of DuckDB."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest

import dpsql
from tests.oracle.test_ordinary import differ, opened
from tests.support.effort import effort, first_seed
from tests.support.oracle import VALUES, declare_view, mentioned, settle

STATEMENTS = effort(60)
NAMES = list("abcdenwmqr")
NUMBERS = list("aeq")
KEYS = list("abcde")


def asked(rng: random.Random, among: list[str], apart: bool = False) -> str:
    """What ``COLUMNS`` may be given to ask for some columns; ``apart`` for what is no ``*``."""
    some = rng.sample(among, rng.randint(1, len(among)))
    rest = [name for name in NAMES if name not in some]
    forms = [
        str([name.upper() if rng.random() < 0.2 else name for name in some]),
        f"'^[{''.join(some)}]$'",
        f"lambda c: c IN ({', '.join(map(repr, some))})",
        f"lambda k: k ~ '^({'|'.join(some)})$' AND length(k) = 1",
    ]
    if rest and not apart:
        forms += [f"* EXCLUDE ({', '.join(rest)})", f"t.* EXCLUDE ({', '.join(rest)})"]
    return rng.choice(forms)


def items(rng: random.Random) -> list[str]:
    """Items over all columns that are asked for."""
    of_numbers, of_any = asked(rng, NUMBERS), asked(rng, NAMES)
    alias = rng.choice(["", "", " AS m", r" AS 'mean_\0'", r" AS '\0_\0'"])
    numbers = [
        *("AVG(COLUMNS({}))", "-AVG(COLUMNS({})) / 2", "SUM(COLUMNS({})) FILTER (WHERE c)"),
        *("SUM(COLUMNS({0})) / COUNT(COLUMNS({0}))", "SUM(COLUMNS({}) + 1)"),
        "CASE WHEN COUNT(COLUMNS({0})) > 40 THEN SUM(COLUMNS({0})) ELSE -1 END",
    ]
    every = ["COUNT(COLUMNS({}))", "COUNT(*) - COUNT(COLUMNS({}))"]
    found = [rng.choice(numbers).format(of_numbers) + alias, rng.choice(every).format(of_any)]
    if rng.random() < 0.3:
        some = asked(rng, ["b", "c", "e"], apart=True)
        found.append(f"COUNT(*) FILTER (WHERE COLUMNS({some}) IS NULL) AS missing")
    return rng.sample(found, rng.randint(1, len(found)))


def statement(rng: random.Random) -> str:
    """A SELECT with COLUMNS or ``*``, of the table or of a sub-query, with keys or without."""
    where = rng.choice(["", " WHERE b <> 'x'", f" WHERE COLUMNS({asked(rng, ['a', 'e'])}) > 1"])
    if rng.random() < 0.5:
        keys = [rng.choice([*KEYS, "a // 3 AS k"])] if rng.random() < 0.6 else []
        listed = ", ".join([*keys, *items(rng)])
        return f"SELECT {listed} FROM t{where}" + (
            " GROUP BY 1 HAVING COUNT(*) > 0.5" if keys else ""
        )
    some = rng.sample(KEYS, rng.randint(1, 2))
    rest = [name for name in NAMES if name not in some]
    group = rng.choice(["ALL", ", ".join(some)])
    star = rng.choice([f"* EXCLUDE ({', '.join(rest)})", f"* SIMILAR TO '[{''.join(some)}]'"])
    source, shown = "t", rng.choice([star, f"COLUMNS({asked(rng, some)})"])
    if shown.startswith("COLUMNS"):
        group = "ALL"
    if rng.random() < 0.4:
        source, shown = f"(SELECT {', '.join(some)} FROM t{where}) AS s", rng.choice(["*", "s.*"])
        where = ""
    return f"SELECT {shown}, COUNT(*) AS n FROM {source}{where} GROUP BY {group} HAVING n > 0.5"


@pytest.mark.slow
def test_items_over_all_columns_are_those_of_duckdb(tmp_path: Path) -> None:
    rng = random.Random(first_seed(5))
    rows = [tuple(map(rng.choice, VALUES)) for _ in range(400)]
    checked = 0
    with opened(tmp_path, rows) as (database, connection):
        for _ in range(STATEMENTS):
            sql = statement(rng)
            declare_view(database, mentioned(connection, sql))
            try:
                expected = database.execute(sql)
            except duckdb.BinderException:  # the same lambda twice is two to DuckDB
                continue
            wanted = [each[0] for each in expected.description]
            found = connection.execute(sql)
            names = [each[0] for each in found.description or ()]
            assert len(names) == len(wanted), sql
            if "COUNT(*) FILTER" not in sql:
                assert names == wanted, sql
            rows_found = [tuple(map(settle, row)) for row in found.fetchall()]
            rows_wanted = [tuple(map(settle, row)) for row in expected.fetchall()]
            assert not differ(rows_found, rows_wanted), (
                f"{sql}\n{rows_found[:9]}\n{rows_wanted[:9]}"
            )
            checked += 1
    assert checked > STATEMENTS * 0.9


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT AVG(COLUMNS('zz')) FROM t", "E_UNKNOWN_COLUMN"),
        ("SELECT AVG(COLUMNS(['a', 'zz'])) FROM t", "E_UNKNOWN_COLUMN"),
        ("SELECT AVG(COLUMNS(* EXCLUDE (zz))) FROM t", "E_UNKNOWN_COLUMN"),
        ("SELECT COUNT(COLUMNS(u.*)) FROM t", "E_UNKNOWN_TABLE"),
        ("SELECT AVG(COLUMNS(['a'])) + AVG(COLUMNS(['e'])) FROM t", "E_FUNCTION"),
        ("SELECT COALESCE(*COLUMNS(['a', 'e'])) FROM t", "E_FUNCTION"),
        ("SELECT COUNT(COLUMNS(lambda c: c = b)) FROM t", "E_FUNCTION"),
        ("SELECT COUNT(COLUMNS('(')) FROM t", "E_DOMAIN_EVAL"),
        ("SELECT COUNT(COLUMNS(3)) FROM t", "E_FUNCTION"),
        ("SELECT COLUMNS(*) FROM t", "E_NO_AGGREGATE"),
        ("SELECT MIN(COLUMNS(*)) FROM t", "E_AGGREGATE"),
    ],
)
def test_what_no_column_answers_is_refused_where_it_stands(
    tmp_path: Path, sql: str, code: str
) -> None:
    with opened(tmp_path, []) as (_, connection), pytest.raises(dpsql.Error) as caught:
        connection.execute(sql)
    assert caught.value.code == code
    assert caught.value.hint


def test_columns_of_joined_tables_are_shown_once(tmp_path: Path) -> None:
    rows = [tuple(values[k % len(values)] for values in VALUES) for k in range(60)]
    listed = "(VALUES (1, 'one', 5), (3, 'three', 6)) AS v(a, word, size)"
    with opened(tmp_path, rows) as (database, connection):
        for sql in (
            f"SELECT COUNT(COLUMNS('^(a|word|size)$')) FROM t JOIN {listed} USING (a)",
            f"SELECT COUNT(COLUMNS(v.*)) FROM t JOIN {listed} USING (a)",
            f"SELECT v.* EXCLUDE (size), COUNT(*) AS n "
            f"FROM t JOIN {listed} ON t.a = v.a GROUP BY ALL",
            f"SELECT COUNT(COLUMNS(['a'])) FROM t JOIN {listed} ON t.a = v.a",
        ):
            declare_view(database, mentioned(connection, sql))
            expected = database.execute(sql)
            found = connection.execute(sql)
            assert [each[0] for each in found.description or ()] == [
                each[0] for each in expected.description
            ]
            assert not differ(found.fetchall(), expected.fetchall()), sql


def test_unpivot_takes_all_columns_that_are_asked_for(tmp_path: Path) -> None:
    rows = [tuple(values[k % len(values)] for values in VALUES) for k in range(60)]
    counted = "(SELECT c, COUNT(*) AS n, COUNT(b) AS known FROM t GROUP BY c)"
    with opened(tmp_path, rows) as (database, connection):
        declare_view(database, ["b", "c"])
        for tail in (
            "ON COLUMNS(* EXCLUDE (c)) INTO NAME what VALUE n",
            "ON * EXCLUDE c",
            "ON COLUMNS('n')",
            "ON COLUMNS(['n', 'KNOWN'])",
        ):
            sql = f"UNPIVOT {counted} {tail}"
            expected, found = database.execute(sql), connection.execute(sql)
            assert not differ(found.fetchall(), expected.fetchall()), sql
        with pytest.raises(duckdb.Error), pytest.raises(dpsql.Error):
            database.execute(f"UNPIVOT {counted} ON COLUMNS('zz')")
        with pytest.raises(dpsql.Error, match="no column"):
            connection.execute(f"UNPIVOT {counted} ON COLUMNS('zz')")
