"""Expressions of a SELECT over the noisy cells of the sums that it measures.

``k0`` are keys, ``g0`` is 1 where a grouping set leaves the key out, ``a0`` are aggregates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp

from dpsql.errors import NotSupportedError, nearest, printable
from dpsql.logical.functions import has_aggregates
from dpsql.sql.cells.cell_edges import check_edges
from dpsql.sql.dialects.noise_reports import bounds_of, ends_of, json_text, report_of
from dpsql.sql.dialects.report_format import REPORT
from dpsql.sql.groups.keys import UNCERTAINTY, Keys
from dpsql.sql.measures.aggregates import Aggregates
from dpsql.sql.names import find_alias
from dpsql.sql.query import Number, Output, RunningSum, Shell
from dpsql.sql.scope import Scope
from dpsql.sql.shell.derivative import CovarianceTerms, guard, slopes_of, stddev_sql
from dpsql.sql.shell.expressions import (
    Expressions,
    is_all,
    is_noise,
    name_of,
    refuse_rows,
    sql_of,
    total,
    written,
)
from dpsql.sql.shell.frames import read_frame
from dpsql.sql.shell.language import check_answer, check_node, is_span
from dpsql.sql.shell.whole_numbers import is_integer, marked

if TYPE_CHECKING:
    from dpsql.sql.dialects.noise_reports import Tree

STEADY = "steady"
"""Marks what is part of an expression over a key that was checked as a whole."""


class NoRunningSum(Exception):
    """A window that is not a sum over measured groups; the shell evaluates it."""


class CellExpressions(Expressions):
    """Rewrites one SELECT over the columns of the noisy cells that its groups are measured as."""

    aliased_windows = True
    shown = "select items"
    positions = "ORDER BY 1 is the first of them"

    def __init__(
        self, select: exp.Select, scope: Scope, keys: Keys, aggregates: Aggregates
    ) -> None:
        super().__init__(select, scope.locate)
        self.scope = scope
        self.keys = keys
        self.aggregates = aggregates
        self.needed = CovarianceTerms()

    def shell(self) -> Shell:
        """The shell of all clauses; every column must be a key, an aggregate or an alias."""
        outputs = tuple(self.output(item) for item in self.select.expressions)
        needed = self.needed
        return Shell(outputs, self.tail(outputs), frozenset(needed.pairs), tuple(needed.groups))

    def output(self, item: exp.Expr) -> Output:
        """A result column."""
        if item.is_star:
            refuse_rows(item, self.locate)
        tree = self.rewrite(item.unalias())
        only = tree.unnest()
        column = only.name if isinstance(only, exp.Column) else ""
        is_name = bool(column) and tree is only
        parts = [tree] if is_name else list(tree.find_all(exp.Var, exp.Column))
        spread = any(is_noise(each) for each in parts if isinstance(each, exp.Var))
        names = [each.name for each in parts if isinstance(each, exp.Column)]
        layers = {name[0] for name in names}
        known = "a" in layers and "w" not in layers and not spread
        stddev = self.stddev(tree) if known else None
        slopes = slopes_of(tree, _aggregate) if stddev is not None else {}
        noisy = spread or any(map(self.is_noisy, names))
        numbers = {name for name in names if name[0] == "a"}
        direct = "w" not in layers and not spread
        return Output(
            name_of(item),
            column if is_name else total(tree),
            None if stddev is None else f"TRY({stddev})",
            noisy,
            key=int(column[1:]) if column.startswith("k") else None,
            aggregate=int(column[1:]) if column.startswith("a") else None,
            slopes=tuple(slopes.items()),
            whole=is_integer(tree),
            uncertainty=isinstance(only, exp.Var) and is_noise(only),
            over=frozenset(int(name[1:]) for name in numbers) if direct else None,
        )

    def stddev(self, tree: exp.Expr) -> str | None:
        """Its standard error; the errors of quantiles have no closed form."""
        unknown = {j for j, each in enumerate(self.aggregates.found) if each.rank is not None}
        return stddev_sql(tree, self.needed, unknown)

    def refuse(self, node: Any, code: str, what: str, hint: str = "") -> NoReturn:
        """Refuse a part by name."""
        self.scope.refuse(node, code, what, hint)

    def check_order(self, item: exp.Expr) -> None:
        """Refuse WITH FILL, and names that are no columns."""
        if item.args.get("with_fill"):
            self.refuse(item, "E_STATEMENT", "WITH FILL")
        if isinstance(item.this, exp.Var) and not is_all(item):
            self.refuse(item, "E_ORDER_BY", f"ORDER BY {printable(item.this.name)}")

    def is_noisy(self, name: str) -> bool:
        """True if a column of the cells, or of windows over them, is noisy."""
        return name.startswith("a") or (name.startswith("w") and self.window_noise[int(name[1:])])

    def check(self, node: exp.Expr) -> None:
        """Nothing yet: aggregates and keys are replaced first."""

    def check_tree(self, tree: exp.Expr) -> None:
        """Refuse what is not listed, or could make too long a text."""
        for part in tree.walk():
            if not isinstance(part, exp.Column | exp.Var | exp.Identifier):
                check_answer(part, self.locate)
        super().check_tree(tree)

    def known(self, node: exp.Expr, aliases: bool) -> exp.Expr | None:
        """The expression that an aggregate, a window, a key or a name stands for."""
        if isinstance(node, exp.Query | exp.Exists | exp.Any):
            check_node(node, self.locate)
        try:
            found = self.aggregates.replace(node, self.running)
        except NoRunningSum:
            found = None
        if found is not None:
            return found
        if isinstance(node, exp.Window):
            return self.window(node, aliases)
        if isinstance(node, exp.Grouping | exp.GroupingId):
            return self.grouping(node)
        if isinstance(node, exp.Anonymous) and str(node.this).lower() in UNCERTAINTY:
            return self.uncertainty(node)
        key = self.keys.match(node)
        if key is not None:
            whole = is_integer(node, self.scope.is_integer)
            return marked(exp.column(f"k{key}"), whole, rounded=True)
        if isinstance(node, exp.Column):
            return self.column(node, aliases)
        self.check_key(node)
        if isinstance(node, exp.Star):
            refuse_rows(node, self.locate)
        return None

    def check_key(self, node: exp.Expr) -> None:
        """Refuse an expression over a key of whole cells that differs within one of them."""
        mentioned = self.keys.below.of(node)
        references = mentioned.columns.values()
        if node.meta.get(STEADY) or not references or mentioned.aggregates or mentioned.queries:
            return
        names = {each.name.casefold() for each in references}
        bare = {key.column for key in self.keys.found if key.sql == "v" and not key.ranges}
        own = all(self.scope.find_public(each) is None for each in references)
        if len(names) == 1 and names <= bare and own:
            for part in node.walk():
                part.meta[STEADY] = True
            column = self.scope.table.columns[names.pop()]
            same = self.scope.evaluator.is_same
            check_edges(column, node, self.locate, same, grouping=True)

    def divided(self, node: exp.Div) -> exp.Expr:
        """A ratio with a noisy count that is not positive is NULL: no error, no wild sign."""
        below = node.expression
        if not any(column.name.startswith("a") for column in below.find_all(exp.Column)):
            return node
        if below.find(exp.Div) is not None:  # a copy of it would double with every such ratio
            zero = exp.Literal.number(0)
            node.set("expression", exp.Nullif(this=exp.paren(below, copy=False), expression=zero))
            return exp.paren(node, copy=False)
        test = exp.GT if isinstance(below.unnest(), exp.Column) else exp.NEQ
        condition = test(this=exp.paren(below.copy()), expression=exp.Literal.number(0))
        return exp.Paren(this=guard(exp.Case(ifs=[exp.If(this=condition, true=node)])))

    def check_frame(self, node: exp.Window) -> None:
        """Refuse a window over rows, and a frame that differs from row to row."""
        if isinstance(node.this, exp.IgnoreNulls | exp.RespectNulls):
            self.refuse(node, "E_WINDOW", "this window function")
        spec = node.args.get("spec")
        for end in (spec.args.get("start"), spec.args.get("end")) if spec is not None else ():
            if isinstance(end, exp.Expr) and not (
                isinstance(end, exp.Literal) or is_span(end, spec)
            ):
                what = "a frame that differs from row to row"
                self.refuse(node, "E_WINDOW", what, "ROWS 3 PRECEDING")
        called = node.this.this if isinstance(node.this, exp.Filter) else node.this
        if isinstance(called.this, exp.Distinct):
            hint = "a sub-query that counts them, and a window over its answers"
            self.refuse(node, "E_WINDOW", "DISTINCT in a window", hint)
        if isinstance(called.this, exp.Star) and not self.is_grouped():
            self.refuse(node, "E_WINDOW", "a window over rows", "SUM(COUNT(*)) OVER ()")

    def is_grouped(self) -> bool:
        """True if what windows are over are groups, not rows."""
        return self.select.args.get("group") is not None or has_aggregates(self.select)

    def running(self, node: exp.Window) -> RunningSum:
        """A window of SUM over COUNT or SUM as a sum over groups that are measured as such.

        Raises: NoRunningSum.
        """
        having, frame = self.select.args.get("having"), read_frame(node)
        if len(self.keys.sets) > 1 or having is not None or frame is None:
            raise NoRunningSum
        if any(joined.listed for joined in self.scope.joined):
            raise NoRunningSum
        kept = [self.key_of(part) for part in node.args.get("partition_by") or []]
        order = node.args.get("order")
        ordered = order.expressions if order is not None else []
        place = self.key_of(ordered[0].this) if len(ordered) == 1 else None
        if None in kept or len(ordered) > 1 or (ordered and place is None):
            raise NoRunningSum
        if any(each.args.get("nulls_first") for each in ordered):
            raise NoRunningSum
        partition = frozenset(k for k in kept if k is not None)
        rest = set(range(len(self.keys.found))) - partition - {place}
        if (frame.by_rows and rest) or any(key.ranges for key in self.keys.found):
            raise NoRunningSum
        if place is None and (frame.by_rows or frame.is_measured_off):
            raise NoRunningSum
        if frame.is_measured_off and not self.is_number(ordered[0].this):
            raise NoRunningSum
        descending = bool(ordered and ordered[0].args.get("desc"))
        return RunningSum(place, descending, partition, frame)

    def is_number(self, node: exp.Expr) -> bool:
        """True if the key of a window is an integer to SQL."""
        resolved = self.keys.resolve(node) if isinstance(node, exp.Column) else node
        return is_integer(resolved, self.scope.is_integer)

    def key_of(self, node: exp.Expr) -> int | None:
        """The key that an expression of a window is, by itself or by its alias."""
        return self.keys.match(self.keys.resolve(node) if isinstance(node, exp.Column) else node)

    def grouping(self, node: exp.Expr) -> exp.Expr:
        """GROUPING(k, ...): a bit for every key, set where the grouping set leaves it out.

        Without arguments it is about all keys.
        """
        every = list[int | None](range(len(self.keys.found)))
        keys = [self.keys.match(part.unnest()) for part in node.expressions] or every
        if not keys:
            self.scope.refuse(node, "E_GROUP_BY", "GROUPING of nothing", "GROUPING(column)")
        if None in keys:
            hint = "GROUPING(column), a column of GROUP BY"
            self.wrong(node, "E_GROUP_BY", "GROUPING takes grouping keys", hint)
        out: exp.Expr = exp.column(f"g{keys[0]}")
        for key in keys[1:]:
            twice = exp.Mul(this=exp.paren(out), expression=exp.Literal.number(2))
            out = exp.Add(this=twice, expression=exp.column(f"g{key}"))
        return exp.paren(out)

    def column(self, node: exp.Column, aliases: bool) -> exp.Expr:
        """Resolve a name that is not a key: an alias of a select item where SQL allows it."""
        found = self.alias(node) if aliases else None
        if found is not None:
            return found
        if self.scope.find_public(node) is None:
            self.scope.find_column(node, measure=True)
        if self.select.args.get("group") is None and not has_aggregates(self.select):
            refuse_rows(node, self.locate, windows=self.select.find(exp.Window) is not None)
        self.scope.find_column(node)
        self.not_grouped(node)

    def uncertainty(self, node: exp.Anonymous) -> exp.Expr:
        """DP_STDDEV, DP_INTERVAL_LOW and DP_INTERVAL_HIGH of an aliased or written aggregate."""
        name = str(node.this).lower()
        argument = self.argument(node, name)
        if name == REPORT:
            return written(json_text(self.report(node, argument)), True)
        tree = self.rewrite(argument, aliases=True)
        stddev = self.spread(node, tree)
        if name == "dp_stddev":
            return written(stddev, True)
        sign = "-" if name == "dp_interval_low" else "+"
        return written(f"({tree.sql('duckdb')}) {sign} z * {stddev}", True)

    def spread(self, node: exp.Anonymous, tree: exp.Expr) -> str:
        """The standard error of what a function is of."""
        stddev = self.stddev(tree)
        if stddev is None or stddev == "0.0":
            name = str(node.this).upper()
            raise NotSupportedError(
                "E_FUNCTION",
                f"{name} needs a count or arithmetic (+ - * /) over counts",
                hint=f"{name}(COUNT(*)) works",
                span=self.locate(node),
            )
        return stddev

    def report(self, node: exp.Anonymous, argument: exp.Expr) -> dict[str, Tree]:
        """The report of an aggregate, or of the quantiles in a list."""
        inner = argument.unnest()
        if isinstance(inner, exp.Column):
            inner = (find_alias(self.select.expressions, inner) or inner).unnest()
        listed = inner.args["ifs"][0].args["true"] if isinstance(inner, exp.Case) else inner
        if isinstance(listed, exp.Array):
            reports = [self.report(node, each) for each in listed.expressions]
            return {**reports[0], "result": [each["result"] for each in reports]}
        tree = self.rewrite(inner)
        called = inner.this if isinstance(inner, exp.Filter) else inner
        bounds = bounds_of(self.aggregates, called)
        ends = ends_of(self.aggregates, tree)
        if ends is not None:
            return report_of(sql_of(tree), None, ends, bounds, is_integer(tree))
        stddev = self.spread(node, tree)
        about = "" if isinstance(called, exp.Sum | exp.Count | exp.CountIf) else sql_of(tree)
        interval = f"{about} - z * {stddev}", f"{about} + z * {stddev}"
        return report_of(sql_of(tree), stddev, interval, bounds, is_integer(tree))

    def argument(self, node: exp.Anonymous, name: str) -> exp.Expr:
        """The argument of a function of a noisy number."""
        if len(node.expressions) != 1:
            hint = f"{name.upper()}(alias of an aggregate)"
            self.wrong(node, "E_FUNCTION", f"{name.upper()} takes one argument", hint)
        argument: exp.Expr = node.expressions[0]
        named = [i for i in self.select.expressions if isinstance(i, exp.Alias)]
        aliases = [i.alias for i in named if i.find(exp.AggFunc)]
        if isinstance(argument, exp.Column):
            known = {item.alias.casefold() for item in named}
            if argument.name.casefold() not in known:
                near = nearest(argument.name, aliases)
                what = f"{name.upper()}({printable(argument.name)}): no select item has this alias"
                hint = (
                    f"aliases: {', '.join(aliases)}"
                    if aliases
                    else f"{name.upper()}(COUNT(*)) works"
                )
                hint = f"did you mean {near}?" if near else hint
                self.wrong(argument, "E_UNKNOWN_COLUMN", what, hint)
        return argument


def _aggregate(column: exp.Column) -> dict[Number, str]:
    """The slope of a column of the cells: they will be numbered in ``r0``."""
    return {("r0", 0, int(column.name[1:])): "1"} if column.name.startswith("a") else {}
