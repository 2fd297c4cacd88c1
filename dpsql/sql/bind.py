"""A parsed SELECT and the catalog -> a logical query, or a refusal by name with a caret."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from dpsql.catalog import Catalog, Column, Table
from dpsql.errors import NotSupportedError, ProgrammingError, Span, printable
from dpsql.sql.allowed import PARTIAL, check_scalar, written_name
from dpsql.sql.edges import check_edges, check_literals
from dpsql.sql.growth import check_growth
from dpsql.sql.lexemes import Fragment
from dpsql.sql.outer import Outer
from dpsql.sql.parse import Statement
from dpsql.sql.query import Aggregate, Expression, Query

_CLAUSES = {
    "expressions",
    "from_",
    "where",
    "group",
    "having",
    "order",
    "limit",
    "offset",
}
_REFUSED = {
    "with_": ("E_CTE", "WITH"),
    "joins": ("E_JOIN", "a join"),
    "laterals": ("E_JOIN", "LATERAL"),
    "sample": ("E_SAMPLE", "sampling"),
    "distinct": ("E_AGGREGATE", "SELECT DISTINCT"),
    "qualify": ("E_WINDOW", "QUALIFY"),
    "windows": ("E_WINDOW", "WINDOW"),
    "pivots": ("E_STATEMENT", "PIVOT"),
}


def bind(statement: Statement, catalog: Catalog) -> Query:
    """Bind names and types of a SELECT; refuse what is not understood.

    Raises: ProgrammingError or NotSupportedError with a stable code, a caret and a hint.
    """
    tree = statement.tree
    assert tree is not None
    try:
        return _Binder(tree, statement.fragment, catalog).query()
    except RecursionError:
        raise ProgrammingError("E_TOO_COMPLEX", "the statement is nested too deeply") from None


@dataclass
class _Binder:
    """The names in scope while one SELECT is bound."""

    tree: exp.Select
    fragment: Fragment
    catalog: Catalog
    table: Table = field(init=False)
    aliases: set[str] = field(init=False)
    aggregates: list[Aggregate] = field(default_factory=list)

    def query(self) -> Query:
        self.check_clauses()
        self.table, self.aliases = self.find_table()
        where = self.conjunction(self.tree.args.get("where"))
        keys = self.group_keys()
        outer = Outer(self.tree, keys, self)
        shell = outer.shell()
        if not self.aggregates:
            raise ProgrammingError(
                "E_NO_AGGREGATE",
                "rows cannot be returned, only aggregates",
                hint="SELECT COUNT(*) FROM ..., with GROUP BY for one count per value",
                span=self.locate(self.tree.expressions[0]),
            )
        return Query(
            self.table.name.casefold(),
            where,
            keys,
            tuple(self.aggregates),
            shell,
            self.fragment.body,
        )

    def locate(self, node: exp.Expr) -> Span:
        """The span of text that ``node`` was parsed from, as well as the parser remembers it."""
        metas = [part.meta for part in node.walk() if "start" in part.meta]
        if not metas:
            parent = node.parent
            return self.locate(parent) if parent is not None else self.fragment.span(0, 1)
        start = min(meta["start"] for meta in metas)
        return self.fragment.span(start, max(meta["end"] for meta in metas) + 1)

    def check_clauses(self) -> None:
        args = {key: value for key, value in self.tree.args.items() if value}
        for key, (code, what) in _REFUSED.items():
            if key in args:
                self.refuse_clause(args[key], code, what)
        for key, value in args.items():
            if key not in _CLAUSES:
                self.refuse_clause(value, "E_STATEMENT", key.strip("_").upper())
        if "from_" not in args:
            raise ProgrammingError(
                "E_NO_TABLE",
                "there is no FROM",
                hint="constants need no engine; SELECT COUNT(*) FROM table",
                span=self.locate(self.tree),
            )

    def refuse_clause(self, value: object, code: str, what: str) -> NoReturn:
        node = value[0] if isinstance(value, list) else value
        if code == "E_JOIN" and isinstance(node, exp.Expr) and node.find(exp.Unnest):
            code, what = "E_TABLE_FUNCTION", "UNNEST"
        raise NotSupportedError(
            code,
            f"{what} is not supported",
            hint="one private table with WHERE, GROUP BY, HAVING, ORDER BY and LIMIT works",
            span=self.locate(node) if isinstance(node, exp.Expr) else None,
        )

    def find_table(self) -> tuple[Table, set[str]]:
        source = self.tree.args["from_"].this
        if isinstance(source, exp.Subquery | exp.Values):
            self.refuse_clause(source, "E_SUBQUERY", "a sub-query in FROM")
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            self.refuse_clause(source, "E_TABLE_FUNCTION", "a table function")
        for key, value in source.args.items():
            if value and key not in ("this", "alias", "db", "catalog"):
                known = {"sample": ("E_SAMPLE", "sampling"), "joins": ("E_JOIN", "a join")}
                self.refuse_clause(source, *known.get(key, ("E_STATEMENT", key.upper())))
        name = source.name
        table = self.catalog.tables.get(name.casefold())
        if table is None or source.args.get("db"):
            full = ".".join(part.name for part in source.parts)
            raise ProgrammingError(
                "E_UNKNOWN_TABLE",
                f"there is no table {printable(full)!r} in the catalog",
                hint=_suggest(name, [t.name for t in self.catalog.tables.values()], "tables"),
                span=self.locate(source),
            )
        if table.public:
            self.refuse_clause(source, "E_JOIN", f"the public table {table.name} alone")
        alias = source.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            self.refuse_clause(alias, "E_STATEMENT", "renaming columns in FROM")
        if alias is not None and not isinstance(alias.this, exp.Identifier):
            self.refuse_clause(source, "E_STATEMENT", "this alias in FROM")
        return table, {(alias.name if alias is not None else name).casefold()}

    def conjunction(self, where: exp.Expr | None) -> tuple[Expression, ...]:
        """Split WHERE at its ANDs; every part may touch one column."""
        if where is None:
            return ()
        parts = [where.this]
        conditions: list[Expression] = []
        while parts:
            node = parts.pop()
            inner = node.unnest()
            if isinstance(inner, exp.And):
                parts += [inner.expression, inner.this]
            else:
                conditions.append(self.condition(node))
        return tuple(conditions)

    def condition(self, node: exp.Expr) -> Expression:
        """Bind a condition over at most one column."""
        column = self.single_column(
            node, "E_PREDICATE", "a condition over two columns", "join conditions by AND"
        )
        if column is not None:
            check_literals(column, node, self.locate)
            check_edges(column, node, self.locate)
        return self.expression(column, node)

    def group_keys(self) -> tuple[Expression, ...]:
        group = self.tree.args.get("group")
        if group is None:
            return ()
        extra = [k for k, v in group.args.items() if v and k not in ("expressions", "all")]
        nodes = group.expressions
        for node in nodes:
            if isinstance(node, exp.Cube | exp.Rollup | exp.GroupingSets):
                self.refuse_clause(node, "E_GROUP_BY", str(node.key).upper())
        if extra:
            self.refuse_clause(group, "E_GROUP_BY", extra[0].upper())
        if group.args.get("all"):
            items = [item.unalias() for item in self.tree.expressions]
            nodes = [item for item in items if not _has_aggregate(item)]
        keys: list[Expression] = []
        for node in nodes:
            key = self.key(self.resolve_key(node))
            if key not in keys:
                keys.append(key)
        return tuple(keys)

    def resolve_key(self, node: exp.Expr) -> exp.Expr:
        """Follow a position or an alias in GROUP BY to the select item it names."""
        items = self.tree.expressions
        if isinstance(node, exp.Literal) and not node.is_string:
            position = int(node.name) if node.name.isdigit() else 0
            if not 1 <= position <= len(items):
                raise ProgrammingError(
                    "E_GROUP_BY",
                    f"GROUP BY {node.name}: there are {len(items)} select items",
                    span=self.locate(node),
                )
            return items[position - 1].unalias()  # type: ignore[no-any-return]
        if isinstance(node, exp.Column) and not node.table:
            name = node.name.casefold()
            if name not in self.table.columns:
                for item in items:
                    if isinstance(item, exp.Alias) and item.alias.casefold() == name:
                        return item.this  # type: ignore[no-any-return]
        return node

    def key(self, node: exp.Expr) -> Expression:
        if _has_aggregate(node):
            raise ProgrammingError(
                "E_GROUP_BY", "an aggregate cannot be a grouping key", span=self.locate(node)
            )
        column = self.single_column(
            node, "E_GROUP_BY", "a key over two columns", "group by the columns themselves"
        )
        if column is None:
            raise ProgrammingError(
                "E_GROUP_BY",
                "a constant is not a grouping key",
                hint="group by a column or an expression over one column",
                span=self.locate(node),
            )
        check_edges(column, node, self.locate, grouping=True)
        return self.expression(column, node)

    def single_column(self, node: exp.Expr, code: str, what: str, instead: str) -> Column | None:
        """The one column that ``node`` mentions, or None; refuse two."""
        check_scalar(node, self.locate)
        columns = {}
        for reference in node.find_all(exp.Column):
            column = self.find_column(reference)
            columns[column.name] = column
        if len(columns) > 1:
            raise NotSupportedError(
                code,
                f"{what} is not supported ({', '.join(sorted(columns))})",
                hint=instead,
                span=self.locate(node),
            )
        only = next(iter(columns.values()), None)
        check_growth(only, node, self.locate)
        return only

    def find_column(self, reference: exp.Column) -> Column:
        """Resolve a column reference against the declared columns."""
        name, qualifier = reference.name, reference.table
        column = self.table.columns.get(name.casefold())
        if qualifier and qualifier.casefold() not in self.aliases:
            raise ProgrammingError(
                "E_UNKNOWN_TABLE",
                f"there is no table {printable(qualifier)!r} in this statement",
                hint=_suggest(qualifier, sorted(self.aliases), "tables"),
                span=self.locate(reference),
            )
        if column is None:
            declared = [c.name for c in self.table.columns.values()]
            raise ProgrammingError(
                "E_UNKNOWN_COLUMN",
                f"there is no column {printable(name)!r} in table {self.table.name}",
                hint=_suggest(name, declared, "columns"),
                span=self.locate(reference),
            )
        if column.domain is None:
            reason = "is a measure with bounds" if column.bounds else "has no declared domain"
            remedy = "declare a domain (or bins) for it in the catalog"
            raise ProgrammingError(
                "E_DOMAIN",
                f"column {column.name} {reason}: it cannot be used in a predicate or GROUP BY",
                hint=remedy,
                span=self.locate(reference),
            )
        return column

    def expression(self, column: Column | None, node: exp.Expr) -> Expression:
        """Render ``node`` over the name ``v``; partial functions must not give NaN."""
        tree = node.copy()
        for reference in list(tree.find_all(exp.Column)):
            value = exp.column("v")
            if reference is tree:
                tree = value
            else:
                reference.replace(value)
        for partial in list(tree.find_all(*PARTIAL)):
            text = partial.sql("duckdb", comments=False)
            guarded = exp.Var(
                this=f"(CASE WHEN isnan(CAST({text} AS DOUBLE)) THEN error('not a number') "
                f"ELSE {text} END)"
            )
            if partial is tree:
                tree = guarded
            elif partial.find_ancestor(*PARTIAL) is None:
                partial.replace(guarded)
        name = column.name.casefold() if column is not None else None
        return Expression(name, tree.sql("duckdb", comments=False, copy=False), self.locate(node))

    def aggregate(self, node: exp.Expr) -> int | None:
        """The index of the aggregate that ``node`` is, or None if it is none."""
        conditions: tuple[Expression, ...] = ()
        if isinstance(node, exp.Filter):
            if not isinstance(node.expression, exp.Where):
                return None
            conditions = self.conjunction(node.expression)
            node = node.this
        if isinstance(node, exp.Count):
            conditions += self.counted(node)
        elif isinstance(node, exp.CountIf):
            conditions += self.conjunction(exp.Where(this=node.this))
        elif isinstance(node, exp.Sum) and (indicator := _indicator(node.this)) is not None:
            conditions += self.conjunction(exp.Where(this=indicator))
        elif isinstance(node, exp.AggFunc):
            self.refuse_aggregate(node)
        else:
            return None
        found = Aggregate(tuple(sorted(set(conditions), key=lambda c: (c.column or "", c.sql))))
        if found not in self.aggregates:
            self.aggregates.append(found)
        return self.aggregates.index(found)

    def counted(self, node: exp.Count) -> tuple[Expression, ...]:
        """The condition that COUNT(...) adds: none for *, IS NOT NULL for an expression."""
        inner = node.this
        if node.args.get("expressions") or isinstance(inner, exp.Distinct) or inner is None:
            self.refuse_aggregate(node)
        if isinstance(inner, exp.Star):
            return ()
        if isinstance(inner, exp.Literal):
            return ()
        wrapped = exp.Not(this=exp.Is(this=exp.paren(inner.copy()), expression=exp.Null()))
        return (self.condition(wrapped),)

    def refuse_aggregate(self, node: exp.Expr) -> NoReturn:
        name = written_name(node, self.locate)
        what = f"{name}(DISTINCT)" if node.find(exp.Distinct) else f"{name}()"
        raise NotSupportedError(
            "E_AGGREGATE",
            f"the aggregate {what} is not supported",
            hint="COUNT(*), COUNT(column), COUNT(*) FILTER (WHERE ...) and "
            "SUM(CASE WHEN ... THEN 1 ELSE 0 END) work",
            span=self.locate(node),
        )


def _has_aggregate(node: exp.Expr) -> bool:
    return node.find(exp.AggFunc) is not None


def _indicator(node: exp.Expr) -> exp.Expr | None:
    """The condition p of CASE WHEN p THEN 1 [ELSE 0] END, if ``node`` has that form."""
    node = node.unnest()
    if not isinstance(node, exp.Case) or node.this is not None or len(node.args["ifs"]) != 1:
        return None
    default = node.args.get("default")
    branch = node.args["ifs"][0]
    one, zero = exp.Literal.number(1), exp.Literal.number(0)
    if branch.args["true"] != one or default not in (zero, None):
        return None
    return branch.this  # type: ignore[no-any-return]


def _suggest(name: str, known: list[str], kind: str) -> str:
    near = difflib.get_close_matches(name.casefold(), [k.casefold() for k in known], n=1)
    if near:
        return f"did you mean {next(k for k in known if k.casefold() == near[0])}?"
    return f"{kind}: {', '.join(known[:20])}{', ...' if len(known) > 20 else ''}"
