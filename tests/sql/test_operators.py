"""Operators without parentheses are read in the order in which DuckDB reads them, or refused."""

from __future__ import annotations

import math
import random
from typing import Any

import duckdb
from sqlglot import exp

import dpsql
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from tests.support.effort import effort, first_seed

EXPRESSIONS = effort(600)
BINARY = (
    *("+", "-", "*", "/", "//", "%", "**", "^", "&", "|", "<<", ">>", "=", "<>", "<", ">=", "=="),
    *("AND", "OR", "IS DISTINCT FROM"),
)
BEFORE = ("-", "+", "~", "~", "NOT")
AFTER = ("IS NULL", "::INTEGER", "::DOUBLE", "IS NOT NULL", "ISNULL")
INSIDE = (exp.Binary, exp.Unary, exp.Between, exp.In, exp.Cast)


def atom(rng: random.Random) -> str:
    text = rng.choice(["1", "2", "3", "7", "TRUE"])
    if rng.random() < 0.3:
        text = f"{rng.choice(BEFORE)} {text}"
    return f"{text} {rng.choice(AFTER)}" if rng.random() < 0.2 else text


def expression(rng: random.Random) -> str:
    text = atom(rng)
    for _ in range(rng.choice([1, 2, 2, 3])):
        link = rng.choice([*BINARY, "IN", "BETWEEN"])
        if link == "IN":
            text += f" IN ({rng.choice('123')}, 7)"
        elif link == "BETWEEN":
            text += f" BETWEEN {atom(rng)} AND {atom(rng)}"
        else:
            text += f" {link} {atom(rng)}"
    return text


def read(text: str) -> exp.Expr | None:
    """What the parser makes of an expression; None where it is refused."""
    try:
        tree = parse(split_statements(f"SELECT {text} AS x, COUNT(*) FROM t")[0]).tree
    except dpsql.Error:
        return None
    assert tree is not None
    found: exp.Expr = tree.expressions[0].this
    return found


def in_parentheses(tree: exp.Expr) -> str:
    """A tree with parentheses around all that it is made of."""
    root = exp.Paren(this=tree.copy())
    for node in reversed(list(root.walk())):
        if isinstance(node, INSIDE) and not isinstance(node, exp.Paren):
            around = exp.Paren()
            node.replace(around)
            around.set("this", node)
    return root.sql("duckdb")


def same(one: Any, two: Any) -> bool:
    is_real = isinstance(one, float) and isinstance(two, float)
    return one == two or (is_real and math.isclose(one, two)) or one != one


def test_operators_are_read_as_duckdb_reads_them() -> None:
    rng, asked = random.Random(first_seed(5)), 0
    with duckdb.connect() as database:
        for _ in range(EXPRESSIONS):
            text = expression(rng)
            try:
                (expected,) = database.execute(f"SELECT {text}").fetchall()[0]
            except duckdb.Error:
                continue
            tree = read(text)
            if tree is None:
                continue
            asked += 1
            ours = in_parentheses(tree)
            (found,) = database.execute(f"SELECT {ours}").fetchall()[0]
            assert same(expected, found), f"{text}\n{ours}\n{expected} {found}"
    assert asked > EXPRESSIONS // 8
