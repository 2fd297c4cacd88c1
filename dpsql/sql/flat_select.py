"""Whether a statement is one SELECT over stored tables, which is compiled as it is written."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.catalog import Table
from dpsql.sql.clauses import RowBounds, clip_of
from dpsql.sql.earlier_items import named_items
from dpsql.sql.fewest import Fewest
from dpsql.sql.functions import has, kinds
from dpsql.sql.natural_joins import has_natural
from dpsql.sql.parse import Statement
from dpsql.sql.products import Compiler
from dpsql.sql.relations import read_from
from dpsql.sql.sugar import has_aggregates
from dpsql.workload.term import MAX_PRODUCTS


def may_compare(node: exp.Expr) -> bool:
    """True if a node may compare two columns."""
    of_two = isinstance(node, exp.Sub | exp.DateDiff | exp.Between)
    return of_two or has(node, "order", "equality")


def is_flat(tree: exp.Select, compiler: Compiler, statement: Statement) -> bool:
    """Whether a SELECT is over tables of the catalog alone, one of them private or unknown."""
    has_aliases = any(isinstance(each, exp.Alias) for each in tree.expressions)
    if tree.args.get("with_") or (has_aliases and named_items(tree)):
        return False
    if tree.args.get("joins") and has_natural(tree):
        return False
    found = list(tree.walk())
    if any(isinstance(part, exp.Query | exp.AtTimeZone) and part is not tree for part in found):
        return False
    tables = compiler.catalog.tables
    names = [part.name.casefold() for part in found if isinstance(part, exp.Table)]
    known = [tables[name] for name in names if name in tables]
    if any(needs_bounds(statement, tree, table) or _asks_keys(tree, table) for table in known):
        return False
    if _ranks_several(tree) and any(table.unit.column for table in known):
        return False
    if is_spread(tree):
        return False
    compared = [part for part in found if may_compare(part)]
    if any(may_differ(part, table) for part in compared for table in known):
        return False
    if sum(not table.public for table in known) > 1 or _keeps_public(tree, tables):
        return False
    return len(known) < len(names) or not known or not all(table.public for table in known)


def is_spread(tree: exp.Select) -> bool:
    """Whether items stand for a column each: those with COLUMNS, and ``*`` beside aggregates."""
    where, items = tree.args.get("where"), tree.expressions
    if any(each.find(exp.Columns) for each in (*items, where) if each is not None):
        return True
    stars = [each for item in items for each in item.find_all(exp.Star)]
    alone = [each for each in stars if not isinstance(each.parent, exp.Count)]
    if not alone:
        return False
    plain = all(isinstance(each.parent, exp.Select | exp.Column) for each in alone)
    return not plain or has_aggregates(tree) or bool(tree.args.get("group"))


def _ranks_several(tree: exp.Select) -> bool:
    """Whether a quantile is of several columns."""
    for node in tree.find_all(*kinds("rank")):
        whole = node.parent if isinstance(node.parent, exp.WithinGroup) else node
        if len({column.name.casefold() for column in whole.find_all(exp.Column)}) > 1:
            return True
    return False


def _asks_keys(tree: exp.Select, table: Table) -> bool:
    """Whether keys of a table, which have no domain, may be counted or tested for NULL."""
    keys = {key.casefold() for key in table.keys} - {(table.unit.column or "").casefold()}
    return any(
        column.name.casefold() in keys
        for asked in (tree.find_all(exp.Count, exp.Is) if keys else ())
        for column in asked.find_all(exp.Column)
    )


def _keeps_public(tree: exp.Select, tables: Mapping[str, Table]) -> bool:
    """Whether the one join of a SELECT keeps public rows that no private one meets."""
    if len(tree.args.get("joins") or ()) != 1:
        return False
    elements = read_from(tree)
    if not elements:
        return False
    element = elements[-1]
    join, table = element.join, tables.get(element.node.name.casefold())
    is_list = isinstance(element.node, exp.Values)
    if join is None or (table is None and not is_list):
        return False
    return join.side == ("RIGHT" if table is None or table.public else "LEFT")


def needs_bounds(statement: Statement, select: exp.Select, table: Table) -> bool:
    """Whether what a unit adds to a group, or to how many, is to be bounded."""
    if table.unit.max_rows == 1 or table.unit.column is None:
        return False
    if Fewest.of(statement.options, table).says:
        return True
    called = select.find_all(exp.Sum, exp.Count, exp.Avg) if statement.clips else ()
    return any(is_clipped(node, statement, table.unit.max_rows) for node in called)


def is_clipped(node: exp.Expr, statement: Statement, most: int) -> bool:
    """Whether what a unit of so many rows adds to a group is clipped."""
    clip = clip_of(node, statement.clips, statement.fragment)
    if clip is None or isinstance(clip, RowBounds) or isinstance(node.this, exp.Distinct):
        return False
    is_sum = isinstance(node, exp.Sum | exp.Avg)
    return is_sum or (isinstance(node, exp.Count) and (clip[1] < most or clip[0] > 1))


def may_differ(node: exp.Expr, table: Table) -> bool:
    """Whether what may compare columns needs such a column, in a SELECT over a table."""
    if table.public or table.unit.column is None:
        return False
    ends = [node.args.get(key) for key in ("expression", "low", "high")]
    is_open = any(each is not None and each.find(exp.Column) is not None for each in ends)
    return is_open and any(column.size > MAX_PRODUCTS for column in table.columns.values())
