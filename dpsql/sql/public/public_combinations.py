"""Public rows that are joined to several private columns: the combinations of them that meet.

Rows of several public tables are joined with each other first, by all conditions that are about
them alone: what no private row could be beside is no count of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.sealed import EvaluationError
from dpsql.sql.public.equal_columns import implied
from dpsql.sql.public.public_rows import JoinedPublicRows
from dpsql.sql.scope import Scope

MAX_LISTED = 10_000
"""Most public rows that are joined to several columns: each is a count by itself."""


def combinations(scope: Scope, listed: Sequence[JoinedPublicRows]) -> list[tuple[Any, ...]]:
    """The values of public rows, every combination of those of several tables.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    rows = [each.rows() for each in listed]
    count = math.prod(map(len, rows))
    numbers = [scope.joined.index(each) for each in listed]
    found = (
        None
        if any(each.keep for each in listed)
        else matching_combinations(scope, numbers, MAX_LISTED)
    )
    count = count if found is None else found[0]
    if count > MAX_LISTED:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"{count:,} combinations of public rows are joined to several columns",
            hint=f"at most {MAX_LISTED:,}: every one is a count of its own; more where their keys, "
            "which whole rows are equal to, are unique",
            span=listed[0].span,
        )
    if found is None:
        return [tuple(itertools.chain(*each)) for each in itertools.product(*rows)]
    return [
        tuple(itertools.chain(*(own[place] for own, place in zip(rows, places, strict=True))))
        for places in found[1]
    ]


def matching_combinations(
    scope: Scope, numbers: Sequence[int], most: int
) -> tuple[int, list[tuple[int, ...]]] | None:
    """The number of combinations of rows that meet conditions on them alone, and these in order.

    ``numbers`` are those of lists among the public rows. None where there are no such conditions,
    or they fail on some combination; no list of combinations where these are more than ``most``.
    """
    written = [_implied(scope, test, numbers) for test in scope.where]
    tests = [test for test in written if test is not None] + list(implied(scope, numbers))
    if not tests:
        return None
    sealed = scope.evaluator.sealed
    for number in numbers:
        each = scope.joined[number]
        columns: dict[str, tuple[str, Sequence[Any]]] = {
            f"r{each.first + k}": (kind, values)
            for k, (kind, values) in enumerate(zip(each.types, each.values, strict=True))
        }
        sealed.fill(f"listed{number}", {"i": ("BIGINT", range(len(each.values[0]))), **columns})
    names = [f"listed{number}" for number in numbers]
    where = " AND ".join(f"({scope.render(test)})" for test in tests)
    places = ", ".join(f"{name}.i" for name in names)
    body = f"FROM {', '.join(names)} WHERE {where}"
    try:
        ((count,),) = sealed.run(f"SELECT count(*) {body}")
        few = [] if count > most else sealed.run(f"SELECT {places} {body} ORDER BY ALL")
    except EvaluationError:
        return None
    return count, few


def _implied(scope: Scope, test: exp.Expr, numbers: Sequence[int]) -> exp.Expr | None:
    """The part of a condition about some public rows, whatever private row is beside them."""
    inner = test.unnest()
    if isinstance(inner, exp.And | exp.Or):
        parts = [_implied(scope, side, numbers) for side in (inner.this, inner.expression)]
        known = [exp.paren(part.copy(), copy=False) for part in parts if part is not None]
        if len(known) == 2:
            return type(inner)(this=known[0], expression=known[1])
        return known[0] if known and isinstance(inner, exp.And) else None
    return inner if _is_of_rows(scope, inner, numbers) else None


def _is_of_rows(scope: Scope, test: exp.Expr, numbers: Sequence[int]) -> bool:
    """True if a condition is about some public rows and nothing else."""
    found = [scope.find_public(each) for each in test.find_all(exp.Column)]
    own = [scope.joined[number] for number in numbers]
    return bool(found) and all(each is not None and each[0] in own for each in found)
