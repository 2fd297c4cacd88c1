"""A statement -> the SELECTs over private tables that it is made of, compiled.

What rewrites a statement is imported where a statement has it, which most have not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.catalog import Catalog
from dpsql.catalog.joint_keys import joint_columns
from dpsql.errors import ProgrammingError, printable
from dpsql.records import replace
from dpsql.sql.bind import bind
from dpsql.sql.collector import ended_anywhere
from dpsql.sql.compiled import Compiled, Select
from dpsql.sql.contributions import Contributions
from dpsql.sql.depth import too_deep
from dpsql.sql.distinct_keys import grouped
from dpsql.sql.expressions import refuse_rows
from dpsql.sql.flat_select import is_flat
from dpsql.sql.keys_together import together
from dpsql.sql.language import locate
from dpsql.sql.parse import FORM, Statement, parse
from dpsql.sql.products import Compiler
from dpsql.sql.qualified import unqualified
from dpsql.sql.relations import Leaf, PrivateRows, PublicRows

if TYPE_CHECKING:
    from dpsql.sql.shape import Shape

_RELATING = (exp.Join, exp.Exists, exp.Or, exp.In, exp.EQ, exp.NEQ, exp.SetOperation)
"""What may bring rows together."""
_SEVERAL = (exp.Subquery, exp.CTE, exp.Exists, exp.SetOperation)
"""What a statement of several queries has."""


@ended_anywhere
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
        statement = replace(parse(statement.fragment), parts=statement.parts)
    assert statement.tree is not None
    tree = unqualified(statement.tree, compiler.catalog)
    if compiler.catalog.views:
        from dpsql.sql.declared_views import with_views

        tree = with_views(tree, compiler.catalog, lambda node: locate(node, statement.fragment))
    is_plain, asked = tree.find(exp.Pivot, exp.Subquery, *_RELATING) is None, tree
    if not is_plain and tree.find(exp.Pivot) is not None:
        from dpsql.sql.pivots import write_out_pivots

        facts = compiler.catalog, compiler.evaluator
        tree = asked = write_out_pivots(tree, *facts, lambda x: locate(x, statement.fragment))
    if tree.find(*_SEVERAL) is not None:
        from dpsql.sql.absent import existing

        tree = existing(tree, statement.fragment, compiler.catalog, public)
    is_asked = tree is not asked
    if not is_plain:
        tree = _written_out(tree, compiler, public)
    tree = together(grouped(tree, compiler.catalog), compiler.catalog)
    if not is_plain or tree is not asked:
        tree = _beside(tree, compiler.catalog, public)
    contributions = Contributions.read(statement.fragment, statement.options)
    tree = contributions.filtered(tree, compiler.catalog)
    flat = isinstance(tree, exp.Select) and is_flat(tree, compiler, statement)
    compiled = (_compiled_flat if flat else _compiled)(statement, tree, compiler, public)
    for select in compiled.selects:
        contributions.check(select, compiler.evaluator)
    if is_asked:
        from dpsql.sql.absent import NOTE

        first, *others = compiled.selects
        first = replace(first, decided=(*first.decided, NOTE))
        compiled = replace(compiled, selects=(first, *others))
    _check_syntax(statement, compiler)
    if flat and tree is statement.tree:
        _learn(statement, compiled.selects[0], compiler)
    return compiled


def _written_out(tree: exp.Expr, compiler: Compiler, public: PublicRows) -> exp.Expr:
    """Return the same without look-ups by sub-queries, and conditions that relate rows."""
    if tree.find(exp.Subquery) is not None:
        from dpsql.logical.bind.subqueries import SubqueryBinder
        from dpsql.sql.scalar_lookups import looked_up

        tree = looked_up(tree, SubqueryBinder(compiler.catalog, public), public)
    is_related = tree.find(*_RELATING, exp.Not, exp.Between) is not None
    return _related(tree, compiler.catalog, public) if is_related else tree


def _beside(tree: exp.Expr, catalog: Catalog, public: PublicRows) -> exp.Expr:
    """Return the same where sub-queries that are joined are answers beside the others."""
    if tree.find(exp.Join, exp.In) is not None:
        from dpsql.sql.beside_answers import beside

        tree = beside(tree, catalog)
    return tree if tree.find(exp.Subquery) is None else _outside(tree, catalog, public)


def _related(tree: exp.Expr, catalog: Catalog, public: PublicRows) -> exp.Expr:
    """Conditions and set operations that bring rows together, in the forms that are read."""
    from dpsql.sql.own_ids import compared_with_own
    from dpsql.sql.tuple_lists import without_tuples

    tree = compared_with_own(without_tuples(tree, catalog), catalog)
    if tree.find(exp.Join, exp.Exists, exp.Or, exp.Not, exp.Between) is not None:
        from dpsql.logical.bind.subqueries import SubqueryBinder
        from dpsql.sql.common_conditions import apart
        from dpsql.sql.half_joins import as_conditions

        tree = as_conditions(apart(tree), SubqueryBinder(catalog, public))
    return tree


def _outside(tree: exp.Expr, catalog: Catalog, public: PublicRows) -> exp.Expr:
    """Sub-queries that answers or groups are compared with, and those asked for each group."""
    from dpsql.logical.bind.subqueries import SubqueryBinder
    from dpsql.sql.compared import compared
    from dpsql.sql.correlated import decorrelated
    from dpsql.sql.item_lookups import over_groups

    binder = SubqueryBinder(catalog, public)
    return decorrelated(over_groups(compared(tree, binder), binder), binder)


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
    fragment, clips, cut = statement.fragment, statement.clips, statement.cut
    place, known, evaluator = (tree, fragment, compiler.catalog), compiler.known, compiler.evaluator
    is_clipped = bool(statement.options) and statement.is_clipped
    query = bind(*place, public, clips, known, cut, evaluator, is_clipped=is_clipped)
    return Compiled(fragment.body, (compiler.compile(query),))


def _compiled(
    statement: Statement, tree: exp.Expr, compiler: Compiler, public: PublicRows
) -> Compiled:
    from dpsql.sql.shape import Shape  # and 33 more modules, which one flat SELECT does not need

    return _compose(Shape(statement, compiler, public), tree)


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


def _compose(shape: Shape, tree: exp.Expr) -> Compiled:
    found = shape.relation(tree, {})
    body = shape.statement.fragment.body
    if isinstance(found, Leaf):
        shape.check_unused()
        return Compiled(body, (shape.compiler.compile(found.query),))
    if isinstance(found, PrivateRows):
        if tree.args.get("group"):
            from dpsql.sql.per_unit import refuse_units

            refuse_units(tree, shape.locate)
        refuse_rows(tree, shape.locate)
    known = shape.tables.known(found)
    shape.check_unused()
    return Compiled(body, tuple(shape.tables.selects), shape.tables.outside(known))
