"""Expressions of a SELECT over tables of the shell.

``x0_1`` is column 1 of table 0 in FROM, ``y0_1`` its standard error, ``d0_1_2`` its slope 2 by a
cell of origin ``r0_...``; ``h_...`` are the values of sub-queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.logical.functions import has_aggregates
from dpsql.records import dataclass
from dpsql.sql.dialects.json_fields import field_of
from dpsql.sql.dialects.report_format import REPORT
from dpsql.sql.names import Names
from dpsql.sql.query import Number
from dpsql.sql.relations import Field, FromElement, ShellTable
from dpsql.sql.rewrites.tree_parts import is_of_existence
from dpsql.sql.shell.derivative import NoDerivative, slopes_of
from dpsql.sql.shell.expressions import Expressions, sql_of, written
from dpsql.sql.shell.hoisted_subqueries import HoistedSubqueries, refuse
from dpsql.sql.shell.language import Locate, check_node
from dpsql.sql.shell.whole_numbers import marked, settled

MAX_SLOPES = 16
"""Most noisy numbers that the standard error of a column is followed through."""

MAX_TEXT = 20_000
"""Longest SQL of the slopes of a column."""

NUMBERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL"}


@dataclass(frozen=True, slots=True, eq=False)
class FromTable:
    """One element of FROM, and the table of the shell that it stands for."""

    element: FromElement
    table: ShellTable

    def fields(self, number: int) -> list[Field]:
        """Its columns as those of table ``number`` of FROM."""
        return [
            Field(
                trait.name,
                marked(exp.column(f"x{number}_{index}"), trait.is_whole, not trait.is_estimate),
            )
            for index, trait in enumerate(self.table.traits)
        ]


class TableExpressions(Expressions):
    """Rewrites the expressions of one SELECT over tables of the shell.

    ``query`` makes a table of a sub-query, given the names around it.
    """

    def __init__(
        self,
        select: exp.Select,
        sources: Sequence[FromTable],
        locate: Locate,
        query: Callable[[exp.Expr, Names], ShellTable],
        around: Names | None,
    ) -> None:
        super().__init__(select, locate)
        self.sources = sources
        self.names = Names(locate, parent=around)
        self.hoisted = HoistedSubqueries(
            query, self.names, any(each.table.private for each in sources)
        )
        self.chosen = any(each.table.chosen for each in sources)
        self.grouped = bool(select.args.get("group")) or has_aggregates(select)

    def refuse(self, node: Any, code: str, what: str, hint: str = "") -> NoReturn:
        """Refuse a part by name."""
        refuse(node, code, what, hint, self.locate)

    def known(self, node: exp.Expr, aliases: bool) -> exp.Expr | None:
        """The expression that a sub-query, a window, an aggregate, a key or a name stands for."""
        if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation | exp.Exists):
            return self.hoisted.value_of(node)
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self.hoisted.membership(node, lambda: self.replace(node.this, aliases))
        if isinstance(node, exp.Window):
            return self.window(node)
        called = exp.AggFunc | exp.Filter | exp.WithinGroup | exp.IgnoreNulls
        if isinstance(node, called) and not isinstance(node, exp.Grouping | exp.GroupingId):
            return self.aggregate(node)
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "dp_stddev":
            return self.stddev(node)
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == REPORT:
            hint = "report_format in the SELECT over rows, whose report others may read"
            self.refuse(node, "E_AGGREGATE", "a report of what sub-queries compute", hint)
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
        """The expression of a name: a column, or the alias of a select item where SQL allows it."""
        inside = self.field(node)
        if inside is not None:
            return inside
        if not node.args.get("db"):
            check_node(node, self.locate)
        found = self.names.find(node)
        if found is not None:
            return self.of_row(node, found)
        found = self.alias(node) if aliases else None
        if found is None:
            self.names.refuse_column(node)
        return found

    def field(self, node: exp.Column) -> exp.Expr | None:
        """The field of a text in JSON that a name with dots stands for, which is no table's."""
        parts = node.parts
        is_table = parts[0].name.casefold() in (alias for alias, _ in self.names.sources)
        last = 2 if is_table else 1
        if len(parts) <= last:
            return None
        names = dict(zip(("this", "table"), reversed(parts[:last]), strict=False))
        column = exp.Column(**{key: part.copy() for key, part in names.items()})
        found = self.names.find(column)
        if found is None:
            return None
        return field_of(self.of_row(column, found), [part.name for part in parts[last:]])

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
        if place is None or not self.sources[place[0]].table.traits[place[1]].error:
            if is_of_existence(node):
                return written("CAST(NULL AS DOUBLE)", noisy=False)
            self.refuse_error(node)
        return exp.column(f"y{place[0]}_{place[1]}")

    def refuse_error(self, node: exp.Anonymous) -> NoReturn:
        """Refuse DP_STDDEV of what repeats no noisy number."""
        hint = "a noisy column as it is; what is computed shows its error as ± and in --stddev"
        self.refuse(node, "E_FUNCTION", "DP_STDDEV of this", hint)

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
        """True if a column of a layer depends on noisy numbers."""
        if name.startswith("x"):
            table, column = (int(part) for part in name[1:].split("_"))
            return self.sources[table].table.traits[column].noisy
        return self.hoisted.private and name not in self.hoisted.public


def place_of(tree: exp.Expr) -> tuple[int, int] | None:
    """The table and the column that an expression simply repeats."""
    if not isinstance(tree, exp.Column) or not tree.name.startswith("x"):
        return None
    table, column = tree.name[1:].split("_")
    return int(table), int(column)
