"""Queries of another dialect than DuckDB's, once they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dpsql.records import dataclass

if TYPE_CHECKING:
    from sqlglot import exp


class OutputColumn(NamedTuple):
    """A column of a table or of a query: its name, and its type as PostgreSQL calls it if known."""

    name: str
    type: str | None


Columns = Sequence[OutputColumn]


@dataclass(frozen=True, slots=True)
class ReadSelect:
    """A query as DuckDB's: its text, its tree, and the columns that its own dialect returns.

    What the parser made of the text, where it is no query at all, is among ``trees`` as it is.
    """

    sql: str
    trees: Sequence[exp.Expr | None]
    columns: Columns | None
