"""GROUP BY as it is written: keys, and elements that are made of keys.

What sets of keys these stand for is read by ``grouping_sets``.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.sql.functions import SETS


def keys_of(node: exp.Expr) -> list[exp.Expr]:
    """The keys that an element of GROUP BY is made of.

    >>> from sqlglot import parse_one
    >>> group = parse_one("SELECT 1 FROM t GROUP BY ROLLUP (a, (b, c))").args["group"]
    >>> [key.sql() for key in keys_of(group.expressions[0])]
    ['a', 'b', 'c']
    """
    if not isinstance(node, SETS):
        return [node.unnest()]
    return [key for each in node.expressions for key in keys_of(each)]


def has_sets(select: exp.Expr) -> bool:
    """Whether the GROUP BY of a SELECT has elements that are made of keys."""
    group = select.args.get("group")
    return group is not None and any(isinstance(each, SETS) for each in group.expressions)
