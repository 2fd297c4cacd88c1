"""Expressions of a SELECT over tables of the shell, or over the groups of their rows.

``x0_1`` is column 1 of table 0 in FROM, ``y0_1`` its standard error, ``d0_1_2`` its slope 2 by a
cell of origin ``r0_...``; ``k0`` are keys, ``g0`` aggregates, ``h_...`` the values of sub-queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.sql.derivative import NoDerivative, slopes_of
from dpsql.sql.expressions import Expressions, sql_of, total, written
from dpsql.sql.hoisted import Hoisted, refuse
from dpsql.sql.language import Locate, check_aggregate, check_node
from dpsql.sql.names import Names, position_of
from dpsql.sql.query import Number
from dpsql.sql.relations import Element, Field, Known
from dpsql.sql.sugar import has_aggregates
from dpsql.sql.whole import is_whole, marked, settled

MAX_SLOPES = 16
"""Most noisy numbers that the standard error of a column is followed through."""

MAX_TEXT = 20_000
"""Longest SQL of the slopes of a column."""

NUMBERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL"}


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """One element of FROM, and the table of the shell that it stands for."""

    element: Element
    table: Known

    def fields(self, number: int) -> list[Field]:
        """Its columns as those of table ``number`` of FROM."""
        return [
            Field(trait.name, marked(exp.column(f"x{number}_{index}"), trait.is_whole))
            for index, trait in enumerate(self.table.traits)
        ]


class TableExpressions(Expressions):
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
        super().__init__(select, locate)
        self.sources = sources
        self.names = Names(locate, parent=around)
        self.hoisted = Hoisted(query, self.names, any(each.table.private for each in sources))
        self.chosen = any(each.table.chosen for each in sources)
        self.grouped = bool(select.args.get("group")) or has_aggregates(select)

    def refuse(self, node: Any, code: str, what: str, hint: str = "") -> NoReturn:
        """Refuse a part by name."""
        refuse(node, code, what, hint, self.locate)

    def known(self, node: exp.Expr, aliases: bool) -> exp.Expr | None:
        """What a sub-query, a window, an aggregate, a key or a name stands for."""
        if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation | exp.Exists):
            return self.hoisted.value_of(node)
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self.hoisted.membership(node, lambda: self.replace(node.this, aliases))
        if isinstance(node, exp.Window):
            return self.window(node)
        if isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup | exp.IgnoreNulls):
            return self.aggregate(node)
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "dp_stddev":
            return self.stddev(node)
        found = self.key(node)
        if found is None and isinstance(node, exp.Column):
            return self.column(node, aliases)
        return found

    def divided(self, node: exp.Div) -> exp.Expr:
        """A division that is NULL where the divisor is zero."""
        node.set("expression", exp.Nullif(this=node.expression, expression=exp.Literal.number(0)))
        return settled(node)

    def framed(self, function: exp.Expr) -> exp.Expr:
        """Sums are of DOUBLE, which has no overflow."""
        if isinstance(function, exp.Sum | exp.Avg):
            function.set("this", exp.Var(this=f"TRY(CAST({sql_of(function.this)} AS DOUBLE))"))
        return function

    def key(self, node: exp.Expr) -> exp.Expr | None:
        """The key of GROUP BY that an expression is."""
        return None

    def column(self, node: exp.Column, aliases: bool) -> exp.Expr:
        """What a name stands for: a column, or the alias of a select item where SQL allows it."""
        if not node.args.get("db"):
            check_node(node, self.locate)
        found = self.names.find(node)
        if found is not None:
            return self.of_row(node, found)
        found = self.alias(node) if aliases else None
        if found is None:
            self.names.refuse_column(node)
        return found

    def of_row(self, node: exp.Column, found: exp.Expr) -> exp.Expr:
        """A column of the tables, where it may stand."""
        return found

    def aggregate(self, node: exp.Expr) -> exp.Expr:
        """An aggregate where there are no groups."""
        self.refuse(node, "E_AGGREGATE", "an aggregate here", "aggregate in a sub-query")

    def stddev(self, node: exp.Anonymous) -> exp.Expr:
        """DP_STDDEV of a column that repeats a noisy number."""
        parts = node.expressions
        tree = self.rewrite(parts[0], aliases=True).unnest() if len(parts) == 1 else None
        place = None if tree is None else place_of(tree)
        if self.grouped or place is None or not self.sources[place[0]].table.traits[place[1]].error:
            hint = "a noisy column as it is; what is computed shows its error as ± and in --stddev"
            self.refuse(node, "E_FUNCTION", "DP_STDDEV of this", hint)
        return exp.column(f"y{place[0]}_{place[1]}")

    def slopes(self, tree: exp.Expr) -> dict[Number, str]:
        """The slopes of smooth arithmetic over noisy numbers, unless they are too long."""
        found = slopes_of(tree, self.slope)
        short = len(found) <= MAX_SLOPES and sum(map(len, found.values())) <= MAX_TEXT
        return found if short else {}

    def slope(self, column: exp.Column) -> dict[Number, str]:
        """The slopes of a column. Raises: NoDerivative."""
        name, place = column.name, place_of(column)
        if place is not None:
            number, index = place
            table = self.sources[number].table
            slope, cell = f"d{number}_{index}_", f"r{number}_"
        elif name in self.hoisted.scalars:
            table, index = self.hoisted.scalars[name], 0
            slope, cell = f"{name}_d0_", f"{name}_r"
        else:
            raise NoDerivative
        trait = table.traits[index]
        if trait.kind.split("(")[0] not in NUMBERS or (trait.noisy and not trait.slopes):
            raise NoDerivative
        return {
            (f"{cell}{each.origin}", table.origins[each.origin], each.aggregate): (
                "1" if each.one else f"{slope}{part}"
            )
            for part, each in enumerate(trait.slopes)
        }

    def is_noisy(self, name: str) -> bool:
        """Whether a column of a layer depends on noisy numbers."""
        if name.startswith("x"):
            table, column = (int(part) for part in name[1:].split("_"))
            return self.sources[table].table.traits[column].noisy
        return self.hoisted.private and name not in self.hoisted.public


class GroupExpressions(TableExpressions):
    """Rewrites the expressions over the groups of ``rows``: keys, and aggregates of the rows."""

    def __init__(self, rows: TableExpressions) -> None:
        Expressions.__init__(self, rows.select, rows.locate)
        self.rows = rows
        self.sources, self.names, self.hoisted = rows.sources, rows.names, rows.hoisted
        self.keys: list[str] = []
        self.key_noise: list[bool] = []
        self.sums: list[str] = []
        self.find_groups()

    def key(self, node: exp.Expr) -> exp.Expr | None:
        """The key of GROUP BY that an expression is."""
        if has_aggregates(node) or node.find(exp.Window, exp.Query):
            return None
        if isinstance(node, exp.Literal) or not node.find(exp.Column):
            return None
        if any(not self.resolves(column) for column in node.find_all(exp.Column)):
            return None
        tree = self.rows.replace(node, False).unnest()
        text = total(tree)
        if text not in self.keys:
            return None
        return marked(exp.column(f"k{self.keys.index(text)}"), is_whole(tree))

    def resolves(self, column: exp.Column) -> bool:
        return isinstance(column.this, exp.Identifier) and self.names.find(column) is not None

    def of_row(self, node: exp.Column, found: exp.Expr) -> NoReturn:
        """Refuse a column that is no key."""
        self.not_grouped(node)

    def aggregate(self, node: exp.Expr) -> exp.Expr:
        """An aggregate over rows of the shell as a column of the grouped layer."""
        tree = self.aggregated(node)
        text = sql_of(tree)
        if text not in self.sums:
            self.sums.append(text)
        return marked(exp.column(f"g{self.sums.index(text)}"), is_whole(tree))

    def aggregated(self, node: exp.Expr) -> exp.Expr:
        """A copy of an aggregate over the rows below, each expression in it total."""
        if isinstance(node, exp.Filter) and isinstance(node.expression, exp.Where):
            test = exp.Where(this=self.argument(node, node.expression.this))
            return exp.Filter(this=self.aggregated(node.this), expression=test)
        if isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AnyValue):
            return self.aggregated(node.this)
        check_aggregate(node, self.locate)
        copy, inner = node.copy(), node.this
        if isinstance(inner, exp.Distinct):
            if len(inner.expressions) != 1 or inner.args.get("on"):
                self.refuse(node, "E_AGGREGATE", "DISTINCT of several columns")
            value = self.argument(node, inner.expressions[0])
            copy.set("this", exp.Distinct(expressions=[value]))
        elif not isinstance(inner, exp.Star):
            copy.set("this", self.argument(node, inner))
        if isinstance(node, exp.ArgMax | exp.ArgMin):
            copy.set("expression", self.argument(node, node.expression))
        return copy

    def argument(self, node: exp.Expr, inner: exp.Expr) -> exp.Expr:
        """What is aggregated; sums are of DOUBLE, which has no overflow."""
        tree = self.rows.rewrite(inner)
        text = total(tree)
        if isinstance(node, exp.Sum | exp.Avg):
            text = f"TRY(CAST({text} AS DOUBLE))"
        return written(text, self.rows.mentions_noise(tree), is_whole(tree))

    def unique(self, columns: Sequence[str]) -> tuple[frozenset[int], ...]:
        """The places of the keys among ``columns``, if all of them are there."""
        keys = {f"k{index}" for index in range(len(self.keys))}
        found = {sql: index for index, sql in enumerate(columns) if sql in keys}
        return (frozenset(found.values()),) if set(found) == keys else ()

    def stddev(self, node: exp.Anonymous) -> exp.Expr:
        """That of a row, which is refused."""
        return self.rows.stddev(node)

    def is_noisy(self, name: str) -> bool:
        """Whether a column of a layer depends on noisy numbers."""
        if name.startswith("k"):
            return self.key_noise[int(name[1:])]
        return self.rows.is_noisy(name)

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
                node = self.item_at(node)
            tree = self.rows.rewrite(node, aliases=True).unnest()
            if total(tree) not in self.keys:
                self.keys.append(total(tree))
                self.key_noise.append(self.rows.mentions_noise(tree))

    def item_at(self, node: exp.Literal) -> exp.Expr:
        """The select item at a position in GROUP BY."""
        items = self.select.expressions
        position = position_of(node, len(items))
        if position is None:
            what = f"GROUP BY {node.name}: there are {len(items)} select items"
            self.wrong(node, "E_GROUP_BY", what, self.positions.format(len(items)))
        found: exp.Expr = items[position].unalias()
        return found


def place_of(tree: exp.Expr) -> tuple[int, int] | None:
    """The table and the column that an expression simply repeats."""
    if not isinstance(tree, exp.Column) or not tree.name.startswith("x"):
        return None
    table, column = tree.name[1:].split("_")
    return int(table), int(column)
