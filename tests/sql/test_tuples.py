"""Comparisons of tuples within each other: DuckDB's own results, in as much text as they have."""

from __future__ import annotations

import itertools
import random

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from dpsql.sql.rewrites.sugar import plain
from dpsql.sql.rewrites.tree_parts import NodeLimit, size_of
from tests.support.effort import effort, first_seed

COMPARED = ("=", "<>", "<", "<=", ">", ">=")


def drawn(rng: random.Random, depth: int) -> str:
    """A truth value: a column, a constant, or tuples of such that are compared."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(("p", "q", "r", "TRUE", "FALSE"))
    width = rng.randint(2, 3)

    def row() -> str:
        return f"({', '.join(drawn(rng, depth - 1) for _ in range(width))})"

    if rng.random() < 0.2:
        return f"({row()} {rng.choice(('IN', 'NOT IN'))} ({row()}, {row()}))"
    return f"({row()} {rng.choice(COMPARED)} {row()})"


def written_out(sql: str) -> exp.Query:
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    assert isinstance(tree, exp.Query)
    return plain(tree, NodeLimit(10_000))


def test_tuples_within_tuples_are_compared_as_duckdb_compares_them() -> None:
    rng = random.Random(first_seed(7))
    worlds = ", ".join(f"({p}, {q}, {r})" for p, q, r in itertools.product(*3 * [VALUES]))
    start = f"FROM (VALUES {worlds}) t(p, q, r)"
    for _ in range(effort(12)):
        sql = f"SELECT {drawn(rng, 2)} AS v {start}"
        with duckdb.connect() as db:
            expected = db.execute(sql).fetchall()
            assert db.execute(written_out(sql).sql("duckdb")).fetchall() == expected


VALUES = ("TRUE", "FALSE", "NULL")


@pytest.mark.parametrize("of", [*COMPARED, "IN", "NOT IN"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_comparison_within_another_is_written_once(of: str, place: int) -> None:
    def size(levels: int) -> int:
        text = "p"
        for _ in range(levels):
            parts = ["q", "r"]
            parts.insert(place, text)
            row = f"({', '.join(parts)})"
            text = f"({row} {of} {'((q, q, r), (r, q, q))' if 'IN' in of else '(q, q, r)'})"
        return size_of(written_out(f"SELECT {text} FROM t"))

    each = {size(levels + 1) - size(levels) for levels in range(2, 9)}
    assert len(each) == 1
