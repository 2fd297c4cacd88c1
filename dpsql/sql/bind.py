"""A parsed SELECT and the catalog -> a logical query, or a refusal by name with a caret."""

from __future__ import annotations

from collections.abc import Hashable

from sqlglot import exp

from dpsql.catalog import Catalog, Table
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.sql.aggregates import Aggregates
from dpsql.sql.clauses import Clips, Cut
from dpsql.sql.conditions import condition
from dpsql.sql.keys import Keys
from dpsql.sql.lexemes import Fragment
from dpsql.sql.names import PublicRows, Scope, locate
from dpsql.sql.over_cells import CellExpressions
from dpsql.sql.query import Condition, Query
from dpsql.sql.sources import lookups, open_scope

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
    "distinct": ("E_AGGREGATE", "SELECT DISTINCT"),
    "windows": ("E_WINDOW", "WINDOW"),
    "pivots": ("E_STATEMENT", "PIVOT"),
}


def no_public_rows(table: Table) -> dict[str, tuple[str, list[object]]]:
    """The reader of public tables where there are none to read."""
    raise NotSupportedError("E_JOIN", f"the public table {table.name} cannot be read here")


def bind(
    tree: exp.Select,
    fragment: Fragment,
    catalog: Catalog,
    public: PublicRows = no_public_rows,
    clips: Clips | None = None,
    known: dict[Hashable, Condition] | None = None,
    cut: Cut | None = None,
) -> Query:
    """Bind names and types of a SELECT over one private table; refuse what is not understood.

    ``clips`` are the contribution bounds of aggregates, by where they stand in the text, ``cut``
    says where a column is clipped in all of them;
    ``known`` keeps conditions for the statements that follow.
    Raises: ProgrammingError or NotSupportedError with a stable code, a caret and a hint.
    """
    try:
        _check_clauses(tree, fragment)
        scope = open_scope(tree, fragment, catalog, public)
        scope.clips, scope.cut = clips or {}, cut
        scope.known = {} if known is None else known
        return _bind(tree, scope)
    except RecursionError:
        raise ProgrammingError("E_TOO_COMPLEX", "the statement is nested too deeply") from None


def _bind(tree: exp.Select, scope: Scope) -> Query:
    where = tuple(condition(scope, test) for test in scope.where)
    keys = Keys(tree, scope)
    aggregates = Aggregates(scope)
    shell = CellExpressions(tree, scope, keys, aggregates).shell()
    if not aggregates.found:
        raise ProgrammingError(
            "E_NO_AGGREGATE",
            "rows cannot be returned, only aggregates",
            hint="SELECT COUNT(*) FROM ..., with GROUP BY for one count per value",
            span=scope.locate(tree.expressions[0]),
        )
    return Query(
        scope.table.name.casefold(),
        where,
        tuple(keys.found),
        tuple(aggregates.found),
        shell,
        scope.fragment.body,
        keys.sets,
        lookups(scope),
    )


def _check_clauses(tree: exp.Select, fragment: Fragment) -> None:
    args = {key: value for key, value in tree.args.items() if value}
    for key, (code, what) in _REFUSED.items():
        if key in args:
            _refuse_clause(args[key], code, what, fragment)
    for key, value in args.items():
        if key not in CLAUSES:
            _refuse_clause(value, "E_STATEMENT", key.strip("_").upper(), fragment)
    if not tree.expressions:
        raise ProgrammingError(
            "E_PARSE",
            "nothing is selected",
            hint="SELECT COUNT(*) FROM ...",
            span=locate(tree, fragment),
        )
    if "from_" not in args:
        raise ProgrammingError(
            "E_NO_TABLE",
            "there is no FROM",
            hint="constants need no engine; SELECT COUNT(*) FROM table",
            span=locate(tree, fragment),
        )


def _refuse_clause(value: object, code: str, what: str, fragment: Fragment) -> None:
    node = value[0] if isinstance(value, list) else value
    if code == "E_JOIN" and isinstance(node, exp.Expr) and node.find(exp.Unnest):
        code, what = "E_TABLE_FUNCTION", "UNNEST"
    raise NotSupportedError(
        code,
        f"{what} is not supported",
        hint="one private table with WHERE, GROUP BY, HAVING, ORDER BY and LIMIT works",
        span=locate(node, fragment) if isinstance(node, exp.Expr) else None,
    )
