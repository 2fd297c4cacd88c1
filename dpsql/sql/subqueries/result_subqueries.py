"""An aggregating SELECT with sub-queries in its results -> its sums, and a SELECT over those.

``SELECT sex, COUNT(*) / (SELECT COUNT(*) FROM t) FROM t GROUP BY sex`` is measured as ``SELECT sex,
COUNT(*) FROM t GROUP BY sex``; the rest is the outer shell.
"""

from __future__ import annotations

from functools import partial

from sqlglot import exp

from dpsql.logical.functions import SETS, has_aggregates
from dpsql.sql.groups.keys import UNCERTAINTY
from dpsql.sql.inline import FlatFrom, aliased
from dpsql.sql.names import find_alias, written_key
from dpsql.sql.shell.expressions import name_of
from dpsql.sql.shell.language import over_parts
from dpsql.sql.text.clauses import noted_clips

_SHELL = ("having", "qualify", "order", "limit", "offset", "distinct")


def needs_split(select: exp.Select) -> bool:
    """True if the results of an aggregating SELECT need the outer shell."""
    if select.args.get("distinct") is not None:
        return True
    parts = [*select.expressions, *(select.args.get(k) for k in ("having", "qualify", "order"))]
    return any(part.find(exp.Query) for part in parts if part is not None)


def split(flat: FlatFrom, select: exp.Select) -> tuple[exp.Select, exp.Select]:
    """The SELECT of keys and aggregates, named v0, v1, ..., and the one over its result."""
    return _Split(flat, select).parts()


class _Split:
    def __init__(self, flat: FlatFrom, select: exp.Select) -> None:
        self.flat = flat
        self.select = select
        self.items = select.expressions
        self.found: dict[str, tuple[int, exp.Expr]] = {}
        group = select.args.get("group")
        nodes = [] if group is None else [*group.expressions]
        if group is not None and group.args.get("all"):
            nodes = [i.unalias() for i in self.items if not has_aggregates(i)]
            nodes = [node for node in nodes if node.find(exp.Column) and not node.find(exp.Query)]
        self.group = [written_key(n, self.items, self.flat.names.find).copy() for n in nodes]
        self.keys = {self.text(part) for node in self.group for part in _parts(node)}

    def text(self, node: exp.Expr) -> str:
        return self.flat.resolve(node.unnest()).unnest().sql("duckdb", comments=False)

    def parts(self) -> tuple[exp.Select, exp.Select]:
        items = [self.item(item) for item in self.items]
        outer = exp.Select(expressions=items)
        outer.meta.update(self.select.meta)
        for key in _SHELL:
            if self.select.args.get(key) is not None:
                clause = aliased(self.select.args[key], self.items)
                outer.set(key, self.replace(clause, key in ("having", "order")))
        having = outer.args.pop("having", None)
        if having is not None:
            outer.set("where", exp.Where(this=having.this))
        inner = exp.Select(**{k: v for k, v in self.select.args.items() if k not in _SHELL})
        inner = inner.copy()
        inner.meta.update(self.select.meta)
        if self.group:
            group = self.select.args["group"].copy()
            group.set("all", None)
            group.set("expressions", self.group)
            inner.set("group", group)
        columns = [exp.alias_(node.copy(), f"v{n}") for n, node in self.found.values()]
        inner.set("expressions", columns)
        return inner, outer

    def item(self, item: exp.Expr) -> exp.Expr:
        return exp.alias_(self.replace(item.unalias(), False), name_of(item), quoted=True)

    def replace(self, node: exp.Expr, aliases: bool) -> exp.Expr:
        """A copy of ``node`` over v0, v1, ...: its aggregates and keys are columns of the sums."""
        if isinstance(node, exp.Query):
            return node.copy()
        dp = isinstance(node, exp.Anonymous) and str(node.this).lower() in UNCERTAINTY
        if dp and len(node.expressions) == 1:
            named = node.expressions[0]
            item = find_alias(self.items, named) if isinstance(named, exp.Column) else None
            node = exp.Anonymous(this=node.this, expressions=[(item or named).copy()])
        whole = isinstance(node, exp.AggFunc | exp.WithinGroup | exp.Filter)
        if whole or dp or self.is_key(node):
            return self.column(node)
        if isinstance(node, exp.Column) and aliases:
            item = find_alias(self.items, node)
            if item is not None:
                return exp.paren(self.replace(item, False))
        change = partial(self.replace, aliases=aliases)
        called = node.this if isinstance(node, exp.Window) else None  # is no aggregate of rows
        return over_parts(
            node, lambda part: over_parts(part, change) if part is called else change(part)
        )

    def is_key(self, node: exp.Expr) -> bool:
        if not isinstance(node, exp.Condition) or isinstance(node, exp.Literal):
            return False
        if node.find(exp.Query, exp.AggFunc, exp.Window) or not node.find(exp.Column):
            return False
        columns = node.find_all(exp.Column)
        if any(isinstance(c.this, exp.Star) or self.flat.names.find(c) is None for c in columns):
            return False
        return self.text(node) in self.keys

    def column(self, node: exp.Expr) -> exp.Expr:
        text = f"{node.sql('duckdb', comments=False)} {noted_clips(node)}"
        number, _ = self.found.setdefault(text, (len(self.found), node))
        column = exp.column(f"v{number}")
        first = next((part.meta for part in node.walk() if "start" in part.meta), {})
        column.this.meta.update(first)
        return column


def _parts(node: exp.Expr) -> list[exp.Expr]:
    """The keys in an element of GROUP BY."""
    if isinstance(node, SETS):
        return [part for each in node.expressions for part in _parts(each)]
    return [node]
