"""The binder accepts what DuckDB's binder accepts, and refuses names and groups where that does."""

from __future__ import annotations

import random
import re
from collections import Counter

import duckdb
import pytest
import sqlglot

from dpsql.logical.functions import is_aggregate
from dpsql.sql.text.lexemes import split_statements
from tests.gate.record import read_record
from tests.logical.shadow import (
    StoredSchema,
    bound,
    described,
    is_of_names,
    misplaced,
    mutants,
    read_unbound,
    shadowed,
)
from tests.support.effort import SHIFT, one_in

EVERY = one_in(16)
MOST_UNBOUND = 101
"""Statements that DuckDB binds and the binder does not: this may only shrink."""
MUTATED = ("grammar", "mailorder", "systems")
_WORD = re.compile(r"\w+")


def test_the_binder_binds_what_duckdb_binds_but_for_what_is_listed() -> None:
    known = read_unbound()
    found = [each for each, _ in shadowed(every=EVERY, seed=SHIFT)]
    worse = [f"{e.name} {e.why}: {e.sql}" for e in found if e.plan is None and e.name not in known]
    better = [each.name for each in found if each.plan is not None and each.name in known]
    assert not worse, "\n".join(worse)
    assert not better, "python -m tests.gate bind:\n" + "\n".join(better)
    assert len(found) > 50
    for each in found:
        if each.plan is None:
            continue
        assert misplaced(each.plan) == [], each.sql
        names = [name for name, _ in each.plan.shown]
        assert len(names) == len(each.columns), each.sql
        called = [one for one in zip(names, each.columns, strict=True) if _WORD.fullmatch(one[0])]
        assert [one for one in called if one[0].casefold() != one[1].casefold()] == [], each.sql


def test_what_is_listed_is_recorded_and_no_more_than_it_was() -> None:
    known = read_unbound()
    assert known.keys() <= read_record().keys()
    assert len(known) == MOST_UNBOUND


def test_names_and_groups_are_refused_where_duckdb_refuses_them() -> None:
    draw = random.Random(f"mutants {SHIFT}")
    counts: Counter[tuple[bool, bool]] = Counter()
    for each, database in shadowed(every=2 * EVERY, names=MUTATED, seed=SHIFT):
        schema = StoredSchema(database)
        names = sorted(schema.every_column())
        for tree in mutants(each.tree, names, draw) if each.plan is not None else ():
            sql = tree.sql("duckdb")
            (fragment,) = split_statements(sql)
            theirs, ours = described(database, sql), bound(tree, schema, fragment)
            if isinstance(theirs, tuple):
                beyond = isinstance(ours, str) and ours.startswith("beyond")
                assert beyond or not isinstance(ours, str), f"{ours}: {sql}"
            elif is_of_names(theirs):
                assert isinstance(ours, str), f"{theirs}: {sql}"
            counts[isinstance(theirs, tuple), isinstance(ours, str)] += 1
    assert counts[True, False] > 5
    assert counts[False, True] > 15


@pytest.mark.parametrize("arguments", ["x", "x, y"])
def test_every_aggregate_of_duckdb_is_known(arguments: str) -> None:
    with duckdb.connect() as database:
        rows = database.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = ?"
            " AND len(parameters) = ?",
            ["aggregate", len(arguments.split(","))],
        ).fetchall()
    names = [name for (name,) in rows if _WORD.fullmatch(name)]
    trees = {name: sqlglot.parse_one(f"{name}({arguments})", dialect="duckdb") for name in names}
    unknown = [name for name, tree in trees.items() if not any(map(is_aggregate, tree.walk()))]
    assert len(names) > 15
    assert unknown == []
