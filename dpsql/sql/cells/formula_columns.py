"""Sums of products of numbers of a private row, as a column of their own.

``SUM(quantity * price)`` of a unit's rows, where a price has too many values to list: the vault
multiplies row by row, and adds up what it finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from sqlglot import exp

from dpsql.catalog.catalog import Column
from dpsql.logical.functions import REAL_TYPES
from dpsql.records import replace
from dpsql.relation.formulas import MOST_TERMS, formula_column, is_number
from dpsql.relation.unit_local import FormulaRows, Multiple, Scan

_MOST_FACTORS = 4

_ONE = (Multiple(Fraction(1)),)
_BARE = "filled"
"""Marks a column in which a number stands for NULL."""
Terms = tuple[Multiple, ...]


def as_formula(node: exp.Expr, columns: Mapping[str, Column], name: str) -> FormulaRows | None:
    """The column that a flat expression makes of numbers; None if it is no sum of products.

    Which rows it is a column of is left to the caller.
    """
    filled = dict[str, Fraction]()
    node = node.copy().transform(lambda part: _filled(part, filled))
    terms = terms_of(node, columns)
    if not terms or not any(term.columns for term in terms):
        return None
    if any(each.meta.get(_BARE) is None for each in _columns(node) if _key(each) in filled):
        return None  # NULL in one place, and a number in another
    column = formula_column(terms, columns, filled)
    made = None if column is None else replace(column, name=name)
    return None if made is None else FormulaRows(Scan(""), made, terms, tuple(filled.items()))


def _filled(node: exp.Expr, found: dict[str, Fraction]) -> exp.Expr:
    """COALESCE(column, number) as the column, which is noted with the number."""
    if not isinstance(node, exp.Coalesce) or not isinstance(node.this, exp.Column):
        return node
    rest = [each.unnest() for each in node.expressions]
    if len(rest) != 1 or not isinstance(rest[0], exp.Literal) or rest[0].is_string:
        return node
    value = Fraction(rest[0].name)
    if found.setdefault(_key(node.this), value) != value:
        return node
    node.this.meta[_BARE] = True
    return node.this


def _columns(node: exp.Expr) -> list[exp.Column]:
    return list(node.find_all(exp.Column))


def _key(column: exp.Column) -> str:
    return column.name.casefold()


def terms_of(node: exp.Expr, columns: Mapping[str, Column]) -> Terms | None:
    """The products that an expression adds up; None if it is no sum of such."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        name = node.name.casefold()
        return (Multiple(Fraction(1), (name,)),) if is_number(columns.get(name)) else None
    if isinstance(node, exp.Literal):
        return None if node.is_string else (Multiple(Fraction(node.name)),)
    if isinstance(node, exp.Neg):
        return _times(_minus(_ONE), terms_of(node.this, columns))
    if isinstance(node, exp.Cast):
        return terms_of(node.this, columns) if node.args["to"].this in REAL_TYPES else None
    if not isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div):
        return None
    one, two = terms_of(node.this, columns), terms_of(node.expression, columns)
    if one is None or two is None:
        return None
    if isinstance(node, exp.Div):
        divisor = two[0].times if len(two) == 1 and not two[0].columns else Fraction(0)
        return None if not divisor else _times(one, (Multiple(1 / divisor),))
    if isinstance(node, exp.Mul):
        return _times(one, two)
    found = (*one, *(_minus(two) if isinstance(node, exp.Sub) else two))
    return found if len(found) <= MOST_TERMS else None


def _minus(terms: Terms) -> Terms:
    return tuple(replace(each, times=-each.times) for each in terms)


def _times(one: Terms | None, two: Terms | None) -> Terms | None:
    if one is None or two is None or len(one) * len(two) > MOST_TERMS:
        return None
    found = tuple(Multiple(a.times * b.times, a.columns + b.columns) for a in one for b in two)
    return found if all(len(each.columns) <= _MOST_FACTORS for each in found) else None
