"""Keys over several columns: GROUP BY an expression -> a join with the list of its values.

Which values there are follows from declared cells alone, so a group that the data lack is a row as
any other. What groups rows is then what joins them: ``ON expression IS NOT DISTINCT FROM value``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.logical.functions import SETS
from dpsql.sql.cells.cell_classes import grid_of
from dpsql.sql.cells.evaluate import Operand
from dpsql.sql.groups.keys import is_of_groups, is_ranges
from dpsql.sql.names import written_key
from dpsql.sql.public.public_combinations import MAX_LISTED
from dpsql.sql.public.public_joins import lookups
from dpsql.sql.relations import as_values
from dpsql.sql.scope import Scope, coupled
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.shell.language import check_scalar

_LIST = " values"
"""Starts with a space, as nobody writes: messages leave such tables out."""


def with_lists(tree: exp.Select, scope: Scope) -> exp.Select:
    """Return a SELECT whose keys are over one column each; the same one where they are.

    Raises: ProgrammingError (E_TOO_LARGE, E_DOMAIN_EVAL); what conditions over columns raise.
    """
    out = tree = _without_repeats(tree, scope)
    for number, key in enumerate(dict.fromkeys(_keys(tree, scope))):
        values = _values(scope, tree, key) if _is_coupled(scope, key) else []
        alias, name = f"{_LIST} {number}", key.sql("duckdb", comments=False)
        rows = as_values([(value,) for value in values], [name], alias) if values else None
        if rows is not None:
            out = tree.copy() if out is tree else out
            same = exp.NullSafeEQ(this=exp.paren(key.copy()), expression=_named(name, alias))
            out.append("joins", exp.Join(this=rows, on=same))
            _replace(out, key, _named(name, alias), scope)
    return out


def _keys(tree: exp.Select, scope: Scope) -> Iterator[exp.Expr]:
    """The keys of GROUP BY, with positions and aliases written out."""
    group, items = tree.args.get("group"), tree.expressions
    if group is None:
        return
    if group.args.get("all"):
        yield from (each.unalias() for each in items if not is_of_groups(each.unalias()))
    nodes = list(group.expressions)
    while nodes:
        node = nodes.pop(0)
        if isinstance(node, SETS):
            nodes = [*node.expressions, *nodes]
        else:
            yield written_key(node.unnest(), items, scope.has)


def _without_repeats(tree: exp.Select, scope: Scope) -> exp.Select:
    """A SELECT without the keys that follow from others which are columns: as many groups."""
    keys = [*dict.fromkeys(_keys(tree, scope))]
    group = tree.args["group"]
    if any(isinstance(each, exp.Cube | exp.Rollup | exp.GroupingSets) for each in group.walk()):
        return tree
    columns = [each for key in keys if isinstance(each := key.unnest(), exp.Column)]
    alone = {each.name.casefold() for each in columns if scope.find_public(each) is None}
    kept = [k for k in keys if not _is_coupled(scope, k) or not alone.issuperset(scope.columns(k))]
    if len(kept) == len(keys):
        return tree
    out = tree.copy()
    out.set("group", exp.Group(expressions=[key.copy() for key in kept]))
    return out


def _is_coupled(scope: Scope, key: exp.Expr) -> bool:
    """True if a key is an expression over several private columns, and nothing else."""
    several = len({*key.find_all(exp.Column)}) > 1 and not is_ranges(key)
    if not several or key.find(exp.AggFunc, exp.Query, exp.Window) or scope.is_listed(key):
        return False
    return len(scope.columns(key)) > 1


def _values(scope: Scope, tree: exp.Select, key: exp.Expr) -> list[Any]:
    """The values of a key on all combinations of declared cells, in their order.

    Raises: NotSupportedError for a function that is not admitted; ProgrammingError (E_TOO_LARGE).
    """
    check_scalar(key, scope.locate)
    found, known = coupled(scope, key), {each.column: each for each in lookups(scope, tree)}
    columns, on_cells = scope.table.columns, {}
    for part in found.parts:
        name = str(part.column)
        source = Operand(scope.table.name, columns[name], known.get(name), None)
        on_cells[part] = scope.evaluator.values(source, part)
    grid = grid_of(on_cells, list(columns), found.span)
    axes = grid.axes((f"x{number}", part) for number, part in enumerate(found.parts))
    count, values = scope.evaluator.combined.different(found.sql, axes, MAX_LISTED, found.span)
    if count > MAX_LISTED:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"the key has {count:,} values",
            hint=f"at most {MAX_LISTED:,} where it is over several columns; group by the columns",
            span=found.span,
        )
    return values


def _named(name: str, alias: str) -> exp.Column:
    return exp.column(name, table=alias, quoted=True)


def _replace(out: exp.Select, key: exp.Expr, listed: exp.Column, scope: Scope) -> None:
    """Write a column of the list where a key stands, under the names that items have."""
    wanted = _plain(key, scope)

    def written(node: exp.Expr) -> exp.Expr:
        same = type(node) is type(key) and _plain(node, scope) == wanted
        if not same:
            return node
        column = listed.copy()
        for part in column.walk():
            part.meta.update(next((n.meta for n in node.walk() if "start" in n.meta), {}))
        return column

    items = []
    for item in out.expressions:
        inner = item.unalias().transform(written, copy=True)
        items.append(exp.alias_(inner, name_of(item), quoted=True, copy=False))
    out.set("expressions", items)
    for clause in ("group", "having", "qualify", "order"):
        if out.args.get(clause) is not None:
            out.set(clause, out.args[clause].transform(written, copy=True))


def _plain(node: exp.Expr, scope: Scope) -> exp.Expr:
    """An expression with columns as they are, however they are written."""

    def plain(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column) or isinstance(part.this, exp.Star):
            return part
        found = scope.find_public(part)
        name = part.name.casefold()
        return exp.column(name if found is None else f"{found[0].alias}.{name}", quoted=True)

    return node.unnest().transform(plain, copy=True)
