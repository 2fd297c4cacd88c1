"""Conditions on private rows as tests on their cells, for relations that the vault works out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from sqlglot import exp

from dpsql.catalog.header import MOST_CELLS
from dpsql.catalog.unit_local import AllOf, Among, Test
from dpsql.errors import ProgrammingError
from dpsql.sql.bind import bind
from dpsql.sql.lexemes import Fragment
from dpsql.sql.pieces import Pieces
from dpsql.sql.products import Compiler
from dpsql.sql.query import Coupled
from dpsql.workload.term import Pattern


def as_test(
    source: exp.Table, where: Sequence[exp.Expr], fragment: Fragment, compiler: Compiler
) -> Test:
    """The test that all conditions hold for rows of a table of the catalog.

    ``where`` is over the columns of ``source``, as they are called there.
    Raises: ProgrammingError or NotSupportedError, as in WHERE.
    """
    tests = exp.and_(*(test.copy() for test in where), copy=False)
    count = exp.alias_(exp.Count(this=exp.Star()), "n")
    select = exp.Select(expressions=[count], from_=exp.From(this=source.copy()))
    select.set("where", exp.Where(this=tests))
    query = bind(select, fragment, compiler.catalog, same=compiler.evaluator.is_same)
    pieces = Pieces(compiler.evaluator, query, compiler.catalog.find(query.table))
    pieces.prepare()
    masks = pieces.masks(query.where)
    coupled = [each for each in query.where if isinstance(each, Coupled)]
    patterns = [pieces.pattern((each,), 0) for each in coupled]
    parts: list[Test] = []
    for name, mask in masks.items():
        if name is not None:
            parts.append(Among((name,), mask.astype(np.uint8).tobytes()))
        elif not mask.all():
            parts.append(NEVER)
    return AllOf((*parts, *map(_joint, patterns)))


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
