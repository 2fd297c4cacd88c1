"""One SELECT of the outer shell -> SQL over the columns of its layers, never an error.

What a SELECT is over knows its own columns: ``over_cells`` the noisy cells of a measured SELECT,
``over_tables`` tables of the shell and the groups of their rows. ``w0``, ``w1``, ... are windows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError, printable
from dpsql.sql.names import find_alias, position_of
from dpsql.sql.query import Output, Tail
from dpsql.sql.shell.language import Locate, check_answer, check_frame, check_window, over_parts
from dpsql.sql.shell.whole_numbers import is_integer, marked, settled
from dpsql.sql.text.growth import check_growth
from dpsql.sql.text.item_texts import WRITTEN
from dpsql.sql.text.misspelled_words import refuse_misspelt

SHOWN = "distinct"
"""Key under which a SELECT notes that its groups are those of SELECT DISTINCT."""
MOST_ROWS = 2**62
"""The largest number that LIMIT and OFFSET mean: more rows than any result has."""


class Expressions(ABC):
    """Rewrites the expressions of one SELECT; a subclass says what its names and aggregates are.

    ``chosen`` says that noisy numbers decide which rows there are.
    """

    aliased_windows = False
    shown = "columns"
    positions = "write a name, or a position from 1 to {}"

    def __init__(self, select: exp.Select, locate: Locate) -> None:
        self.select = select
        self.locate = locate
        self.chosen = False
        self.windows: list[str] = []
        self.window_noise: list[bool] = []

    @abstractmethod
    def refuse(self, node: Any, code: str, what: str, hint: str = "") -> NoReturn:
        """Refuse a part by name."""

    @abstractmethod
    def known(self, node: exp.Expr, aliases: bool) -> exp.Expr | None:
        """The value of a name, an aggregate, a key, a window or a sub-query; None for others."""

    @abstractmethod
    def is_noisy(self, name: str) -> bool:
        """True if a column of the layer below depends on noisy numbers."""

    @abstractmethod
    def divided(self, node: exp.Div) -> exp.Expr:
        """A division that is NULL where it is not defined."""

    def wrong(self, node: exp.Expr, code: str, what: str, hint: str) -> NoReturn:
        """Refuse a mistake."""
        raise ProgrammingError(code, what, hint=hint, span=self.locate(node))

    def not_grouped(self, node: exp.Column) -> NoReturn:
        """Refuse a column that is neither a key nor inside an aggregate."""
        refuse_misspelt(node, self.locate)
        span = self.locate(node)
        is_made = not node.name.isidentifier()  # a column of a sub-query is told as it is written
        name = printable(span.text[span.start : span.end] if is_made else node.name)
        order = node.find_ancestor(exp.Order, exp.Window)
        if SHOWN in self.select.meta and isinstance(order, exp.Order):
            what = f"ORDER BY {name}, which SELECT DISTINCT does not show"
            self.wrong(node, "E_GROUP_BY", what, "ORDER BY a column that is shown")
        what = f"column {name} must appear in GROUP BY or inside an aggregate"
        self.wrong(node, "E_GROUP_BY", what, f"add {name} to GROUP BY")

    def rewrite(self, node: exp.Expr, *, aliases: bool = False) -> exp.Expr:
        """A copy of ``node`` over the columns of the layer below it, checked against the lists."""
        tree = self.replace(node, aliases)
        if not isinstance(tree, exp.Column):
            self.check_tree(tree)
        return tree

    def replace(self, node: exp.Expr, aliases: bool) -> exp.Expr:
        found = self.known(node, aliases)
        if found is not None:
            return found
        self.check(node)
        copy = over_parts(node, lambda part: self.replace(part, aliases))
        return self.divided(copy) if isinstance(copy, exp.Div) else settled(copy)

    def check(self, node: exp.Expr) -> None:
        """Refuse a node that is not listed, before what it is of is looked at."""
        check_answer(node, self.locate)

    def check_tree(self, tree: exp.Expr) -> None:
        """Refuse an expression that could make too long a text."""
        check_growth((), tree, self.locate)

    def alias(self, node: exp.Column) -> exp.Expr | None:
        """The expression that a name stands for as the alias of a select item."""
        item = find_alias(self.select.expressions, node)
        return None if item is None else exp.paren(self.replace(item, False), copy=False)

    def window(self, node: exp.Window, aliases: bool = False) -> exp.Expr:
        """A window function as a column of the layer of windows."""
        rest = {key: value for key, value in node.args.items() if key != "this"}
        named = aliases or self.aliased_windows
        around = {key: self.inside(value, named) for key, value in rest.items()}
        self.check_frame(node)
        for part in (node, *(p for p in (node.args.get("spec"),) if p)):
            check_window(part, self.locate)
        function, where = self.function(node.this, aliases), None
        if isinstance(function, exp.Filter):
            function, where = function.this, function.expression
        window = exp.Window(this=function, **around)
        whole, noisy = is_integer(window), any(map(is_noise, window.find_all(exp.Var)))
        function = self.framed(function)
        if where is not None:
            noisy |= any(map(is_noise, where.find_all(exp.Var)))
            function = exp.Filter(this=function, expression=where)
        window.set("this", function)
        text = sql_of(window)
        if text not in self.windows:
            self.windows.append(text)
            self.window_noise.append(noisy)
        return marked(exp.column(f"w{self.windows.index(text)}"), whole)

    def check_frame(self, node: exp.Window) -> None:
        """Refuse a window whose frame differs from row to row."""
        check_frame(node, self.locate)

    def framed(self, function: exp.Expr) -> exp.Expr:
        """A window function that is never an error over its frame."""
        return function

    def function(self, node: exp.Expr, aliases: bool) -> exp.Expr:
        """A window function; FILTER tests the rows below, and is never an error."""
        check_window(node, self.locate)
        if not isinstance(node, exp.Filter) or not isinstance(node.expression, exp.Where):
            return self.parts(node, aliases)
        tree = self.rewrite(node.expression.this, aliases=aliases)
        test = f"TRY(CAST({sql_of(tree)} AS BOOLEAN))"
        where = exp.Where(this=written(test, self.mentions_noise(tree)))
        return exp.Filter(this=self.function(node.this, aliases), expression=where)

    def parts(self, node: exp.Expr, aliases: bool) -> exp.Expr:
        return type(node)(**{key: self.inside(v, aliases) for key, v in node.args.items()})

    def inside(self, value: Any, aliases: bool) -> Any:
        """The parts of a window, each expression total."""
        if isinstance(value, list):
            return [self.inside(each, aliases) for each in value]
        if isinstance(value, exp.Order | exp.Ordered | exp.WindowSpec):
            check_window(value, self.locate)
            return self.parts(value, aliases)
        if not isinstance(value, exp.Expr) or isinstance(value, exp.Star | exp.Var):
            return value
        if isinstance(value, exp.Literal | exp.Interval):
            return value.copy()
        tree = self.rewrite(value, aliases=aliases)
        if any(is_window(column.name) for column in tree.find_all(exp.Column)):
            self.refuse(value, "E_WINDOW", "a window of a window", "use a sub-query")
        return written(total(tree), self.mentions_noise(tree), is_integer(tree))

    def mentions_noise(self, tree: exp.Expr) -> bool:
        """True if an expression depends on noisy numbers."""
        if any(self.is_noisy(column.name) for column in tree.find_all(exp.Column)):
            return True
        return any(map(is_noise, tree.find_all(exp.Var)))

    def test(self, clause: str) -> str | None:
        """WHERE, HAVING or QUALIFY as a test that is never an error."""
        node = self.select.args.get(clause)
        if node is None:
            return None
        tree = self.rewrite(node.this, aliases=clause != "where")
        if clause != "qualify" and any(is_window(c.name) for c in tree.find_all(exp.Column)):
            what = f"a window in {clause.upper()}"
            self.refuse(node, "E_WINDOW", what, "QUALIFY tests windows")
        self.chosen |= self.mentions_noise(tree)
        return f"TRY(CAST({sql_of(tree)} AS BOOLEAN))"

    def tail(self, items: Sequence[Output]) -> Tail:
        """The tail after the groups; ``items`` are the result columns, with ``*`` written out."""
        having, qualify = self.test("having"), self.test("qualify")
        clause = self.select.args.get("order")
        listed = [] if clause is None else clause.expressions
        by = [way for each in listed for way in self.orders(each, items)]
        limit, offset = self.row_count("limit"), self.row_count("offset") or 0
        self.chosen |= (limit is not None or offset > 0) and any(noisy for *_, noisy in by)
        order = tuple((sql, how) for sql, how, _ in by)
        return Tail(having, tuple(self.windows), qualify, order, limit, offset)

    def orders(self, item: exp.Expr, items: Sequence[Output]) -> list[tuple[str, str, bool]]:
        """The sort keys of an element of ORDER BY; ALL is every column of the result."""
        self.check_order(item)
        nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
        how = f"{'DESC' if item.args.get('desc') else 'ASC'} NULLS {nulls}"
        if is_all(item):
            return [(column.sql, how, column.noisy) for column in items]
        return [self.order(item.this, how, items)]

    def order(self, node: exp.Expr, how: str, items: Sequence[Output]) -> tuple[str, str, bool]:
        """An expression of ORDER BY, its direction, and whether it depends on noisy numbers."""
        if isinstance(node, exp.Literal) and not node.is_string:
            column = self.column_at(items, node)
            return column.sql, how, column.noisy
        tree = self.rewrite(self.ordered(node), aliases=True)
        return total(tree), how, self.mentions_noise(tree)

    def check_order(self, item: exp.Expr) -> None:
        """Refuse WITH FILL, and names that are no columns."""
        if item.args.get("with_fill") or (isinstance(item.this, exp.Var) and not is_all(item)):
            self.refuse(item, "E_ORDER_BY", f"ORDER BY {printable(item.this.name)}", "ORDER BY 1")

    def column_at(self, items: Sequence[Output], node: exp.Literal) -> Output:
        position = position_of(node, len(items))
        if position is None:
            what = f"ORDER BY {node.name}: there are {len(items)} {self.shown}"
            self.wrong(node, "E_ORDER_BY", what, self.positions.format(len(items)))
        return items[position]

    def ordered(self, node: exp.Expr) -> exp.Expr:
        """In ORDER BY the alias of a select item comes before a column of that name."""
        found = find_alias(self.select.expressions, node) if isinstance(node, exp.Column) else None
        return node if found is None else found

    def row_count(self, clause: str) -> int | None:
        """The number of rows of LIMIT or OFFSET; None without the clause.

        Raises: NotSupportedError (E_LIMIT) for anything but a whole number.
        """
        node = self.select.args.get(clause)
        if node is None:
            return None
        value = node.expression
        extra = [k for k, v in node.args.items() if v and k != "expression"]
        if extra or not isinstance(value, exp.Literal) or not value.name.isdigit():
            raise NotSupportedError(
                "E_LIMIT",
                f"{clause.upper()} takes a whole number",
                hint=f"{clause.upper()} 10",
                span=self.locate(node),
            )
        return min(int(value.name), MOST_ROWS)


def is_all(item: exp.Expr) -> bool:
    """True if an element of ORDER BY is ALL."""
    return isinstance(item.this, exp.Var) and item.this.name.upper() == "ALL"


def refuse_rows(node: exp.Expr, locate: Locate, *, windows: bool = False) -> NoReturn:
    """Refuse a SELECT that shows rows of a private table, with ``windows`` over them or without."""
    refuse_misspelt(node, locate)
    raise ProgrammingError(
        "E_NO_AGGREGATE",
        "rows cannot be returned, only aggregates",
        hint="windows are over groups: SELECT k, SUM(COUNT(*)) OVER (ORDER BY k) ... GROUP BY k"
        if windows
        else "SELECT COUNT(*) FROM ..., with GROUP BY for one count per value",
        span=locate(node),
    )


def name_of(item: exp.Expr) -> str:
    """The name of the column that a select item makes: its alias, its own name or its text."""
    if isinstance(item, exp.Alias | exp.Column) or (isinstance(item, exp.Subquery) and item.alias):
        return item.alias_or_name
    return str(item.meta.get(WRITTEN) or item.sql("duckdb", comments=False).lower())


def total(tree: exp.Expr) -> str:
    """The SQL of an expression that is NULL where it fails."""
    text = sql_of(tree)
    return text if text.isidentifier() else f"TRY({text})"


def sql_of(tree: exp.Expr) -> str:
    """Return a tree as DuckDB's SQL, without comments."""
    return str(tree.sql("duckdb", comments=False))


def written(text: str, noisy: bool, whole: bool = False) -> exp.Var:
    """SQL that stands for an expression; whether it depends on noisy numbers, and is an integer."""
    out = marked(exp.Var(this=text), whole)
    out.meta["noise"] = noisy
    return out


def is_noise(node: exp.Var) -> bool:
    """True if SQL that is written already depends on noisy numbers."""
    return bool(node.meta.get("noise"))


def is_window(name: str) -> bool:
    """True if a column of a layer is a window."""
    return name.startswith("w") and name[1:].isdigit()
