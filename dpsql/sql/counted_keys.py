"""COUNT(DISTINCT order_number): how many keys have a row, where each key is of one privacy unit.

A row for each key is counted: ``SELECT COUNT(*) FROM (SELECT order_number ... GROUP BY
order_number)``, with the noise of as many keys as a unit may have.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.sql.kinds import cte_of
from dpsql.sql.relations import read_from
from dpsql.sql.sugar import has_aggregates

_ROWS = ("from_", "joins", "where")
_KNOWN = (*_ROWS, "expressions", "order", "limit", "with_", "kind", "hint")
_NAME = "counted keys"


def with_counted_keys(tree: exp.Expr, catalog: Catalog) -> exp.Expr:
    """The statement with such counts as sub-queries; others are as they were."""
    found = [select for select in tree.find_all(exp.Select) if _counts(select, catalog)]
    if not found:
        return tree
    tree = tree.copy()
    for select in list(tree.find_all(exp.Select)):
        _write(select, _counts(select, catalog), _keys(select, catalog))
    return tree


def _counts(select: exp.Select, catalog: Catalog) -> list[exp.Count]:
    """The counts of keys of a SELECT that has one row."""
    if any(value for key, value in select.args.items() if key not in _KNOWN):
        return []
    keys = _keys(select, catalog)
    return [
        node
        for node in select.find_all(exp.Count)
        if node.find_ancestor(exp.Select) is select
        and isinstance(node.this, exp.Distinct)
        and not isinstance(node.parent, exp.Filter | exp.Window)
        and len(node.this.expressions) == 1
        and _is_key(node.this.expressions[0], keys)
    ]


def _keys(select: exp.Select, catalog: Catalog) -> dict[str, set[str]]:
    """The keys of the private tables in FROM that are of one unit, by alias."""
    found: dict[str, set[str]] = {}
    for each in read_from(select):
        is_table = isinstance(each.node, exp.Table) and cte_of(each.node) is None
        table = catalog.tables.get(each.node.name.casefold()) if is_table else None
        if table is not None:
            found[each.alias] = {k.casefold() for k in table.unit_keys} - table.columns.keys()
    return found


def _is_key(node: exp.Expr, keys: dict[str, set[str]]) -> bool:
    return isinstance(node, exp.Column) and _owner(node, keys) is not None


def _owner(node: exp.Column, keys: dict[str, set[str]]) -> str | None:
    """The alias of the table that a key is of."""
    owners = [alias for alias, names in keys.items() if node.name.casefold() in names]
    own = node.table.casefold() if node.table else owners[0] if len(owners) == 1 else ""
    return own if own in owners else None


def _is_known(select: exp.Select, key: exp.Column, keys: dict[str, set[str]]) -> exp.In:
    """The condition that a key is not NULL: its table has such a key."""
    owner = _owner(key, keys)
    node = next(each.node for each in read_from(select) if each.alias == owner)
    same = exp.Select(expressions=[exp.column(key.this.copy())])
    same.set("from_", exp.From(this=exp.Table(this=node.this.copy())))
    return exp.In(this=key.copy(), query=exp.Subquery(this=same))


def _write(select: exp.Select, counts: list[exp.Count], keys: dict[str, set[str]]) -> None:
    """Write the counts of a SELECT as sub-queries over its rows."""
    rows = {key: select.args[key] for key in _ROWS if select.args.get(key)}
    for node in counts:
        key = node.this.expressions[0]
        inner = exp.Select(expressions=[key.copy()], group=exp.Group(expressions=[key.copy()]))
        for name, part in rows.items():
            copies = [each.copy() for each in part] if isinstance(part, list) else part.copy()
            inner.set(name, copies)
        tests: list[exp.Expr] = [_is_known(select, key, keys)]
        if "where" in rows:
            tests.insert(0, exp.paren(rows["where"].this.copy(), copy=False))
        inner.set("where", exp.Where(this=exp.and_(*tests, copy=False)))
        alias = exp.TableAlias(this=exp.to_identifier(_NAME, quoted=True))
        whole = exp.Select(expressions=[exp.Count(this=exp.Star())])
        whole.set("from_", exp.From(this=exp.Subquery(this=inner, alias=alias)))
        whole.meta.update(select.meta)
        node.replace(exp.Subquery(this=whole))
    if counts:
        select.set("order", None)  # of one row
        if not has_aggregates(select):
            for name in _ROWS:
                select.set(name, None)
