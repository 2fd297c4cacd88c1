"""GROUP BY as it is written: keys, and elements that are made of keys.

What sets of keys these stand for is read by ``grouping_sets``.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.logical.functions import SETS, has_aggregates
from dpsql.sql.names import written_key


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
    """True if the GROUP BY of a SELECT has elements that are made of keys."""
    group = select.args.get("group")
    return group is not None and any(isinstance(each, SETS) for each in group.expressions)


def written_keys(select: exp.Select, has: Callable[[exp.Column], object]) -> list[exp.Expr] | None:
    """The keys of GROUP BY with positions, aliases and ALL written out; [] without the clause.

    None where there are sets of keys. ``has`` tells of a column whether the FROM has it.
    """
    group, items = select.args.get("group"), select.expressions
    if group is None:
        return []
    if group.args.get("all"):
        nodes = [item.unalias() for item in items]
        return [n for n in nodes if not has_aggregates(n) and not n.find(exp.Subquery)]
    if has_sets(select) or any(v for name, v in group.args.items() if name != "expressions"):
        return None
    return [written_key(node, items, has) for node in group.expressions]
