"""The outer shell of a SELECT: projection, HAVING, ORDER BY and LIMIT over the noisy cells."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NoReturn

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError, printable
from dpsql.sql.allowed import check_node
from dpsql.sql.derivative import stddev_sql
from dpsql.sql.growth import check_growth
from dpsql.sql.query import Expression, Output, Shell

if TYPE_CHECKING:
    from dpsql.sql.bind import _Binder

MOST_ROWS = 2**62
"""What LIMIT and OFFSET mean at most: more rows than any result has."""

_UNCERTAINTY = ("dp_stddev", "dp_interval_low", "dp_interval_high")


class Outer:
    """Rewrites one SELECT over the columns k0.. (keys) and a0.. (aggregates)."""

    def __init__(self, tree: exp.Select, keys: tuple[Expression, ...], binder: _Binder) -> None:
        self.tree = tree
        self.keys = keys
        self.binder = binder
        self.covariances: set[tuple[int, int]] = set()

    def shell(self) -> Shell:
        """Rewrite all clauses; every column must be a key, an aggregate or an alias."""
        outputs = tuple(self.output(item) for item in self.tree.expressions)
        having = self.tree.args.get("having")
        order = self.tree.args.get("order")
        return Shell(
            outputs,
            None if having is None else f"TRY(CAST({self.text(having.this)} AS BOOLEAN))",
            tuple(self.ordered(item) for item in order.expressions) if order is not None else (),
            self.count("limit"),
            self.count("offset") or 0,
            frozenset(self.covariances),
        )

    def output(self, item: exp.Expr) -> Output:
        if isinstance(item, exp.Star) or item.find(exp.Star) is item:
            self.no_rows(item)
        inner = item.unalias()
        tree = self.rewrite(inner)
        name = item.alias if isinstance(item, exp.Alias) else _default_name(inner)
        noisy = any(c.name.startswith("a") for c in tree.find_all(exp.Column))
        spread = any(_is_spread(part) for part in tree.find_all(exp.Var))
        only = tree.unnest()
        index = int(only.name[1:]) if isinstance(only, exp.Column) else None
        is_key = isinstance(only, exp.Column) and only.name.startswith("k")
        stddev = stddev_sql(tree, self.covariances) if noisy and not spread else None
        return Output(
            name,
            _total(tree.sql("duckdb", comments=False, copy=False)),
            None if stddev is None else _total(stddev),
            noisy or spread,
            key=index if is_key else None,
            aggregate=index if not is_key else None,
        )

    def text(self, node: exp.Expr) -> str:
        return _total(self.rewrite(node, aliases=True).sql("duckdb", comments=False, copy=False))

    def ordered(self, item: exp.Expr) -> str:
        assert isinstance(item, exp.Ordered)
        if item.args.get("with_fill"):
            self.binder.refuse_clause(item, "E_STATEMENT", "WITH FILL")
        node = item.this
        if isinstance(node, exp.Var):
            self.binder.refuse_clause(item, "E_ORDER_BY", f"ORDER BY {printable(node.name)}")
        if isinstance(node, exp.Literal) and not node.is_string:
            items = self.tree.expressions
            position = int(node.name) if node.name.isdigit() else 0
            if not 1 <= position <= len(items):
                raise ProgrammingError(
                    "E_ORDER_BY",
                    f"ORDER BY {node.name}: there are {len(items)} select items",
                    span=self.binder.locate(node),
                )
            node = items[position - 1].unalias()
        nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
        return f"{self.text(node)} {'DESC' if item.args.get('desc') else 'ASC'} NULLS {nulls}"

    def count(self, clause: str) -> int | None:
        node = self.tree.args.get(clause)
        if node is None:
            return None
        value = node.expression
        extra = [k for k, v in node.args.items() if v and k != "expression"]
        if extra or not isinstance(value, exp.Literal) or not value.name.isdigit():
            raise NotSupportedError(
                "E_LIMIT",
                f"{clause.upper()} takes a whole number",
                hint=f"{clause.upper()} 10",
                span=self.binder.locate(node),
            )
        return min(int(value.name), MOST_ROWS)

    def rewrite(self, node: exp.Expr, *, aliases: bool = False) -> exp.Expr:
        """Return a copy of ``node`` over the cells table, checked against the allow-list."""
        tree = self.replace(node, aliases)
        for part in tree.walk():
            if not isinstance(part, exp.Column | exp.Var | exp.Identifier):
                check_node(part, self.binder.locate)
        check_growth(None, tree, self.binder.locate)
        return tree

    def replace(self, node: exp.Expr, aliases: bool) -> exp.Expr:
        """Replace aggregates, keys, aliases and DP functions below ``node``."""
        if isinstance(node, exp.Window):
            raise NotSupportedError(
                "E_WINDOW",
                "window functions are not supported",
                span=self.binder.locate(node),
            )
        if isinstance(node, exp.Query | exp.Exists | exp.Any):
            check_node(node, self.binder.locate)
        index = self.binder.aggregate(node)
        if index is not None:
            return exp.column(f"a{index}")
        if isinstance(node, exp.Anonymous) and str(node.this).lower() in _UNCERTAINTY:
            return self.uncertainty(node)
        key = self.match_key(node)
        if key is not None:
            return exp.column(f"k{key}")
        if isinstance(node, exp.Column):
            return self.alias(node, aliases)
        if isinstance(node, exp.Star):
            self.no_rows(node)
        args = {name: self.replace_value(value, aliases) for name, value in node.args.items()}
        copy = type(node)(**args)
        copy.meta.update(node.meta)
        return _guard_division(copy) if isinstance(copy, exp.Div) else copy

    def replace_value(self, value: Any, aliases: bool) -> Any:
        if isinstance(value, exp.Expr):
            return self.replace(value, aliases)
        if isinstance(value, list):
            return [self.replace_value(item, aliases) for item in value]
        return value

    def match_key(self, node: exp.Expr) -> int | None:
        columns = {c.name.casefold() for c in node.find_all(exp.Column)}
        if len(columns) != 1 or node.find(exp.AggFunc):
            return None
        name = columns.pop()
        if name not in self.binder.table.columns or name not in {k.column for k in self.keys}:
            return None
        column = self.binder.find_column(next(iter(node.find_all(exp.Column))))
        found = self.binder.expression(column, node)
        return self.keys.index(found) if found in self.keys else None

    def alias(self, node: exp.Column, aliases: bool) -> exp.Expr:
        """Resolve a name that is not a key: an alias of a select item where SQL allows it."""
        name = node.name.casefold()
        if aliases and not node.table:
            for item in self.tree.expressions:
                if isinstance(item, exp.Alias) and item.alias.casefold() == name:
                    return exp.paren(self.replace(item.this, False))
        self.binder.find_column(node)
        if self.binder.tree.args.get("group") is None and not self.binder.tree.find(exp.AggFunc):
            self.no_rows(node)
        raise ProgrammingError(
            "E_GROUP_BY",
            f"column {node.name} must appear in GROUP BY or inside an aggregate",
            hint=f"add {node.name} to GROUP BY",
            span=self.binder.locate(node),
        )

    def uncertainty(self, node: exp.Anonymous) -> exp.Expr:
        """DP_STDDEV, DP_INTERVAL_LOW and DP_INTERVAL_HIGH of an aliased or written aggregate."""
        name = str(node.this).lower()
        if len(node.expressions) != 1:
            raise ProgrammingError(
                "E_FUNCTION",
                f"{name.upper()} takes one argument",
                hint=f"{name.upper()}(alias of an aggregate)",
                span=self.binder.locate(node),
            )
        tree = self.rewrite(self.argument(node, name), aliases=True)
        stddev = stddev_sql(tree, self.covariances)
        if stddev is None or stddev == "0.0":
            raise NotSupportedError(
                "E_FUNCTION",
                f"{name.upper()} needs a count or arithmetic (+ - * /) over counts",
                span=self.binder.locate(node),
            )
        if name == "dp_stddev":
            return exp.Var(this=stddev)
        sign = "-" if name == "dp_interval_low" else "+"
        return exp.Var(this=f"({tree.sql('duckdb')}) {sign} z * {stddev}")

    def argument(self, node: exp.Anonymous, name: str) -> exp.Expr:
        argument: exp.Expr = node.expressions[0]
        aliases = [i.alias for i in self.tree.expressions if isinstance(i, exp.Alias)]
        if isinstance(argument, exp.Column):
            known = {alias.casefold() for alias in aliases}
            if argument.name.casefold() not in known:
                near = difflib.get_close_matches(argument.name, aliases, n=1)
                raise ProgrammingError(
                    "E_UNKNOWN_COLUMN",
                    f"{name.upper()}({printable(argument.name)}): no select item has this alias",
                    hint=f"did you mean {near[0]}?" if near else f"aliases: {', '.join(aliases)}",
                    span=self.binder.locate(argument),
                )
        return argument

    def no_rows(self, node: exp.Expr) -> NoReturn:
        raise ProgrammingError(
            "E_NO_AGGREGATE",
            "rows cannot be returned, only aggregates",
            hint="SELECT COUNT(*) FROM ..., with GROUP BY for one count per value",
            span=self.binder.locate(node),
        )


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
    return exp.Paren(this=exp.Case(ifs=[exp.If(this=condition, true=node)]))


def _default_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Column):
        return node.name
    return node.sql("duckdb", comments=False).lower()
