"""Sums of what rows have and what was counted: a row of which one part is NULL adds nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from sqlglot import exp

from dpsql.records import dataclass
from dpsql.sql.subqueries.rows_and_answers import NotExpressible, RowsAndAnswers


@dataclass(frozen=True, slots=True)
class OptionalTerms:
    """The terms of a sum that are about rows, those of them that may be NULL, and the others."""

    rows: exp.Expr
    optional: exp.Expr
    plain: exp.Expr | None

    @classmethod
    def read(cls, node: exp.Expr, sides: RowsAndAnswers) -> OptionalTerms | None:
        """Tell the terms of a sum apart; None where none of those about rows may be NULL.

        Raises: NotExpressible, where a term is about both.
        """
        terms = list(_terms(node))
        plain = [term for term in terms if sides.is_plain(term)]
        rows = [term for term in terms if term not in plain]
        optional = [term for term in rows if sides.is_optional(term)]
        if not optional:
            return None
        if any(map(sides.mentions, rows)):
            raise NotExpressible
        return cls(_sum(rows), _sum(optional), _sum(plain) if plain else None)


def _terms(node: exp.Expr, minus: bool = False) -> Iterator[exp.Expr]:
    """The terms that are added, with their signs."""
    inner = node.unnest()
    if isinstance(inner, exp.Neg):
        yield from _terms(inner.this, not minus)
    elif isinstance(inner, exp.Add | exp.Sub):
        yield from _terms(inner.this, minus)
        yield from _terms(inner.expression, minus != isinstance(inner, exp.Sub))
    else:
        yield exp.Neg(this=exp.paren(inner.copy(), copy=False)) if minus else inner


def _sum(terms: Sequence[exp.Expr]) -> exp.Expr:
    copies = [term.copy() for term in terms]
    return reduce(lambda one, two: exp.Add(this=one, expression=two), copies)
