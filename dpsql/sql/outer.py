"""The outer shell of a SELECT: projection, HAVING, ORDER BY and LIMIT over the noisy cells."""

from __future__ import annotations

import difflib
import re
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError, printable
from dpsql.sql.aggregates import Aggregates
from dpsql.sql.derivative import guard, slopes_of, stddev_sql
from dpsql.sql.edges import check_growth
from dpsql.sql.keys import UNCERTAINTY, Keys
from dpsql.sql.language import Locate, check_node, check_window
from dpsql.sql.names import Scope
from dpsql.sql.query import Output, Running, Shell
from dpsql.sql.relations import find_alias
from dpsql.sql.whole import is_whole, marked, settled

MOST_ROWS = 2**62
"""What LIMIT and OFFSET mean at most: more rows than any result has."""

_CELL = re.compile(r"[akg]\d+")


class NotRunning(Exception):
    """A window that is not a sum over measured groups; the shell evaluates it."""


class Outer:
    """Rewrites one SELECT over the columns k0.. (keys), g0.. (GROUPING) and a0.. (aggregates)."""

    def __init__(self, tree: exp.Select, scope: Scope, keys: Keys, aggregates: Aggregates) -> None:
        self.tree = tree
        self.scope = scope
        self.keys = keys
        self.aggregates = aggregates
        self.covariances: set[tuple[int, int]] = set()

    def shell(self) -> Shell:
        """Rewrite all clauses; every column must be a key, an aggregate or an alias."""
        outputs = tuple(self.output(item) for item in self.tree.expressions)
        order = self.tree.args.get("order")
        return Shell(
            outputs,
            self.test("having"),
            self.test("qualify"),
            tuple(self.ordered(item) for item in order.expressions) if order is not None else (),
            row_count(self.tree, "limit", self.scope.locate),
            row_count(self.tree, "offset", self.scope.locate) or 0,
            frozenset(self.covariances),
        )

    def test(self, clause: str) -> str | None:
        """HAVING or QUALIFY as a test that is never an error."""
        node = self.tree.args.get(clause)
        if node is None:
            return None
        tree = self.rewrite(node.this, aliases=True)
        text = tree.sql("duckdb", comments=False, copy=False)
        if tree.find(exp.Window):
            if clause == "having":
                self.scope.refuse(node, "E_WINDOW", "a window in HAVING", "QUALIFY tests windows")
            return f"CAST({text} AS BOOLEAN)"
        text = f"TRY(CAST({_total(text)} AS BOOLEAN))"
        if clause == "qualify" and self.tree.find(exp.Window):
            return f"{text} AND ROW_NUMBER() OVER () > 0"
        return text

    def output(self, item: exp.Expr) -> Output:
        if isinstance(item, exp.Star) or item.find(exp.Star) is item:
            self.no_rows(item)
        inner = item.unalias()
        tree = self.rewrite(inner)
        name = item.alias if isinstance(item, exp.Alias) else _default_name(inner)
        noisy = any(c.name.startswith("a") for c in tree.find_all(exp.Column))
        spread = any(_is_spread(part) for part in tree.find_all(exp.Var))
        window = tree.find(exp.Window) is not None
        only = tree.unnest()
        column = only.name if isinstance(only, exp.Column) else ""
        stddev: str | None = None
        slopes: tuple[tuple[int, str], ...] = ()
        if noisy and not spread and not window:
            stddev = stddev_sql(tree, self.covariances, self.unknown())
            slopes = slopes_of(tree, self.unknown())
        text = tree.sql("duckdb", comments=False, copy=False)
        return Output(
            name,
            text if window else _total(text),
            None if stddev is None else _total(stddev),
            noisy or spread,
            key=int(column[1:]) if column.startswith("k") else None,
            aggregate=int(column[1:]) if column.startswith("a") else None,
            slopes=slopes,
            whole=is_whole(tree),
            unsmooth=noisy and not spread and stddev is None and not column.startswith("a"),
        )

    def unknown(self) -> set[int]:
        """The aggregates whose errors have no closed form."""
        return {j for j, each in enumerate(self.aggregates.found) if each.rank is not None}

    def text(self, node: exp.Expr) -> str:
        tree = self.rewrite(node, aliases=True)
        text = tree.sql("duckdb", comments=False, copy=False)
        return text if tree.find(exp.Window) else _total(text)

    def ordered(self, item: exp.Expr) -> str:
        assert isinstance(item, exp.Ordered)
        if item.args.get("with_fill"):
            self.scope.refuse(item, "E_STATEMENT", "WITH FILL")
        node = item.this
        if isinstance(node, exp.Var):
            self.scope.refuse(item, "E_ORDER_BY", f"ORDER BY {printable(node.name)}")
        if isinstance(node, exp.Literal) and not node.is_string:
            items = self.tree.expressions
            position = int(node.name) if node.name.isdigit() else 0
            if not 1 <= position <= len(items):
                raise ProgrammingError(
                    "E_ORDER_BY",
                    f"ORDER BY {node.name}: there are {len(items)} select items",
                    hint="ORDER BY 1 is the first of them",
                    span=self.scope.locate(node),
                )
            node = items[position - 1].unalias()
        elif isinstance(node, exp.Column):
            node = find_alias(self.tree.expressions, node) or node
        nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
        return f"{self.text(node)} {'DESC' if item.args.get('desc') else 'ASC'} NULLS {nulls}"

    def rewrite(self, node: exp.Expr, *, aliases: bool = False) -> exp.Expr:
        """Return a copy of ``node`` over the cells table, checked against the allow-list."""
        tree = self.replace(node, aliases)
        for part in tree.walk():
            if not isinstance(part, exp.Column | exp.Var | exp.Identifier):
                if part.find_ancestor(exp.Window) is None and not isinstance(part, exp.Window):
                    check_node(part, self.scope.locate)
                else:
                    check_window(part, self.scope.locate)
        check_growth(None, tree, self.scope.locate)
        return tree

    def replace(self, node: exp.Expr, aliases: bool) -> exp.Expr:
        """Replace aggregates, keys, aliases and DP functions below ``node``."""
        if isinstance(node, exp.Query | exp.Exists | exp.Any):
            check_node(node, self.scope.locate)
        try:
            found = self.aggregates.replace(node, self.running)
        except NotRunning:
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
            whole = is_whole(node, self.scope.is_integer)
            return marked(exp.column(f"k{key}"), whole, rounded=True)
        if isinstance(node, exp.Column):
            return self.alias(node, aliases)
        if isinstance(node, exp.Star):
            self.no_rows(node)
        args = {name: self.replace_value(value, aliases) for name, value in node.args.items()}
        copy = type(node)(**args)
        copy.meta.update(node.meta)
        return _guard_division(copy) if isinstance(copy, exp.Div) else settled(copy)

    def window(self, node: exp.Window, aliases: bool) -> exp.Expr:
        """A window over noisy cells: its function stays, what it is about is replaced."""
        args = {n: self.replace_value(v, True) for n, v in node.args.items() if n != "this"}
        inner = node.this
        if isinstance(inner, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            self.scope.refuse(node, "E_WINDOW", "this window function")
        spec = node.args.get("spec")
        for end in (spec.args.get("start"), spec.args.get("end")) if spec is not None else ():
            if isinstance(end, exp.Expr) and not isinstance(end, exp.Literal):
                self.scope.refuse(
                    node, "E_WINDOW", "a frame that differs from row to row", "ROWS 3 PRECEDING"
                )
        if isinstance(inner.this, exp.Star) and self.tree.args.get("group") is None:
            self.scope.refuse(node, "E_WINDOW", "a window over rows", "SUM(COUNT(*)) OVER ()")
        called = {name: self.replace_value(v, aliases) for name, v in inner.args.items()}
        copy = exp.Window(this=type(inner)(**called), **args)
        copy.meta.update(node.meta)
        copy.this.meta.update(inner.meta)
        return copy

    def running(self, node: exp.Window) -> Running:
        """A window of SUM over COUNT or SUM as a sum over groups that are measured as such.

        Raises: NotRunning.
        """
        if len(self.keys.sets) > 1 or not _is_default_frame(node):
            raise NotRunning
        if self.tree.args.get("having") is not None:
            raise NotRunning
        kept = [self.key_of(part) for part in node.args.get("partition_by") or []]
        order = node.args.get("order")
        ordered = order.expressions if order is not None else []
        place = self.key_of(ordered[0].this) if len(ordered) == 1 else None
        if None in kept or len(ordered) > 1 or (ordered and place is None):
            raise NotRunning
        if ordered and ordered[0].args.get("nulls_first"):
            raise NotRunning
        partition = frozenset(k for k in kept if k is not None)
        rest = set(range(len(self.keys.found))) - partition - {place}
        if _is_by_rows(node) and rest:
            raise NotRunning
        if any(
            self.keys.found[k].ranges for k in (*partition, *(() if place is None else (place,)))
        ):
            raise NotRunning
        if any(key.ranges for key in self.keys.found):
            raise NotRunning
        descending = bool(ordered and ordered[0].args.get("desc"))
        return Running(place, descending, partition)

    def key_of(self, node: exp.Expr) -> int | None:
        """The key that an expression of a window is, by itself or by its alias."""
        return self.keys.match(self.keys.resolve(node) if isinstance(node, exp.Column) else node)

    def grouping(self, node: exp.Expr) -> exp.Expr:
        """GROUPING(k, ...): a bit for every key, set where the grouping set leaves it out."""
        out: exp.Expr | None = None
        for part in node.expressions:
            key = self.keys.match(part)
            if key is None:
                raise ProgrammingError(
                    "E_GROUP_BY",
                    "GROUPING takes grouping keys",
                    hint="GROUPING(column), a column of GROUP BY",
                    span=self.scope.locate(node),
                )
            bit = exp.column(f"g{key}")
            two = exp.Literal.number(2)
            out = (
                bit
                if out is None
                else exp.Add(this=exp.Mul(this=exp.paren(out), expression=two), expression=bit)
            )
        if out is None:
            self.scope.refuse(node, "E_GROUP_BY", "GROUPING of nothing", "GROUPING(column)")
        return exp.paren(out)

    def replace_value(self, value: Any, aliases: bool) -> Any:
        if isinstance(value, exp.Expr):
            return self.replace(value, aliases)
        if isinstance(value, list):
            return [self.replace_value(item, aliases) for item in value]
        return value

    def alias(self, node: exp.Column, aliases: bool) -> exp.Expr:
        """Resolve a name that is not a key: an alias of a select item where SQL allows it."""
        name = node.name.casefold()
        if aliases and not node.table:
            for item in self.tree.expressions:
                if isinstance(item, exp.Alias) and item.alias.casefold() == name:
                    return exp.paren(self.replace(item.this, False))
        if self.scope.find_public(node) is None:
            self.scope.find_column(node, measure=True)
        if self.tree.args.get("group") is None and not self.tree.find(exp.AggFunc):
            self.no_rows(node)
        self.scope.find_column(node)
        raise ProgrammingError(
            "E_GROUP_BY",
            f"column {node.name} must appear in GROUP BY or inside an aggregate",
            hint=f"add {node.name} to GROUP BY",
            span=self.scope.locate(node),
        )

    def uncertainty(self, node: exp.Anonymous) -> exp.Expr:
        """DP_STDDEV, DP_INTERVAL_LOW and DP_INTERVAL_HIGH of an aliased or written aggregate."""
        name = str(node.this).lower()
        if len(node.expressions) != 1:
            raise ProgrammingError(
                "E_FUNCTION",
                f"{name.upper()} takes one argument",
                hint=f"{name.upper()}(alias of an aggregate)",
                span=self.scope.locate(node),
            )
        tree = self.rewrite(self.argument(node, name), aliases=True)
        stddev = stddev_sql(tree, self.covariances, self.unknown())
        if stddev is None or stddev == "0.0":
            raise NotSupportedError(
                "E_FUNCTION",
                f"{name.upper()} needs a count or arithmetic (+ - * /) over counts",
                hint=f"{name.upper()}(COUNT(*)) works",
                span=self.scope.locate(node),
            )
        if name == "dp_stddev":
            return exp.Var(this=stddev)
        sign = "-" if name == "dp_interval_low" else "+"
        return exp.Var(this=f"({tree.sql('duckdb')}) {sign} z * {stddev}")

    def argument(self, node: exp.Anonymous, name: str) -> exp.Expr:
        argument: exp.Expr = node.expressions[0]
        named = [i for i in self.tree.expressions if isinstance(i, exp.Alias)]
        aliases = [i.alias for i in named if i.find(exp.AggFunc)]
        if isinstance(argument, exp.Column):
            known = {item.alias.casefold() for item in named}
            if argument.name.casefold() not in known:
                near = difflib.get_close_matches(argument.name, aliases, n=1)
                raise ProgrammingError(
                    "E_UNKNOWN_COLUMN",
                    f"{name.upper()}({printable(argument.name)}): no select item has this alias",
                    hint=f"did you mean {near[0]}?"
                    if near
                    else f"aliases: {', '.join(aliases)}"
                    if aliases
                    else f"{name.upper()}(COUNT(*)) works",
                    span=self.scope.locate(argument),
                )
        return argument

    def no_rows(self, node: exp.Expr) -> NoReturn:
        raise ProgrammingError(
            "E_NO_AGGREGATE",
            "rows cannot be returned, only aggregates",
            hint="SELECT COUNT(*) FROM ..., with GROUP BY for one count per value",
            span=self.scope.locate(node),
        )


def row_count(tree: exp.Select, clause: str, locate: Locate) -> int | None:
    """The number of rows of LIMIT or OFFSET; None without the clause.

    Raises: NotSupportedError (E_LIMIT) for anything but a whole number.
    """
    node = tree.args.get(clause)
    if node is None:
        return None
    value = node.expression
    extra = [k for k, v in node.args.items() if v and k != "expression"]
    if extra or not isinstance(value, exp.Literal) or not value.name.isdigit():
        raise NotSupportedError(
            "E_LIMIT",
            f"{clause.upper()} takes a whole number",
            hint=f"{clause.upper()} 10",
            span=locate(node),
        )
    return min(int(value.name), MOST_ROWS)


def _total(sql: str) -> str:
    """An expression over noisy numbers is NULL where it fails: no error may depend on them."""
    return sql if sql.isidentifier() else f"TRY({sql})"


def _is_spread(node: exp.Expr) -> bool:
    """Whether a Var is the text of a standard error rather than a unit such as MONTH."""
    return not node.name.isidentifier()


def _guard_division(node: exp.Div) -> exp.Expr:
    """A ratio with a noisy count that is not positive is NULL, never an error or a wild sign."""
    below = node.expression
    if not any(column.name.startswith("a") for column in below.find_all(exp.Column)):
        return node
    test = exp.GT if isinstance(below.unnest(), exp.Column) else exp.NEQ
    condition = test(this=exp.paren(below.copy()), expression=exp.Literal.number(0))
    return exp.Paren(this=guard(exp.Case(ifs=[exp.If(this=condition, true=node)])))


def _is_default_frame(node: exp.Window) -> bool:
    """Whether a frame reaches from the start of the partition to the present group."""
    spec = node.args.get("spec")
    if any(node.args.get(name) for name in ("alias", "first")):
        return False
    if spec is None:
        return True
    given = {k: str(v).upper() for k, v in spec.args.items() if v}
    start = given.get("start") == "UNBOUNDED" and given.get("start_side") == "PRECEDING"
    end = given.get("end", "CURRENT ROW") == "CURRENT ROW"
    return start and end and not given.get("exclude") and given.get("kind") in ("ROWS", "RANGE")


def _is_by_rows(node: exp.Window) -> bool:
    spec = node.args.get("spec")
    return spec is not None and str(spec.args.get("kind")).upper() == "ROWS"


def _default_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Column):
        return node.name
    return node.sql("duckdb", comments=False).lower()
