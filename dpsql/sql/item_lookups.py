"""Scalar sub-queries in the items of a grouped SELECT that depend on its keys.

``SELECT k, COUNT(*), (SELECT COUNT(*) FROM t u WHERE u.k = t.k AND ...) FROM t GROUP BY k`` is a
SELECT over its own groups, in which every such sub-query is looked up by the keys of a row.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.logical.bind.subqueries import SubqueryBinder
from dpsql.sql.correlated import OVER_GROUPS, is_by_unit
from dpsql.sql.expressions import name_of
from dpsql.sql.key_sets import written_keys

_GROUPS = "groups of it"
_AFTER = ("order", "limit", "offset")
_OF_GROUPS = exp.AggFunc | exp.Filter | exp.WithinGroup | exp.Window


class _NotSoError(Exception):
    """What stands there is none of this form, and is left as it is."""


def over_groups(tree: exp.Expr, binder: SubqueryBinder) -> exp.Expr:
    """The statement with such SELECTs over their groups; others are as they were."""
    if not any(_asked(each, binder) for each in tree.find_all(exp.Select)):
        return tree
    tree = tree.copy()
    for select in list(tree.find_all(exp.Select)):
        asked = _asked(select, binder)
        try:
            found = _Wrapped(select, asked, binder).query if asked else None
        except _NotSoError:
            continue
        if found is not None and select is tree:
            tree = found
        elif found is not None:
            select.replace(found)
    return tree


def _asked(select: exp.Select, binder: SubqueryBinder) -> list[exp.Subquery]:
    """The sub-queries in the items of a grouped SELECT that mention names of it."""
    if select.args.get("group") is None or select.args.get("distinct") is not None:
        return []
    nodes = [each for item in select.expressions for each in item.find_all(exp.Subquery)]
    own = [each for each in nodes if each.find_ancestor(exp.Select) is select]
    return [
        each for each in own if _outer_columns(each, binder) and not is_by_unit(each.this, binder)
    ]


def _outer_columns(node: exp.Subquery, binder: SubqueryBinder) -> list[exp.Column]:
    """The columns in a sub-query that are not those of its own tables."""
    query = node.this
    inside = binder.names(query) if isinstance(query, exp.Select) else None
    if inside is None:
        return []
    return [each for each in query.find_all(exp.Column) if not inside.has(each)]


class _Wrapped:
    """One grouped SELECT as a SELECT over its groups: keys and aggregates become columns."""

    def __init__(
        self, select: exp.Select, asked: list[exp.Subquery], binder: SubqueryBinder
    ) -> None:
        inside = binder.names(select)
        keys = None if inside is None else written_keys(select, inside.has)
        if keys is None or select.args.get("qualify") or select.args.get("windows"):
            raise _NotSoError
        self.select = select
        self.asked = {id(each) for each in asked}
        self.binder = binder
        self.keys = keys
        self.parts: list[exp.Expr] = []
        items = [
            exp.alias_(self._moved(item.unalias()), name_of(item), quoted=True)
            for item in select.expressions
        ]
        after = {name: self._after(name) for name in _AFTER if select.args.get(name)}
        inner = select.copy()
        for name in _AFTER:
            inner.set(name, None)
        named = [exp.alias_(each.copy(), f"k {i}", quoted=True) for i, each in enumerate(self.keys)]
        named += [exp.alias_(each, f"a {i}", quoted=True) for i, each in enumerate(self.parts)]
        inner.set("expressions", named)
        inner.set("group", exp.Group(expressions=[each.copy() for each in self.keys]))
        alias = exp.TableAlias(this=exp.to_identifier(_GROUPS, quoted=True))
        source = exp.From(this=exp.Subquery(this=inner, alias=alias))
        self.query = exp.Select(expressions=items, from_=source, **after)
        self.query.meta[OVER_GROUPS] = True

    def _after(self, name: str) -> exp.Expr:
        """ORDER BY, in which names of items stay, or a clause without any."""
        clause: exp.Expr = self.select.args[name].copy()
        shown = {item.alias_or_name.casefold() for item in self.select.expressions}
        for item in clause.expressions if name == "order" else ():
            named = isinstance(item.this, exp.Column) and item.this.name.casefold() in shown
            if not named and not isinstance(item.this, exp.Literal):
                item.set("this", self._moved(item.this))
        return clause

    def _moved(self, node: exp.Expr) -> exp.Expr:
        """An expression over the columns of the groups."""
        for place, key in enumerate(self.keys):
            if node == key or _is_same_column(node, key):
                return _column(f"k {place}")
        if isinstance(node, exp.Subquery) and id(node) in self.asked:
            out = node.copy()
            outer = {id(each) for each in _outer_columns(node, self.binder)}
            columns = (list(each.find_all(exp.Column)) for each in (node, out))
            for mine, its in zip(*columns, strict=True):
                if id(mine) in outer:
                    its.replace(self._moved(mine))
            return out
        if isinstance(node, _OF_GROUPS):
            if node not in self.parts:
                self.parts.append(node.copy())
            return _column(f"a {self.parts.index(node)}")
        if isinstance(node, exp.Column):
            raise _NotSoError
        if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
            return node.copy()
        copy: exp.Expr = node.copy()
        for name, value in node.args.items():
            if isinstance(value, exp.Expr):
                copy.set(name, self._moved(value))
            elif isinstance(value, list):
                copy.set(name, [self._moved(v) if isinstance(v, exp.Expr) else v for v in value])
        return copy


def _is_same_column(one: exp.Expr, other: exp.Expr) -> bool:
    """Whether two names may be of one column: one of them says the table, or both the same."""
    if not isinstance(one, exp.Column) or not isinstance(other, exp.Column):
        return False
    tables = {each.table.casefold() for each in (one, other)} - {""}
    return len(tables) < 2 and one.name.casefold() == other.name.casefold()


def _column(name: str) -> exp.Column:
    return exp.column(
        exp.to_identifier(name, quoted=True), table=exp.to_identifier(_GROUPS, quoted=True)
    )
