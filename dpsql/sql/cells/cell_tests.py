"""Conditions on private rows as tests on their cells, for relations that the vault works out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sqlglot import exp

from dpsql.catalog import Table
from dpsql.errors import ProgrammingError
from dpsql.relation.cell_maps import MOST_CELLS
from dpsql.relation.distances import are_comparable
from dpsql.relation.unit_local import AllOf, Among, InOrder, Sign, Test
from dpsql.sql.bind import bind
from dpsql.sql.cells.signed_products import SignedProducts
from dpsql.sql.products import Compiler
from dpsql.sql.query import JointCondition
from dpsql.sql.text.lexemes import Fragment
from dpsql.workload.term import MAX_CELLS, Pattern


def as_test(
    source: exp.Table, where: Sequence[exp.Expr], fragment: Fragment, compiler: Compiler
) -> Test:
    """The test that all conditions hold for rows of a table of the catalog.

    ``where`` is over the columns of ``source``, as they are called there.
    Raises: ProgrammingError or NotSupportedError, as in WHERE.
    """
    table = compiler.catalog.find(source.name.casefold())
    orders = [in_order(test, table, source.alias_or_name) for test in where]
    where = [test for test, order in zip(where, orders, strict=True) if order is None]
    parts: list[Test] = [order for order in orders if order is not None]
    if not where:
        return AllOf(tuple(parts))
    tests = exp.and_(*(test.copy() for test in where), copy=False)
    count = exp.alias_(exp.Count(this=exp.Star()), "n")
    select = exp.Select(expressions=[count], from_=exp.From(this=source.copy()))
    select.set("where", exp.Where(this=tests))
    query = bind(select, fragment, compiler.catalog, evaluator=compiler.evaluator)
    pieces = SignedProducts(compiler.evaluator, query, compiler.catalog.find(query.table))
    pieces.prepare()
    masks = pieces.masks(query.where)
    coupled = [each for each in query.where if isinstance(each, JointCondition)]
    patterns = [pieces.pattern((each,), 0) for each in coupled]
    for name, mask in masks.items():
        if name is not None:
            parts.append(Among((name,), mask.astype(np.uint8).tobytes()))
        elif not mask.all():
            parts.append(NEVER)
    return AllOf((*parts, *map(_joint, patterns)))


_SIGNS: dict[type[exp.Expr], Sign] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: "<",
    exp.GTE: "<=",
    exp.EQ: "=",
    exp.NEQ: "<>",
}
"""Of comparisons, the sides of those that say what is greater being exchanged."""


def in_order(test: exp.Expr, table: Table, alias: str) -> InOrder | None:
    """A comparison of two columns with more pairs of cells than a condition may list; else None."""
    node = test.unnest()
    if type(node) not in _SIGNS:
        return None
    sides = [node.this.unnest(), node.expression.unnest()]
    columns = [
        table.columns.get(each.name.casefold())
        for each in sides
        if isinstance(each, exp.Column) and each.table.casefold() == alias.casefold()
    ]
    one, other = columns if len(columns) == 2 else (None, None)
    if one is None or other is None or one.size * other.size <= MAX_CELLS:
        return None
    if one is other or not are_comparable(one, other):
        return None
    names = one.name.casefold(), other.name.casefold()
    left, right = names[::-1] if isinstance(node, exp.GT | exp.GTE) else names
    return InOrder(left, _SIGNS[type(node)], right)


NEVER = Among((), b"\0")
"""A test that no row meets."""


def _joint(pattern: Pattern) -> Among:
    """A condition over several columns, on all combinations of their cells."""
    labels = list(pattern.labels.values())
    if math.prod(map(len, labels)) > MOST_CELLS:
        raise ProgrammingError(
            "E_TOO_LARGE",
            "a condition over several columns has too many combinations of their cells",
            hint=f"at most {MOST_CELLS:,}; declare bins, or compare one column",
            span=pattern.span,
        )
    cells = pattern.truth[np.ix_(*labels)].astype(np.uint8)
    return Among(tuple(pattern.labels), cells.tobytes())
