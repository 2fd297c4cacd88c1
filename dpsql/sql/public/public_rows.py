"""Public rows beside those of a private table, as the FROM clause of one SELECT has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from dpsql.errors import Span
from dpsql.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class JoinedPublicRows:
    """Public rows in FROM: their column names and types, and the private column they fit.

    ``values`` are those of every column. ``keep`` says that private rows without a match stay;
    ``tests`` are what joins them. In SQL the columns are ``p0``, ``p1``, ... from ``first`` on, or
    ``r0``, ``r1``, ... of rows that are ``listed``: they fit several columns.
    """

    alias: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    values: tuple[Sequence[Any], ...]
    keep: bool
    span: Span
    carrier: str | None = None
    tests: tuple[exp.Expr, ...] = ()
    listed: bool = False
    first: int = 0

    def rows(self, columns: Sequence[int] | None = None) -> list[tuple[Any, ...]]:
        """The rows, of some of the columns or of all."""
        chosen = range(len(self.values)) if columns is None else columns
        if not chosen:
            return [()] * len(self.values[0])
        return list(zip(*(self.values[k] for k in chosen), strict=True))
