"""A statement -> the SELECTs over private tables that it is made of, compiled.

What rewrites a statement is imported where a statement has it, which most have not.
"""

from __future__ import annotations

import re
from typing import TypeGuard

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.catalog.catalog import PublicRows
from dpsql.catalog.composite_keys import joint_columns
from dpsql.errors import ProgrammingError, printable
from dpsql.records import replace
from dpsql.sql.bind import leaf_of
from dpsql.sql.compiled import Compiled, Select
from dpsql.sql.dialects.contributions import Contributions
from dpsql.sql.groups.composite_keys import together
from dpsql.sql.groups.distinct_keys import grouped
from dpsql.sql.products import Compiler
from dpsql.sql.relations import MeasuredSelect
from dpsql.sql.rewrites.lateral_aliases import named_items
from dpsql.sql.rewrites.qualified import unqualified
from dpsql.sql.shell.language import locate
from dpsql.sql.text.cycle_collector import interruptible_anywhere
from dpsql.sql.text.depth import too_deep
from dpsql.sql.text.parse import FORM, Statement, parse

_RELATING = (exp.Join, exp.Exists, exp.Or, exp.In, exp.EQ, exp.NEQ, exp.SetOperation)
"""Nodes that may bring rows together."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
_PLAIN = frozenset(
    {
        *_COMPARISONS,
        *(exp.Select, exp.From, exp.Table, exp.Identifier, exp.Column, exp.Alias, exp.Literal),
        *(exp.Count, exp.Star, exp.Sum, exp.Avg, exp.Neg, exp.Paren, exp.And, exp.Or, exp.Not),
        *(exp.In, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit),
    }
)
"""Nodes with which no step of a SELECT over rows has anything to do."""
_SEVERAL = (exp.Subquery, exp.CTE, exp.Exists, exp.SetOperation)
"""Nodes of a statement of several queries."""


@interruptible_anywhere
def compile_statement(statement: Statement, compiler: Compiler, public: PublicRows) -> Compiled:
    """Bind and compile a statement.

    Raises: ProgrammingError or NotSupportedError with a stable code, a caret and a hint.
    """
    try:
        return _compile(statement, compiler, public)
    except RecursionError:
        raise too_deep() from None


def _compile(statement: Statement, compiler: Compiler, public: PublicRows) -> Compiled:
    known = recalled(statement, compiler) if statement.tree is None else None
    if known is not None:
        return known
    if statement.tree is None:
        again = parse(statement.fragment)
        statement = replace(again, parts=statement.parts, cut=statement.cut)
    assert statement.tree is not None
    tree = unqualified(statement.tree, compiler.catalog)
    if compiler.catalog.views:
        from dpsql.sql.rewrites.declared_views import with_views

        tree = with_views(tree, compiler.catalog, lambda node: locate(node, statement.fragment))
    if tree.find(exp.Anonymous) is not None:
        tree = _without_code_calls(tree, compiler.catalog, public, statement)
    is_plain, asked = tree.find(exp.Pivot, exp.Subquery, *_RELATING) is None, tree
    if not is_plain and tree.find(exp.Pivot) is not None:
        from dpsql.logical.bind.subqueries import SubqueryBinder
        from dpsql.sql.rewrites.pivots import write_out_pivots

        facts = SubqueryBinder(compiler.catalog, public), compiler.evaluator
        tree = asked = write_out_pivots(tree, *facts, lambda x: locate(x, statement.fragment))
    if tree.find(*_SEVERAL) is not None:
        from dpsql.sql.groups.absent_groups import existing

        tree = existing(tree, compiler.catalog, public)
    is_asked = tree is not asked
    if not is_plain:
        tree = _written_out(tree, compiler, public)
    tree = together(grouped(tree, compiler.catalog, public), compiler.catalog)
    if not is_plain or tree is not asked:
        tree = _beside(tree, compiler.catalog, public)
    contributions = Contributions.read(statement.fragment, statement.options)
    tree = contributions.filtered(tree, compiler.catalog, public)
    compiled, as_written = _compiled(statement, tree, compiler, public)
    for select in compiled.selects:
        contributions.check(select, compiler.evaluator)
    if is_asked:
        from dpsql.sql.groups.absent_groups import NOTE

        first, *others = compiled.selects
        first = replace(first, decided=(*first.decided, NOTE))
        compiled = replace(compiled, selects=(first, *others))
    _check_syntax(statement, compiler)
    if as_written and tree is statement.tree:
        _learn(statement, compiled.selects[0], compiler)
    return compiled


def _without_code_calls(
    tree: exp.Expr, catalog: Catalog, public: PublicRows, statement: Statement
) -> exp.Expr:
    """Return the same where no call asks for the label or the code of a column."""
    from dpsql.sql.rewrites.code_calls import is_code_call, without_code_calls

    if not any(map(is_code_call, tree.find_all(exp.Anonymous))):
        return tree
    from dpsql.logical.bind.subqueries import SubqueryBinder

    binder = SubqueryBinder(catalog, public)
    return without_code_calls(tree, binder, lambda node: locate(node, statement.fragment))


def _written_out(tree: exp.Expr, compiler: Compiler, public: PublicRows) -> exp.Expr:
    """Return the same without look-ups by sub-queries, and conditions that relate rows."""
    if tree.find(exp.Subquery) is not None:
        from dpsql.logical.bind.subqueries import SubqueryBinder
        from dpsql.sql.subqueries.correlated import join_public_lookups

        tree = join_public_lookups(tree, SubqueryBinder(compiler.catalog, public))
    if tree.find(exp.Join) is not None and tree.find(exp.Max, exp.Min, exp.AnyValue) is not None:
        from dpsql.logical.bind.subqueries import SubqueryBinder
        from dpsql.sql.public.public_values import with_public_values

        tree = with_public_values(tree, SubqueryBinder(compiler.catalog, public))
    is_related = tree.find(*_RELATING, exp.Not, exp.Between) is not None
    return _related(tree, compiler.catalog, public) if is_related else tree


def _beside(tree: exp.Expr, catalog: Catalog, public: PublicRows) -> exp.Expr:
    """Return the same where sub-queries that are joined are answers beside the others."""
    if tree.find(exp.Join, exp.In, exp.Subquery) is not None:
        from dpsql.logical.bind.subqueries import SubqueryBinder
        from dpsql.sql.subqueries.beside_answers import beside

        tree = beside(tree, SubqueryBinder(catalog, public))
    return tree if tree.find(exp.Subquery) is None else _outside(tree, catalog, public)


def _related(tree: exp.Expr, catalog: Catalog, public: PublicRows) -> exp.Expr:
    """Conditions and set operations that bring rows together, in the forms that are read."""
    from dpsql.logical.bind.subqueries import SubqueryBinder
    from dpsql.sql.subqueries.tuple_lists import without_tuples
    from dpsql.sql.units.unit_ids_in_rows import compared_with_own

    binder = SubqueryBinder(catalog, public)
    tree = compared_with_own(without_tuples(tree, binder), binder)
    if tree.find(exp.Join, exp.Exists, exp.Or, exp.Not, exp.Between) is not None:
        from dpsql.sql.rewrites.common_conditions import apart
        from dpsql.sql.subqueries.semi_anti_joins import as_conditions

        tree = as_conditions(apart(tree), binder)
    return tree


def _outside(tree: exp.Expr, catalog: Catalog, public: PublicRows) -> exp.Expr:
    """Sub-queries that answers or groups are compared with, and those asked for each group."""
    from dpsql.logical.bind.subqueries import SubqueryBinder
    from dpsql.sql.subqueries.correlated import decorrelated

    binder = SubqueryBinder(catalog, public)
    return decorrelated(tree, binder)


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


def is_plain(tree: exp.Expr, statement: Statement, catalog: Catalog) -> TypeGuard[exp.Select]:
    """True if a SELECT only counts, adds up, compares and groups declared columns of one table.

    It is compiled as it is written, without what reads other statements: ``Shape`` would make the
    same of it, and takes longer to import than the statement takes.
    """
    parts = list(tree.walk())
    if not isinstance(tree, exp.Select) or not _PLAIN.issuperset(map(type, parts)):
        return False
    if statement.options or statement.clips or named_items(tree):
        return False
    tables = [catalog.tables.get(p.name.casefold()) for p in parts if isinstance(p, exp.Table)]
    if len(tables) != 1 or tables[0] is None or tables[0].public:
        return False
    table, aliases = tables[0], {p.alias.casefold() for p in tree.expressions}
    keys = {name.casefold() for name in (*table.keys, table.unit.column or "")}
    known = (aliases | table.columns.keys()) - keys
    for part in parts:
        ends = [part.args.get(key) for key in ("expression", "low", "high")]
        is_open = isinstance(part, _COMPARISONS) and any(
            end and end.find(exp.Column) for end in ends
        )
        is_spread = isinstance(part, exp.Star) and not isinstance(part.parent, exp.Count)
        is_other = isinstance(part, exp.Column) and part.name.casefold() not in known
        if is_open or is_spread or is_other:
            return False
    return True


def _compiled(
    statement: Statement, tree: exp.Expr, compiler: Compiler, public: PublicRows
) -> tuple[Compiled, bool]:
    """Compile a statement; the flag says that its one SELECT was compiled as it is written."""
    if is_plain(tree, statement, compiler.catalog):
        leaf = leaf_of(tree, tree, statement, compiler, public)
    else:
        from dpsql.sql.shape import Shape  # and 33 more modules, which a plain SELECT does not need

        shape = Shape(statement, compiler, public)
        found = shape.whole(tree)
        if not isinstance(found, MeasuredSelect):
            known = shape.tables.known(found)
            shape.check_unused()
            body = statement.fragment.body
            return Compiled(body, tuple(shape.tables.selects), shape.tables.outside(known)), False
        shape.check_unused()
        leaf = found
    select = compiler.compile(leaf.query)
    return Compiled(statement.fragment.body, (select,)), leaf.as_written


def _check_syntax(statement: Statement, compiler: Compiler) -> None:
    """Refuse what is no SQL to DuckDB itself: our parser reads past some mistakes.

    Raises: ProgrammingError (E_PARSE).
    """
    if statement.form in compiler.forms:
        return
    found = compiler.evaluator.sealed.find_error(statement.sql)
    if found is None and statement.form:
        compiler.forms.add(statement.form)
    elif found is not None and statement.fragment.reader is not None:
        span = statement.fragment.whole()
        raise ProgrammingError("E_PARSE", printable(found[0]), hint=FORM, span=span)
    elif found is not None:
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
