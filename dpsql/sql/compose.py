"""A statement -> the SELECTs over private tables that it is made of, compiled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.catalog.joint_keys import joint_columns
from dpsql.errors import ProgrammingError, printable
from dpsql.sql.beside_answers import beside
from dpsql.sql.bind import bind
from dpsql.sql.bounded import needs_bounds
from dpsql.sql.common_conditions import apart
from dpsql.sql.compared import compared
from dpsql.sql.compiled import Compiled, Select
from dpsql.sql.contributions import Contributions
from dpsql.sql.correlated import decorrelated
from dpsql.sql.counted_sides import counted
from dpsql.sql.differences import COMPARED, may_differ
from dpsql.sql.distinct_keys import grouped
from dpsql.sql.earlier_items import named_items
from dpsql.sql.expressions import refuse_rows
from dpsql.sql.half_joins import as_conditions
from dpsql.sql.item_lookups import over_groups
from dpsql.sql.keys_together import together
from dpsql.sql.language import locate
from dpsql.sql.natural_joins import has_natural
from dpsql.sql.own_ids import compared_with_own
from dpsql.sql.parse import FORM, Statement, parse
from dpsql.sql.per_unit import refuse_units
from dpsql.sql.pivots import write_out_pivots
from dpsql.sql.products import Compiler
from dpsql.sql.qualified import unqualified
from dpsql.sql.ranked_columns import RANKS
from dpsql.sql.relations import Leaf, PrivateRows, PublicRows, read_from
from dpsql.sql.scalar_lookups import looked_up
from dpsql.sql.tuple_lists import without_tuples

if TYPE_CHECKING:
    from dpsql.sql.shape import Shape

_RELATING = (exp.Join, exp.Exists, exp.Or, exp.In, exp.EQ, exp.NEQ, exp.SetOperation)
"""What may bring rows together."""


def compile_statement(statement: Statement, compiler: Compiler, public: PublicRows) -> Compiled:
    """Bind and compile a statement.

    Raises: ProgrammingError or NotSupportedError with a stable code, a caret and a hint.
    """
    known = recalled(statement, compiler) if statement.tree is None else None
    if known is not None:
        return known
    if statement.tree is None:
        statement = replace(parse(statement.fragment), parts=statement.parts)
    assert statement.tree is not None
    tree = unqualified(statement.tree, compiler.catalog)
    if tree.find(exp.Pivot) is not None:
        tree = write_out_pivots(tree, compiler.catalog, lambda x: locate(x, statement.fragment))
    if tree.find(exp.Subquery) is not None:
        tree = looked_up(tree, compiler.catalog, public)
    if tree.find(*_RELATING) is not None:
        tree = _related(tree, compiler.catalog)
    tree = together(grouped(tree, compiler.catalog), compiler.catalog)
    tree = beside(tree, compiler.catalog)
    tree = over_groups(compared(tree, compiler.catalog), compiler.catalog)
    tree = decorrelated(tree, compiler.catalog)
    contributions = Contributions.read(statement.fragment, statement.options)
    tree = contributions.filtered(tree, compiler.catalog)
    flat = isinstance(tree, exp.Select) and _is_flat(tree, compiler, statement)
    compiled = (_compiled_flat if flat else _compiled)(statement, tree, compiler, public)
    for select in compiled.selects:
        contributions.check(select, compiler.evaluator)
    _check_syntax(statement, compiler)
    if flat and tree is statement.tree:
        _learn(statement, compiled.selects[0], compiler)
    return compiled


def _related(tree: exp.Expr, catalog: Catalog) -> exp.Expr:
    """Conditions and set operations that bring rows together, in the forms that are read."""
    tree = compared_with_own(without_tuples(tree, catalog), catalog)
    if tree.find(exp.Join, exp.Exists, exp.Or) is not None:
        tree = as_conditions(apart(tree), catalog)
    return tree if tree.find(exp.SetOperation) is None else counted(tree, catalog)


def recalled(statement: Statement, compiler: Compiler) -> Compiled | None:
    """A statement of known parts, compiled; None where one is not, or something is wrong."""
    body = statement.fragment.body
    query = None if statement.parts is None else compiler.parts.query(statement.parts, body)
    try:
        return None if query is None else Compiled(body, (compiler.compile(query),))
    except ProgrammingError:
        return None  # read in full, it is refused with a caret in its own text


def _learn(statement: Statement, select: Select, compiler: Compiler) -> None:
    """Learn the parts of a statement over one table, where none depends on another."""
    parts, query = statement.parts, select.query
    apart = not query.lookups and query.listing is None and not joint_columns(select.table)
    if parts is not None and apart and statement.cut is None:
        compiler.parts.learn(parts, query)


def _compiled_flat(
    statement: Statement, tree: exp.Expr, compiler: Compiler, public: PublicRows
) -> Compiled:
    assert isinstance(tree, exp.Select)
    fragment, clips, known = statement.fragment, statement.clips, compiler.known
    place = (tree, fragment, compiler.catalog)
    query = bind(*place, public, clips, known, statement.cut, compiler.evaluator)
    return Compiled(fragment.body, (compiler.compile(query),))


def _compiled(
    statement: Statement, tree: exp.Expr, compiler: Compiler, public: PublicRows
) -> Compiled:
    from dpsql.sql.shape import Shape  # and 33 more modules, which one flat SELECT does not need

    try:
        return _compose(Shape(statement, compiler, public), tree)
    except RecursionError:
        raise ProgrammingError("E_TOO_COMPLEX", "the statement is nested too deeply") from None


def _check_syntax(statement: Statement, compiler: Compiler) -> None:
    """Refuse what is no SQL to DuckDB itself: our parser reads past some mistakes.

    Raises: ProgrammingError (E_PARSE).
    """
    if statement.form in compiler.forms:
        return
    found = compiler.evaluator.sealed.find_error(statement.sql)
    if found is None:
        compiler.forms.add(statement.form)
    else:
        text, place = found
        start = len(statement.sql.encode()[:place].decode(errors="ignore"))
        word = re.match(r"\w+|.|", statement.sql[start:], re.DOTALL)
        end = start + max(1, len(word.group()) if word else 1)
        span = statement.fragment.span(start, end)
        hint = _quoted_name(statement.sql[:start], compiler.catalog) or FORM
        raise ProgrammingError("E_PARSE", printable(text), hint=hint, span=span)


def _quoted_name(before: str, catalog: Catalog) -> str | None:
    """The hint where the last word before a mistake is the name of a column: SQL has a use for it.

    Such a name may be AT, END or ORDER.
    """
    word = re.search(r"(\w+)\s*$", before)
    if word is None or not any(word[1].casefold() in t.columns for t in catalog.tables.values()):
        return None
    return f'a name that is a word of SQL is quoted: "{word[1]}"'


def _compose(shape: Shape, tree: exp.Expr) -> Compiled:
    found = shape.relation(tree, {})
    body = shape.statement.fragment.body
    if isinstance(found, Leaf):
        shape.check_unused()
        return Compiled(body, (shape.compiler.compile(found.query),))
    if isinstance(found, PrivateRows):
        if tree.args.get("group"):
            refuse_units(tree, shape.locate)
        refuse_rows(tree, shape.locate)
    known = shape.tables.known(found)
    shape.check_unused()
    return Compiled(body, tuple(shape.tables.selects), shape.tables.outside(known))


def _is_flat(tree: exp.Select, compiler: Compiler, statement: Statement) -> bool:
    """Whether a SELECT is over tables of the catalog alone, one of them private or unknown."""
    has_aliases = any(isinstance(each, exp.Alias) for each in tree.expressions)
    if tree.args.get("with_") or (has_aliases and named_items(tree)):
        return False
    if tree.args.get("joins") and has_natural(tree):
        return False
    found = list(tree.find_all(exp.Query, exp.Table, exp.AtTimeZone, *COMPARED))
    if any(isinstance(part, exp.Query | exp.AtTimeZone) and part is not tree for part in found):
        return False
    tables = compiler.catalog.tables
    names = [part.name.casefold() for part in found if isinstance(part, exp.Table)]
    if any(name in compiler.catalog.views and name not in tables for name in names):
        return False
    known = [tables[name] for name in names if name in tables]
    if any(needs_bounds(statement, tree, table) or _asks_keys(tree, table) for table in known):
        return False
    if _ranks_several(tree) and any(table.unit.column for table in known):
        return False
    compared = [part for part in found if isinstance(part, COMPARED)]
    if any(may_differ(part, table) for part in compared for table in known):
        return False
    if sum(not table.public for table in known) > 1 or _keeps_public(tree, tables):
        return False
    return len(known) < len(names) or not known or not all(table.public for table in known)


def _ranks_several(tree: exp.Select) -> bool:
    """Whether a quantile is of several columns."""
    for node in tree.find_all(*RANKS):
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
    element = read_from(tree)[-1]
    join, table = element.join, tables.get(element.node.name.casefold())
    is_list = isinstance(element.node, exp.Values)
    if join is None or (table is None and not is_list):
        return False
    return join.side == ("RIGHT" if table is None or table.public else "LEFT")
