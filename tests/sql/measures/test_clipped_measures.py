"""Expressions that clip a measure: read as one with other bounds, they have the values of SQL."""

from __future__ import annotations

import random

import duckdb
from sqlglot import parse_one

from dpsql.sql.measures.clipped_measures import as_case, read_clipped

LOW, HIGH = -3, 9


def drawn(rng: random.Random, depth: int) -> str:
    """An expression over ``x`` that may clip it."""
    inner = "x" if depth == 0 else f"({drawn(rng, depth - 1)})"
    a, b = rng.randint(-4, 10), rng.choice([-2, -1, 2, 4])
    forms = ["{i} + {a}", "{a} - {i}", "{b} * {i}", "{i} / {b}", "-{i}", "LEAST({i}, {a})"]
    forms += ["GREATEST({a}, {i})", "LEAST({i}, {a}, 5)", "GREATEST({i}, 1, {a})"]
    for op in ("<", "<=", ">", ">="):
        forms += [f"CASE WHEN {{i}} {op} {{a}} THEN {{a}} ELSE {{i}} END"]
        forms += [f"CASE WHEN {{a}} {op} {{i}} THEN {{i}} ELSE {{a}} END"]
        forms += [f"CASE WHEN {{i}} {op} {{a}} THEN {{i}} ELSE {{a}} END"]
        forms += [f"CASE WHEN {{i}} {op} {{a}} THEN {{b}} ELSE {{i}} END"]
        forms += [f"CASE WHEN x {op} {{a}} THEN {{a}} ELSE {{i}} END"]
    return rng.choice(forms).format(i=inner, a=f"({a})", b=f"({b})")


def test_what_is_read_has_the_values_that_duckdb_gives_it() -> None:
    rng, read = random.Random(5), 0
    values = [None, *(LOW + k / 4 for k in range(4 * (HIGH - LOW) + 1))]
    for _ in range(400):
        sql = drawn(rng, rng.randint(0, 2))
        found = read_clipped(parse_one(sql, read="duckdb"), lambda _: (LOW, HIGH))
        if found is None:
            continue
        read += 1
        listed = ", ".join(f"({'NULL' if v is None else v}::DOUBLE)" for v in values)
        rows = duckdb.execute(f"SELECT {sql} FROM (VALUES {listed}) v(x)").fetchall()
        expected = [None if v is None else round(float(v), 9) for (v,) in rows]
        ours = [found.null if v is None else found.at(v) for v in values]
        assert [None if v is None else round(v, 9) for v in ours] == expected, sql
        assert LOW <= found.low < found.high <= HIGH, sql
    assert read > 200


def test_tests_of_bins_fall_between_them() -> None:
    for sql, expected in [
        ("LEAST(x, 5)", "CASE WHEN x < 5.0 THEN x ELSE 5.0 END"),
        ("GREATEST(x, 5)", "CASE WHEN x >= 5.0 THEN x ELSE 5.0 END"),
        ("CASE WHEN x > 5 THEN 5 ELSE x END", "CASE WHEN x >= 5 THEN 5 ELSE x END"),
        ("CASE WHEN x <= 5 THEN x ELSE 5 END", "CASE WHEN x < 5 THEN x ELSE 5 END"),
        ("CASE WHEN x > 5 THEN 4 ELSE x END", "CASE WHEN x > 5 THEN 4 ELSE x END"),
    ]:
        assert as_case(parse_one(sql, read="duckdb")).sql("duckdb") == expected
