"""A parsed SELECT and the catalog -> a logical query, or a refusal by name with a caret."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.catalog.catalog import PublicRows
from dpsql.errors import NotSupportedError
from dpsql.sql.cells.evaluate import Evaluator
from dpsql.sql.groups.keys import Keys
from dpsql.sql.measures.aggregates import Aggregates, Builder
from dpsql.sql.products import Compiler
from dpsql.sql.public.public_joins import JoinReader, joined_listing, lookups
from dpsql.sql.query import Expression, Query
from dpsql.sql.relations import MeasuredSelect
from dpsql.sql.scope import Scope, condition
from dpsql.sql.shell.expressions import refuse_rows
from dpsql.sql.shell.language import Locate, locate, refuse
from dpsql.sql.shell.over_cells import CellExpressions
from dpsql.sql.text.clauses import Clips, Cut
from dpsql.sql.text.depth import too_deep
from dpsql.sql.text.lexemes import Fragment
from dpsql.sql.text.parse import Statement

_WORKS = "one private table with WHERE, GROUP BY, HAVING, ORDER BY and LIMIT works"

CLAUSES = {
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "qualify",
    "order",
    "limit",
    "offset",
}
_REFUSED = {
    "with_": ("E_CTE", "WITH"),
    "laterals": ("E_JOIN", "LATERAL"),
    "sample": ("E_SAMPLE", "sampling"),
    "distinct": ("E_AGGREGATE", "SELECT DISTINCT of rows"),
    "windows": ("E_WINDOW", "a window that is named twice"),
    "pivots": ("E_STATEMENT", "PIVOT"),
}

_INSTEAD = {
    "distinct": "SELECT DISTINCT a, b FROM t names the columns, and COUNT(*) ... GROUP BY a, b "
    "counts their rows",
}


def no_public_rows(table: Table) -> dict[str, tuple[str, Sequence[Any]]]:
    """The reader of public tables where there are none to read."""
    raise NotSupportedError("E_JOIN", f"the public table {table.name} cannot be read here")


def bind(
    tree: exp.Select,
    fragment: Fragment,
    catalog: Catalog,
    public: PublicRows = no_public_rows,
    clips: Clips | None = None,
    known: dict[Hashable, Expression] | None = None,
    cut: Cut | None = None,
    evaluator: Evaluator | None = None,
    *,
    is_clipped: bool = False,
) -> Query:
    """Bind names and types of a SELECT over one private table; refuse what is not understood.

    ``clips`` are the contribution bounds of aggregates, by where they stand in the text, ``cut``
    says where a column is clipped in all of them;
    ``known`` keeps conditions for the statements that follow, ``evaluator`` works out what is
    public. Where ``is_clipped``, a threshold is chosen for sums of values: there are no others.
    Raises: ProgrammingError or NotSupportedError with a stable code, a caret and a hint.
    """
    try:
        _check_clauses(tree, lambda node: locate(node, fragment))
        kept, values = {} if known is None else known, evaluator or Evaluator()

        def read(tree: exp.Select) -> Scope:
            reader = JoinReader(tree, fragment, catalog, public)
            return reader.scope(clips or {}, cut, kept, values)

        scope = read(tree)
        if not _may_couple(tree):
            return _bind(tree, scope, is_clipped)
        from dpsql.sql.groups.coupled_keys import with_lists  # most keys are columns

        listed = with_lists(tree, scope)
        return _bind(listed, scope if listed is tree else read(listed), is_clipped)
    except RecursionError:
        raise too_deep() from None


def leaf_of(
    tree: exp.Select, node: exp.Expr, statement: Statement, compiler: Compiler, public: PublicRows
) -> MeasuredSelect:
    """A SELECT of a statement, bound; ``node`` is what it is as it is written."""
    place, facts = (tree, statement.fragment, compiler.catalog, public), compiler.evaluator
    known = (statement.clips, compiler.known, statement.cut, facts)
    is_clipped = bool(statement.options) and statement.is_clipped
    return MeasuredSelect(
        bind(*place, *known, is_clipped=is_clipped), node, as_written=tree is node
    )


def _may_couple(tree: exp.Select) -> bool:
    """True if a key of GROUP BY may be over several columns, as some item or element is."""
    group = tree.args.get("group")
    parts = () if group is None else (*tree.expressions, *group.expressions)
    return any(len({*part.find_all(exp.Column)}) > 1 for part in parts)


def _further(of_distinct: bool) -> Mapping[type[exp.Expr], Builder]:
    """The builders of aggregates that most statements do without."""
    if of_distinct:
        from dpsql.sql.measures.distinct_aggregates import OF_DISTINCTS

        return OF_DISTINCTS
    from dpsql.sql.measures.entropy import OF_VALUES
    from dpsql.sql.measures.moments import OF_MOMENTS

    return {**OF_MOMENTS, **OF_VALUES}


def _bind(tree: exp.Select, scope: Scope, is_clipped: bool) -> Query:
    where = tuple(condition(scope, test) for test in scope.where)
    listing = joined_listing(scope)
    keys = Keys(tree, scope)
    aggregates = Aggregates(scope, _further, None if is_clipped else tree)
    shell = CellExpressions(tree, scope, keys, aggregates).shell()
    if not aggregates.found and not keys.found:
        refuse_rows(tree.expressions[0], scope.locate)
    return Query(
        scope.table.name.casefold(),
        where,
        tuple(keys.found),
        tuple(aggregates.found),
        shell,
        scope.fragment.body,
        keys.sets,
        lookups(scope, tree),
        listing,
    )


def _check_clauses(tree: exp.Select, here: Locate) -> None:
    args = {key: value for key, value in tree.args.items() if value}
    for key, (code, what) in _REFUSED.items():
        if key in args:
            if code == "E_JOIN" and args[key][0].find(exp.Unnest):
                code, what = "E_TABLE_FUNCTION", "UNNEST"
            refuse(args[key], code, what, _INSTEAD.get(key, _WORKS), here)
    for key, value in args.items():
        if key not in CLAUSES:
            refuse(value, "E_STATEMENT", key.strip("_").upper(), _WORKS, here)
