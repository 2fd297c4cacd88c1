"""Expressions of a SELECT of the outer shell -> SQL over the columns of its layers, never an error.

``x0_1`` is column 1 of table 0 in FROM, ``y0_1`` its standard error, ``d0_1_2`` its slope 2 by a
cell of origin ``r0_...``; ``k0`` are keys, ``g0`` aggregates, ``w0`` windows, ``h_...`` the values
of sub-queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError, printable
from dpsql.sql.edges import check_growth
from dpsql.sql.language import Locate, check_aggregate, check_frame, check_node, check_window
from dpsql.sql.relations import Known, Names, find_alias
from dpsql.sql.whole import is_whole, marked, settled

MAX_LEFT = 5_000
HINT = "joins, WHERE, GROUP BY, windows, HAVING, ORDER BY and LIMIT work over aggregated results"


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """One table of FROM: the alias it has there, its column names and the join that adds it."""

    alias: str
    node: exp.Expr
    table: Known
    columns: tuple[str, ...]
    join: exp.Join | None

    def column(self, number: int, index: int) -> exp.Column:
        """Column ``index`` as one of table ``number`` of FROM."""
        return marked(exp.column(f"x{number}_{index}"), self.table.traits[index].is_whole)


class Expressions:
    """Rewrites the expressions of one SELECT over tables of the shell.

    ``query`` makes a table of a sub-query, given the names around it.
    """

    def __init__(
        self,
        select: exp.Select,
        sources: Sequence[Placed],
        locate: Locate,
        query: Callable[[exp.Expr, Names], Known],
        around: Names | None,
    ) -> None:
        self.select = select
        self.sources = sources
        self.locate = locate
        self.query = query
        self.names = Names(locate, parent=around)
        self.hoisted: dict[str, str] = {}
        self.scalars: dict[str, Known] = {}
        self.chosen = any(each.table.chosen for each in sources)
        self.public: set[str] = set()
        self.listed = 0
        self.windows: list[str] = []
        self.groups: list[str] = []
        self.sums: list[str] = []
        self.group_noise: list[bool] = []
        self.grouped = bool(select.args.get("group")) or has_aggregates(select)
        self.private = any(each.table.private for each in sources)

    def refuse(self, node: Any, code: str, what: str, hint: str = HINT) -> NoReturn:
        first = node[0] if isinstance(node, list) else node
        raise NotSupportedError(
            code,
            f"{what} is not supported over aggregated results",
            hint=hint,
            span=self.locate(first) if isinstance(first, exp.Expr) else None,
        )

    def rewrite(self, node: exp.Expr, grouped: bool, *, aliases: bool = False) -> exp.Expr:
        """A copy of ``node`` over the columns of the layer below it, checked against the lists."""
        tree = self.replace(node, grouped, aliases)
        check_growth(None, tree, self.locate)
        return tree

    def replace(self, node: exp.Expr, grouped: bool, aliases: bool) -> exp.Expr:
        if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation | exp.Exists):
            return self.value_of(node)
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self.membership(node, grouped, aliases)
        if isinstance(node, exp.Window):
            return self.window(node, grouped, aliases)
        if isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup | exp.IgnoreNulls):
            return self.aggregate(node, grouped)
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "dp_stddev":
            return self.stddev(node)
        if grouped:
            key = self.key(node)
            if key is not None:
                return key
        if isinstance(node, exp.Column):
            return self.column(node, grouped, aliases)
        check_node(node, self.locate)
        copy = type(node)(**{k: self.value(v, grouped, aliases) for k, v in node.args.items()})
        copy.meta.update(node.meta)
        if isinstance(copy, exp.Div):
            zero = exp.Literal.number(0)
            copy.set("expression", exp.Nullif(this=copy.expression, expression=zero))
        return settled(copy)

    def value(self, value: Any, grouped: bool, aliases: bool) -> Any:
        if isinstance(value, exp.Expr):
            return self.replace(value, grouped, aliases)
        if isinstance(value, list):
            return [self.value(each, grouped, aliases) for each in value]
        return value

    def column(self, node: exp.Column, grouped: bool, aliases: bool) -> exp.Expr:
        check_node(node, self.locate) if not node.args.get("db") else None
        found = self.names.find(node)
        if found is None and aliases:
            item = find_alias(self.select.expressions, node)
            if item is not None:
                return exp.paren(self.replace(item, grouped, False), copy=False)
        if found is None:
            self.names.refuse_column(node)
        if grouped:
            raise ProgrammingError(
                "E_GROUP_BY",
                f"column {printable(node.name)} must appear in GROUP BY or inside an aggregate",
                hint=f"add {printable(node.name)} to GROUP BY",
                span=self.locate(node),
            )
        return found

    def key(self, node: exp.Expr) -> exp.Expr | None:
        """The key of GROUP BY that an expression is."""
        if has_aggregates(node) or node.find(exp.Window, exp.Query):
            return None
        if isinstance(node, exp.Literal) or not node.find(exp.Column):
            return None
        if any(not self.resolves(column) for column in node.find_all(exp.Column)):
            return None
        tree = self.replace(node, False, False).unnest()
        text = total(tree)
        if text not in self.groups:
            return None
        return marked(exp.column(f"k{self.groups.index(text)}"), is_whole(tree))

    def resolves(self, column: exp.Column) -> bool:
        return isinstance(column.this, exp.Identifier) and self.names.find(column) is not None

    def aggregate(self, node: exp.Expr, grouped: bool) -> exp.Expr:
        """An aggregate over rows of the shell as a column of the grouped layer."""
        if not grouped:
            self.refuse(node, "E_AGGREGATE", "an aggregate here", "aggregate in a sub-query")
        text = self.aggregate_sql(node)
        if text not in self.sums:
            self.sums.append(text)
        return marked(exp.column(f"g{self.sums.index(text)}"), self.is_whole(node))

    def is_whole(self, node: exp.Expr) -> bool:
        """Whether an aggregate is an integer to SQL."""

        def leaf(column: exp.Column) -> bool:
            found = self.names.find(column)
            return found is not None and is_whole(found)

        return is_whole(node, leaf)

    def aggregate_sql(self, node: exp.Expr) -> str:
        if isinstance(node, exp.Filter) and isinstance(node.expression, exp.Where):
            test = total(self.rewrite(node.expression.this, False))
            return f"{self.aggregate_sql(node.this)} FILTER (WHERE {test})"
        if isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AnyValue):
            return self.aggregate_sql(node.this)
        check_aggregate(node, self.locate)
        copy, inner = node.copy(), node.this
        if isinstance(inner, exp.Distinct):
            if len(inner.expressions) != 1 or inner.args.get("on"):
                self.refuse(node, "E_AGGREGATE", "DISTINCT of several columns")
            value = exp.Var(this=self.argument(node, inner.expressions[0]))
            copy.set("this", exp.Distinct(expressions=[value]))
        elif not isinstance(inner, exp.Star):
            copy.set("this", exp.Var(this=self.argument(node, inner)))
        return sql_of(copy)

    def argument(self, node: exp.Expr, inner: exp.Expr) -> str:
        """What is aggregated; sums are of DOUBLE, which has no overflow."""
        text = total(self.rewrite(inner, False))
        return f"TRY(CAST({text} AS DOUBLE))" if isinstance(node, exp.Sum | exp.Avg) else text

    def window(self, node: exp.Window, grouped: bool, aliases: bool) -> exp.Expr:
        """A window function as a column of the layer of windows."""
        for part in (node, node.this, *(p for p in (node.args.get("spec"),) if p)):
            check_window(part, self.locate)
        if isinstance(node.this, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            self.refuse(node, "E_WINDOW", "this window function")
        check_frame(node, self.locate)
        inner = type(node.this)(**{k: self.inside(v, grouped) for k, v in node.this.args.items()})
        if isinstance(inner, exp.Sum | exp.Avg):
            inner.set("this", exp.Var(this=f"TRY(CAST({sql_of(inner.this)} AS DOUBLE))"))
        args = {k: self.inside(v, grouped) for k, v in node.args.items() if k != "this"}
        text = sql_of(exp.Window(this=inner, **args))
        if text not in self.windows:
            self.windows.append(text)
        return marked(exp.column(f"w{self.windows.index(text)}"), self.is_whole(node))

    def inside(self, value: Any, grouped: bool) -> Any:
        """What a window is about, each expression total."""
        if isinstance(value, list):
            return [self.inside(each, grouped) for each in value]
        if isinstance(value, exp.Order | exp.Ordered | exp.WindowSpec):
            check_window(value, self.locate)
            return type(value)(**{k: self.inside(v, grouped) for k, v in value.args.items()})
        if not isinstance(value, exp.Expr) or isinstance(value, exp.Star):
            return value
        if isinstance(value, exp.Literal):
            return value.copy()
        if value.find(exp.Window):
            self.refuse(value, "E_WINDOW", "a window of a window", "use a sub-query")
        return exp.Var(this=total(self.rewrite(value, grouped)))

    def stddev(self, node: exp.Anonymous) -> exp.Expr:
        """DP_STDDEV of a column that repeats a noisy number."""
        parts = node.expressions
        tree = self.rewrite(parts[0], False, aliases=True).unnest() if len(parts) == 1 else None
        place = None if tree is None else place_of(tree)
        if self.grouped or place is None or not self.sources[place[0]].table.traits[place[1]].error:
            hint = "a noisy column as it is; what is computed shows its error as ± and in --stddev"
            self.refuse(node, "E_FUNCTION", "DP_STDDEV of this", hint)
        return exp.column(f"y{place[0]}_{place[1]}")

    def value_of(self, node: exp.Expr) -> exp.Expr:
        """A scalar sub-query, or EXISTS, as a column of one row that is joined to all."""
        inner = node.this if isinstance(node, exp.Exists) else node
        table = self.query(inner, self.names)
        self.private = self.private or table.private
        name = f"h_{table.name}"
        if isinstance(node, exp.Exists):
            return self.hoist(f"{name}_x", f"SELECT count(*) > 0 AS {{0}} FROM {table.name}", table)
        if len(table.traits) != 1:
            self.refuse(node, "E_SUBQUERY", "a sub-query of several columns as a value")
        self.scalars[name] = table
        whole = table.traits[0].is_whole
        traced = "".join(f", any_value({each}) AS {name}_{each}" for each in table.traces())
        value = self.hoist(
            name,
            f"SELECT CASE WHEN count(*) = 1 THEN any_value(c0) END AS {{0}}{traced} "
            f"FROM {table.name}",
            table,
        )
        return marked(value, whole)

    def traces_of(self, name: str) -> list[str]:
        """The columns beside the value of a sub-query that say how it depends on noise."""
        table = self.scalars.get(name)
        return [] if table is None else [f"{name}_{each}" for each in table.traces()]

    def hoist(self, name: str, sql: str, table: Known) -> exp.Column:
        if not table.private:
            self.public.add(name)
        self.hoisted[name] = sql.format(name)
        return exp.column(name)

    def membership(self, node: exp.In, grouped: bool, aliases: bool) -> exp.Expr:
        """x IN (sub-query), with SQL's three truth values."""
        table = self.query(node.args["query"], self.names)
        self.private = self.private or table.private
        if len(table.traits) != 1:
            self.refuse(node, "E_SUBQUERY", "IN with a sub-query of several columns")
        left = sql_of(self.replace(node.this, grouped, aliases))
        if len(left) > MAX_LEFT:
            self.refuse(node, "E_TOO_COMPLEX", "IN after so long an expression")
        self.listed = max(self.listed, table.rows)
        rows, full, values = (f"h_{table.name}_{part}" for part in "nml")
        self.hoist(rows, f"SELECT count(*) AS {{0}} FROM {table.name}", table)
        self.hoist(full, f"SELECT count(c0) AS {{0}} FROM {table.name}", table)
        self.hoist(
            values,
            f"SELECT list(c0) FILTER (WHERE c0 IS NOT NULL) AS {{0}} FROM {table.name}",
            table,
        )
        return exp.Paren(
            this=exp.Var(
                this=f"CASE WHEN {rows} = 0 THEN FALSE WHEN {left} IS NULL THEN NULL "
                f"WHEN coalesce(list_contains({values}, {left}), FALSE) THEN TRUE "
                f"WHEN {full} < {rows} THEN NULL ELSE FALSE END"
            )
        )

    def is_noisy(self, name: str) -> bool:
        """Whether a column of a layer depends on noisy numbers."""
        if name.startswith("x"):
            table, column = (int(part) for part in name[1:].split("_"))
            return self.sources[table].table.traits[column].noisy
        if name.startswith("k"):
            return self.group_noise[int(name[1:])]
        return self.private and name not in self.public

    def mentions_noise(self, tree: exp.Expr) -> bool:
        """Whether an expression depends on noisy numbers."""
        if self.private and any(" " in part.name for part in tree.find_all(exp.Var)):
            return True
        return any(self.is_noisy(column.name) for column in tree.find_all(exp.Column))

    def find_groups(self) -> None:
        """The keys of GROUP BY: expressions, positions, aliases or ALL."""
        group = self.select.args.get("group")
        if group is None:
            return
        extra = [k for k, v in group.args.items() if v and k not in ("expressions", "all")]
        if extra:
            self.refuse(group, "E_GROUP_BY", extra[0].strip("_").upper())
        nodes = list(group.expressions)
        items = self.select.expressions
        if group.args.get("all"):
            nodes = [i.unalias() for i in items if not has_aggregates(i)]
        for node in nodes:
            if isinstance(node, exp.Cube | exp.Rollup | exp.GroupingSets | exp.Tuple):
                self.refuse(node, "E_GROUP_BY", node.key.upper(), "UNION ALL of several SELECTs")
            if isinstance(node, exp.Literal) and not node.is_string:
                node = self.item_at(node, "GROUP BY", "E_GROUP_BY")
            tree = self.rewrite(node, False, aliases=True).unnest()
            if total(tree) not in self.groups:
                self.groups.append(total(tree))
                self.group_noise.append(self.mentions_noise(tree))

    def item_at(self, node: exp.Expr, clause: str, code: str) -> exp.Expr:
        items = self.select.expressions
        position = int(node.name) if node.name.isdigit() else 0
        if not 1 <= position <= len(items):
            raise ProgrammingError(
                code,
                f"{clause} {node.name}: there are {len(items)} select items",
                hint=f"write a name, or a position from 1 to {len(items)}",
                span=self.locate(node),
            )
        found: exp.Expr = items[position - 1].unalias()
        return found


def has_aggregates(node: exp.Expr) -> bool:
    """Whether a SELECT or an expression aggregates, outside windows and sub-queries.

    >>> from sqlglot import parse_one
    >>> has_aggregates(parse_one("SELECT SUM(a) OVER () FROM t"))
    False
    >>> has_aggregates(parse_one("SELECT SUM(SUM(a)) OVER () FROM t"))
    True
    """
    if isinstance(node, exp.Select):
        parts = [*node.expressions, *(node.args.get(k) for k in ("having", "qualify", "order"))]
        return any(has_aggregates(part) for part in parts if part is not None)
    if isinstance(node, exp.Query):
        return False
    if isinstance(node, exp.Window):
        inner = node.this
        inner = inner.this if isinstance(inner, exp.Filter) else inner
        rest = [v for k, v in node.args.items() if k != "this" and isinstance(v, exp.Expr)]
        rest += node.args.get("partition_by") or []
        return any(has_aggregates(part) for part in (*inner.iter_expressions(), *rest))
    if isinstance(node, exp.AggFunc | exp.WithinGroup):
        return True
    return any(has_aggregates(part) for part in node.iter_expressions())


def total(tree: exp.Expr) -> str:
    """The SQL of an expression that is NULL where it fails."""
    text = sql_of(tree)
    return text if text.isidentifier() or isinstance(tree, exp.Literal) else f"TRY({text})"


def sql_of(tree: exp.Expr) -> str:
    return str(tree.sql("duckdb", comments=False))


def place_of(tree: exp.Expr) -> tuple[int, int] | None:
    """The table and the column that an expression simply repeats."""
    if not isinstance(tree, exp.Column) or not tree.name.startswith("x"):
        return None
    table, column = tree.name[1:].split("_")
    return int(table), int(column)
