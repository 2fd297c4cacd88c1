"""The columns that nodes of expressions mention, asked of every node from the root down.

A tree is looked at once then, not once for each of its nodes: chains are three hundred deep.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.records import dataclass


@dataclass(frozen=True, slots=True)
class ColumnMentions:
    """The columns that a node mentions: one of each name and qualifier, case-folded, and whether
    any aggregate or query."""

    columns: Mapping[tuple[str, str], exp.Column]
    aggregates: bool
    queries: bool


_NOTHING = ColumnMentions({}, False, False)


class MentionCache:
    """Remembers what the nodes of trees mention; none of them may change but by being replaced."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[exp.Expr, ColumnMentions]] = {}

    def of(self, tree: exp.Expr) -> ColumnMentions:
        """The mentions of a node, and of all that is below it."""
        if id(tree) not in self._known:
            for node in reversed(list(tree.walk())):  # those within others first
                self._known[id(node)] = node, self._read(node)
        return self._known[id(tree)][1]

    def _read(self, node: exp.Expr) -> ColumnMentions:
        parts = [self._known[id(child)][1] for child in node.iter_expressions()]
        columns = parts[0].columns if parts else _NOTHING.columns
        for part in parts[1:]:
            columns = {**part.columns, **columns} if part.columns else columns
        if isinstance(node, exp.Column):
            columns = {(node.table.casefold(), node.name.casefold()): node}
        return ColumnMentions(
            columns,
            isinstance(node, exp.AggFunc) or any(part.aggregates for part in parts),
            isinstance(node, exp.Query) or any(part.queries for part in parts),
        )
