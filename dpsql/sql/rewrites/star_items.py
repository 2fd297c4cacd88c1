"""``* EXCLUDE (a) REPLACE (b + 1 AS b) RENAME (c AS d)``: the columns that are left of ``*``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.errors import ProgrammingError, printable
from dpsql.logical.functions import has_aggregates
from dpsql.records import replace
from dpsql.sql.relations import Field, suggest
from dpsql.sql.shell.language import Locate


def of_star(
    star: exp.Star,
    fields: Sequence[Field],
    value_of: Callable[[exp.Expr], exp.Expr],
    locate: Locate,
) -> list[Field]:
    """The columns that a star stands for, of all that there are.

    Raises: ProgrammingError (E_UNKNOWN_COLUMN) for one that is named and not among them.
    """
    out = list(fields)
    for column in star.args.get("except_") or ():
        _check(column, out, locate)
        out = [each for each in out if each.name.casefold() != column.name.casefold()]
    for item in star.args.get("replace") or ():
        _check(item, out, locate)
        value, name = value_of(item.this), item.alias.casefold()
        out = [
            replace(each, value=value.copy(), hidden=False)
            if each.name.casefold() == name
            else each
            for each in out
        ]
    for item in star.args.get("rename") or ():
        _check(item.this, out, locate)
        name = item.this.name.casefold()
        out = [
            replace(each, name=item.alias) if each.name.casefold() == name else each for each in out
        ]
    return out


def _check(node: exp.Expr, fields: Sequence[Field], locate: Locate) -> None:
    """Refuse a name that is no column. Raises: ProgrammingError (E_UNKNOWN_COLUMN)."""
    name = node.alias_or_name
    known = [each.name for each in fields]
    if name.casefold() not in map(str.casefold, known):
        raise ProgrammingError(
            "E_UNKNOWN_COLUMN",
            f"there is no column {printable(name)!r} among those of *",
            hint=suggest(name, known, "columns"),
            span=locate(node),
        )


def is_spread(tree: exp.Select) -> bool:
    """True if items stand for a column each: those with COLUMNS, and ``*`` beside aggregates."""
    where, items = tree.args.get("where"), tree.expressions
    if any(each.find(exp.Columns) for each in (*items, where) if each is not None):
        return True
    stars = [each for item in items for each in item.find_all(exp.Star)]
    alone = [each for each in stars if not isinstance(each.parent, exp.Count)]
    if not alone:
        return False
    plain = all(isinstance(each.parent, exp.Select | exp.Column) for each in alone)
    return not plain or has_aggregates(tree) or bool(tree.args.get("group"))
