"""GROUP BY -> keys and grouping sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.logical.functions import SETS
from dpsql.records import cached_property
from dpsql.sql.cells.cell_edges import check_edges
from dpsql.sql.cells.column_mentions import MentionCache
from dpsql.sql.dialects.report_format import REPORT
from dpsql.sql.groups.grouping_sets import read_sets
from dpsql.sql.names import position_of, written_key
from dpsql.sql.query import Expression
from dpsql.sql.scope import Scope

if TYPE_CHECKING:
    from dpsql.sql.groups.grouping_sets import Sets

UNCERTAINTY = ("dp_stddev", "dp_interval_low", "dp_interval_high", REPORT)
"""Functions of a noisy number that is shown."""


_WRITTEN = (exp.Binary, exp.Func)
"""Nodes that are longer, as SQL, than the name of a column."""
_TELLING = (exp.AggFunc, exp.Anonymous, exp.Query)


class Keys:
    """The keys of one SELECT, each once, and which of them every grouping set has."""

    def __init__(self, tree: exp.Select, scope: Scope) -> None:
        self.tree = tree
        self.scope = scope
        self.found: list[Expression] = []
        self.sets: Sets = ((),)
        group = tree.args.get("group")
        if group is not None:
            self.sets = self.read(group)

    @cached_property
    def below(self) -> MentionCache:
        """The mentions of the nodes of expressions over the groups."""
        return MentionCache()

    def read(self, group: exp.Expr) -> Sets:
        """The grouping sets: all combinations of what the elements of GROUP BY offer."""
        extra = [k for k, v in group.args.items() if v and k not in ("expressions", "all")]
        if extra:
            word = extra[0].strip("_").upper()
            hint = f"GROUP BY {word} (a, b)" if word in ("ROLLUP", "CUBE") else None
            self.scope.refuse(group, "E_GROUP_BY", f"{word} after the keys", hint)
        nodes = list(group.expressions)
        if group.args.get("all"):
            items = [item.unalias() for item in self.tree.expressions]
            nodes = list(varying(item for item in items if not is_of_groups(item)))
        if all(isinstance(node, exp.Column) for node in nodes):  # one set, as most statements have
            return (tuple(dict.fromkeys(map(self.add, varying(map(self.resolve, nodes))))),)
        nodes = [node for node in nodes if list(varying([self.resolve(node)]))]
        return read_sets(group, nodes, self.number, self.scope.locate)

    def number(self, node: exp.Expr) -> int:
        """The number of what is written as a key: a column, an expression, a place or an alias."""
        return self.add(self.resolve(node))

    def add(self, node: exp.Expr) -> int:
        key = self.key(node)
        if key not in self.found:
            for known in self.found:
                if known.column == key.column and (known.ranges or key.ranges):
                    self.scope.refuse(
                        node, "E_GROUP_BY", "DP_RANGES beside another key on the same column"
                    )
            self.found.append(key)
        return self.found.index(key)

    def resolve(self, node: exp.Expr) -> exp.Expr:
        """Follow a position or an alias in GROUP BY to the select item it names."""
        if isinstance(node, exp.Column) and node.name.casefold() in self.scope.table.columns:
            return node  # as most keys are
        items = self.tree.expressions
        is_position = isinstance(node, exp.Literal) and not node.is_string
        if is_position and position_of(node, len(items)) is None:
            raise ProgrammingError(
                "E_GROUP_BY",
                f"GROUP BY {node.name}: there are {len(items)} select items",
                hint="GROUP BY 1 is the first of them",
                span=self.scope.locate(node),
            )
        return written_key(node, items, self.scope.has)

    def key(self, node: exp.Expr) -> Expression:
        if node.find(exp.AggFunc) is not None:
            raise ProgrammingError(
                "E_GROUP_BY",
                "an aggregate cannot be a grouping key",
                hint="group by columns; HAVING tests aggregates",
                span=self.scope.locate(node),
            )
        if is_ranges(node):
            return self.ranges(node)
        column = self.scope.single_column(
            node, "E_GROUP_BY", "a key over two columns", "group by the columns themselves"
        )
        if self.scope.is_listed(node):
            if column is None:
                return self.scope.expression(None, node)
            self.scope.refuse(
                node,
                "E_GROUP_BY",
                "a key over a column and a list that joins several",
                "group by the columns of each",
            )
        if column is None:
            raise ProgrammingError(
                "E_GROUP_BY",
                "a constant is not a grouping key",
                hint="group by a column or an expression over columns",
                span=self.scope.locate(node),
            )
        for tree in self.scope.written_out(node):
            same = self.scope.evaluator.is_same
            check_edges(column, tree, self.scope.locate, same, grouping=True)
        return self.scope.expression(column, node)

    def ranges(self, node: exp.Expr) -> Expression:
        """DP_RANGES(column): all ranges of its cells."""
        inner = node.expressions
        if len(inner) != 1 or not isinstance(inner[0], exp.Column):
            raise ProgrammingError(
                "E_FUNCTION",
                "DP_RANGES takes one column",
                hint="DP_RANGES(age)",
                span=self.scope.locate(node),
            )
        column = self.scope.find_column(inner[0])
        if self.scope.find_public(inner[0]) is not None or column.type == "text":
            raise NotSupportedError(
                "E_FUNCTION",
                f"DP_RANGES of {column.name}: it has no order or belongs to a public table",
                hint="numbers and dates have ranges",
                span=self.scope.locate(node),
            )
        return Expression(column.name.casefold(), "v", self.scope.locate(node), ranges=True)

    def columns(self, node: exp.Expr) -> list[exp.Column]:
        """The columns that an expression mentions; none where it aggregates."""
        mentioned = self.below.of(node)
        return [] if mentioned.aggregates else list(mentioned.columns.values())

    def match(self, node: exp.Expr) -> int | None:
        """The index of the key that an expression is, or None."""
        if is_ranges(node):
            key = self.ranges(node)
            return self.found.index(key) if key in self.found else None
        columns = [node] if isinstance(node, exp.Column) else self.columns(node)
        if not columns:
            return None
        if any(map(self.scope.is_listed, columns)):
            if self.scope.columns(node):
                return None
            listed = self.scope.expression(None, node)
            return self.found.index(listed) if listed in self.found else None
        names = set()
        for reference in columns:
            public = self.scope.find_public(reference)
            names.add(reference.name.casefold() if public is None else public[0].carrier)
        keys = {key.sql for key in self.found if key.column in names}
        if len(names) != 1 or not keys or (keys == {"v"} and isinstance(node, _WRITTEN)):
            return None
        column = self.scope.find_column(columns[0])
        wanted = (column.name.casefold(), self.scope.render(node), False, False)
        known = [(key.column, key.sql, key.ranges, key.listed) for key in self.found]
        return known.index(wanted) if wanted in known else None


def is_ranges(node: exp.Expr) -> bool:
    """True if a node is DP_RANGES(...)."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == "dp_ranges"


def is_of_groups(item: exp.Expr) -> bool:
    """True if a select item is about whole groups, so that GROUP BY ALL leaves it out."""
    named = (str(each.this).lower() for each in item.find_all(exp.Anonymous))
    return item.find(exp.AggFunc, exp.Grouping) is not None or any(n in UNCERTAINTY for n in named)


def varying(keys: Iterable[exp.Expr]) -> Iterator[exp.Expr]:
    """The keys that are not the same for all rows: a constant is shown, and groups nothing."""
    for key in keys:
        is_set = isinstance(key, SETS)
        if isinstance(key, exp.Column) or is_set or key.find(exp.Column, *_TELLING):
            yield key
