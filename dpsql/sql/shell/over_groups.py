"""Expressions of a SELECT over the groups of rows of the shell.

``k0`` are keys, ``g0`` aggregates; the rest is as in ``over_tables``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.logical.functions import has, has_aggregates
from dpsql.sql.groups.grouping_sets import Sets, read_sets
from dpsql.sql.names import position_of
from dpsql.sql.shell.expressions import Expressions, is_noise, sql_of, total, written
from dpsql.sql.shell.language import check_aggregate, check_window
from dpsql.sql.shell.over_tables import TableExpressions, place_of
from dpsql.sql.shell.whole_numbers import is_integer, marked, rounded
from dpsql.sql.text.growth import MAX_LENGTH

MAX_LISTED = 1_000
"""Most rows that may become one list or one text."""

LARGEST = "1e60"
"""The magnitude from which fourth powers would soon be no DOUBLE."""


class GroupExpressions(TableExpressions):
    """Rewrites the expressions over the groups of ``rows``: keys, and aggregates of the rows."""

    def __init__(self, rows: TableExpressions) -> None:
        Expressions.__init__(self, rows.select, rows.locate)
        self.rows = rows
        self.sources, self.names, self.hoisted = rows.sources, rows.names, rows.hoisted
        self.keys: list[str] = []
        self.key_noise: list[bool] = []
        self.sums: list[str] = []
        self.sets: Sets = ((),)
        self.find_groups()

    def key(self, node: exp.Expr) -> exp.Expr | None:
        """The key of GROUP BY that an expression is."""
        if isinstance(node, exp.Grouping | exp.GroupingId):
            return self.grouping(node)
        if has_aggregates(node) or node.find(exp.Window, exp.Query):
            return None
        if isinstance(node, exp.Literal) or not node.find(exp.Column):
            return None
        if any(not self.resolves(column) for column in node.find_all(exp.Column)):
            return None
        tree = rounded(self.rows.replace(node, False).unnest())
        text = total(tree)
        if text not in self.keys:
            return None
        return marked(exp.column(f"k{self.keys.index(text)}"), is_integer(tree))

    def grouping(self, node: exp.Expr) -> exp.Expr:
        """GROUPING(k, ...): a bit for every key, set where the grouping set leaves it out."""
        keys = [self.key(part) for part in node.expressions]
        named = [self.keys[int(key.name[1:])] for key in keys if key] if keys else self.keys
        if not named or None in keys:
            hint = "GROUPING(column), a column of GROUP BY"
            self.wrong(node, "E_GROUP_BY", "GROUPING takes grouping keys", hint)
        text = f"grouping({', '.join(named)})"
        if text not in self.sums:
            self.sums.append(text)
        return marked(exp.column(f"g{self.sums.index(text)}"), True, rounded=True)

    def clause(self) -> str:
        """GROUP BY, by the positions of the keys; nothing where there is one group."""
        if self.sets == ((),):
            return ""
        if len(self.sets) == 1:
            return f" GROUP BY {', '.join(str(key + 1) for key in self.sets[0])}"
        listed = (f"({', '.join(self.keys[key] for key in each)})" for each in self.sets)
        return f" GROUP BY GROUPING SETS ({', '.join(listed)})"

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
        return marked(exp.column(f"g{self.sums.index(text)}"), is_integer(tree))

    def aggregated(self, node: exp.Expr) -> exp.Expr:
        """A copy of an aggregate over the rows below, each expression in it total."""
        if isinstance(node, exp.Filter) and isinstance(node.expression, exp.Where):
            test = exp.Where(this=self.argument(node, node.expression.this))
            return exp.Filter(this=self.aggregated(node.this), expression=test)
        if isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AnyValue):
            return self.aggregated(node.this)
        check_aggregate(node, self.locate)
        copy, inner = node.copy(), node.this
        if has(node, "ordered"):
            copy.set("this", self.in_order(node))
            return self.cut(copy)
        if isinstance(node, exp.AnonymousAggFunc):
            copy.set("expressions", [self.argument(node, part) for part in node.expressions])
        elif isinstance(inner, exp.Distinct):
            if len(inner.expressions) != 1 or inner.args.get("on"):
                self.refuse(node, "E_AGGREGATE", "DISTINCT of several columns")
            value = self.argument(node, inner.expressions[0])
            copy.set("this", exp.Distinct(expressions=[value]))
        elif not isinstance(inner, exp.Star):
            copy.set("this", self.argument(node, inner))
        if has(node, "paired"):
            copy.set("expression", self.argument(node, node.expression))
        return copy

    def in_order(self, node: exp.Expr) -> exp.Expr:
        """The elements of a list, in the order that is written, then in that of the rows.

        Raises: ProgrammingError (E_TOO_LARGE) for lists of too many rows.
        """
        rows = math.prod(each.table.rows for each in self.sources)
        if not isinstance(node, exp.First | exp.Last) and rows > MAX_LISTED:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"a list of up to {rows:,} answers",
                hint=f"at most {MAX_LISTED:,}: HAVING and LIMIT in the sub-query leave some out",
                span=self.locate(node),
            )
        inner, by = node.this, list[exp.Expr]()
        if isinstance(inner, exp.Order):
            inner, by = inner.this, inner.expressions
        if isinstance(inner, exp.Distinct) and len(inner.expressions) == 1:
            last = inner.expressions[0]
            if isinstance(last, exp.Order):
                inner, by = exp.Distinct(expressions=[last.this]), last.expressions
        once = isinstance(inner, exp.Distinct)
        value = self.argument(node, inner.expressions[0] if once else inner)
        if any(self.is_list(each) for each in node.find_all(exp.Column)):
            self.refuse(node, "E_AGGREGATE", "a list of lists", "list the values themselves")
        order = []
        for item in by:
            check_window(item, self.locate)
            tree = self.argument(node, item.this)
            if once and sql_of(tree) != sql_of(value):
                what = "DISTINCT in an order of other values"
                self.refuse(item, "E_AGGREGATE", what, "ORDER BY the value itself")
            nulls = bool(item.args.get("nulls_first"))
            order.append(exp.Ordered(this=tree, desc=item.args.get("desc"), nulls_first=nulls))
        if once:
            order = order or [exp.Ordered(this=value.copy(), nulls_first=False)]
            value = exp.Distinct(expressions=[value])
        else:
            places = (exp.column(f"i{number}") for number in range(max(1, len(self.sources))))
            order += [exp.Ordered(this=each, nulls_first=False) for each in places]
        return exp.Order(this=value, expressions=order)

    def is_list(self, node: exp.Column) -> bool:
        """True if a column of the tables has lists."""
        found = self.names.find(node)
        place = None if found is None else place_of(found)
        return place is not None and self.kind_of(place).endswith("]")

    def kind_of(self, place: tuple[int, int]) -> str:
        """The DuckDB type of a column of the tables."""
        return self.sources[place[0]].table.traits[place[1]].kind

    def cut(self, node: exp.Expr) -> exp.Expr:
        """A text that was put together, NULL where it is too long to be worked with."""
        if not isinstance(node, exp.GroupConcat):
            return node
        short = f"CASE WHEN length({sql_of(node)}) <= {MAX_LENGTH} THEN {sql_of(node)} END"
        return written(short, any(map(is_noise, node.find_all(exp.Var))))

    def argument(self, node: exp.Expr, inner: exp.Expr) -> exp.Expr:
        """The aggregated argument: sums are of DOUBLE, which has no overflow, and so are moments.

        Moments are errors beyond its range, so that they leave out what is near it.
        """
        tree = self.rows.rewrite(inner)
        text = total(tree)
        if isinstance(node, exp.Sum | exp.Avg):
            text = f"TRY(CAST({text} AS DOUBLE))"
        elif has(node, "partial"):
            number = f"TRY(CAST({text} AS DOUBLE))"
            text = f"CASE WHEN abs({number}) < {LARGEST} THEN {number} END"
        return written(text, self.rows.mentions_noise(tree), is_integer(tree))

    def unique(self, columns: Sequence[str]) -> tuple[frozenset[int], ...]:
        """The places of the keys among ``columns``, if all of them are there."""
        if len(self.sets) > 1:
            return ()
        keys = {f"k{index}" for index in range(len(self.keys))}
        found = {sql: index for index, sql in enumerate(columns) if sql in keys}
        return (frozenset(found.values()),) if set(found) == keys else ()

    def stddev(self, node: exp.Anonymous) -> NoReturn:
        """DP_STDDEV of a group, which is refused; those of its rows may be aggregated."""
        self.refuse_error(node)

    def is_noisy(self, name: str) -> bool:
        """True if a column of a layer depends on noisy numbers."""
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
        self.sets = read_sets(group, nodes, self.add, self.locate)

    def add(self, node: exp.Expr) -> int:
        """The number of a key, which is an expression, a position or an alias."""
        if isinstance(node, exp.Literal) and not node.is_string:
            node = self.item_at(node)
        tree = rounded(self.rows.rewrite(node, aliases=True).unnest())
        if total(tree) not in self.keys:
            self.keys.append(total(tree))
            self.key_noise.append(self.rows.mentions_noise(tree))
        return self.keys.index(total(tree))

    def item_at(self, node: exp.Literal) -> exp.Expr:
        """The select item at a position in GROUP BY."""
        items = self.select.expressions
        position = position_of(node, len(items))
        if position is None:
            what = f"GROUP BY {node.name}: there are {len(items)} select items"
            self.wrong(node, "E_GROUP_BY", what, self.positions.format(len(items)))
        found: exp.Expr = items[position].unalias()
        return found
