"""Whole numbers among noisy ones, and integer arithmetic over them.

A noisy count is a DOUBLE within a statement, since least squares has fractions, but to SQL it is an
integer, and told as one. Where its type matters, in ``//``, ``%``, bits and text and where equal
rows are one, it is first rounded to the nearest whole number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlglot import exp

from dpsql.logical.functions import INTEGER_TYPES, has

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT")
"""DuckDB types whose values are whole."""


def is_number(kind: str) -> bool:
    """True if a DuckDB type is one of numbers.

    >>> [is_number(kind) for kind in ("BIGINT", "DECIMAL(4,1)", "VARCHAR", "BOOLEAN")]
    [True, True, False, False]
    """
    return kind.split("(")[0] in (*INTEGERS, "UINTEGER", "UBIGINT", "DOUBLE", "FLOAT", "DECIMAL")


_MARK = "whole"
_TEXTS = {exp.DType.TEXT, exp.DType.VARCHAR}
Leaf = Callable[[exp.Column], bool]
N = TypeVar("N", exp.Column, exp.Var)


def marked(node: N, whole: bool, rounded: bool = False) -> N:
    """Note on a column of a layer, or on SQL that is written already, that it is a whole number.

    ``rounded`` says that no noise has made it a DOUBLE.
    """
    if whole:
        node.meta[_MARK] = "rounded" if rounded else "noisy"
    return node


def is_integer(tree: exp.Expr, leaf: Leaf | None = None) -> bool:
    """True if an expression is an integer to SQL; ``leaf`` says so of columns without a mark.

    >>> from sqlglot import parse_one
    >>> [is_integer(parse_one(s), lambda _: True) for s in ("2 * n + 1", "n / 2", "n * 1.5")]
    [True, False, False]
    """
    match tree:
        case exp.Column():
            return bool(tree.meta.get(_MARK)) if leaf is None else leaf(tree)
        case exp.Var():
            return bool(tree.meta.get(_MARK))
        case exp.Literal():
            return not tree.is_string and tree.name.isdigit()
        case exp.Null():
            return True
        case exp.Cast():
            return tree.to.this in INTEGER_TYPES
        case exp.Case():
            parts = [branch.args["true"] for branch in tree.args["ifs"]]
            default = tree.args.get("default")
            return all(is_integer(p, leaf) for p in (*parts, *([default] if default else [])))
        case _ if has(tree, "whole"):
            return True
        case _ if has(tree, "whole_first"):
            return is_integer(tree.this, leaf)
        case _ if has(tree, "whole_all"):
            return all(is_integer(part, leaf) for part in tree.iter_expressions())
    return False


def settled(node: exp.Expr) -> exp.Expr:
    """A node with the operands rounded that SQL takes for integers: where types matter."""
    if isinstance(node, exp.DPipe) or (has(node, "integral") and is_integer(node)):
        for key in ("this", "expression"):
            if key in node.args:
                node.set(key, rounded(node.args[key]))
    elif isinstance(node, exp.Concat | exp.Format | exp.Anonymous):
        node.set("expressions", [rounded(part) for part in node.expressions])
    elif isinstance(node, exp.Cast) and node.to.this in _TEXTS:
        node.set("this", rounded(node.this))
    return node


def rounded(tree: exp.Expr) -> exp.Expr:
    """A whole number that noise has made a DOUBLE as a BIGINT; anything else as it is."""
    noisy = any(c.meta.get(_MARK) == "noisy" for c in tree.find_all(exp.Column))
    if not noisy or not is_integer(tree):
        return tree
    nearest = exp.Round(this=tree)
    return exp.Cast(this=nearest, to=exp.DataType(this=exp.DType.BIGINT))
