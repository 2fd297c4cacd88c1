"""Sub-queries over public tables alone, beside private rows: their values are written out.

``WHERE a > (SELECT AVG(x) FROM p)`` is ``WHERE a > 1.5``. They are read before anything is planned,
and nothing of a private table is in them.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.errors import ProgrammingError
from dpsql.sql.names import Names
from dpsql.sql.relations import MeasuredSelect, PrivateRows, Relation, ShellTable, as_literal
from dpsql.sql.shell.language import Locate
from dpsql.sql.shell.tables import Tables


class PublicSubqueries:
    """Reads such sub-queries in one SELECT; ``relation`` says what a query stands for.

    ``names`` are those around a sub-query, which its own may not depend on.
    """

    def __init__(
        self, relation: Callable[[exp.Expr, Names], Relation], tables: Tables, locate: Locate
    ) -> None:
        self.relation = relation
        self.tables = tables
        self.locate = locate

    def listed(self, query: exp.Expr, names: Names) -> list[exp.Expr] | None:
        """The values of the one column of a query; None if it is over private tables.

        Raises: ProgrammingError (E_TOO_LARGE).
        """
        known = self.known(query, names)
        return None if known is None else self.tables.literals(known, query)

    def value(self, node: exp.Expr, names: Names) -> exp.Expr | None:
        """The value of a scalar sub-query or uncorrelated EXISTS; None if it is of private tables.

        Raises: ProgrammingError (E_SUBQUERY) for several rows.
        """
        if isinstance(node, exp.Exists):
            known = self.known(node.this, names, columns=None)
            return None if known is None else exp.Boolean(this=bool(self.tables.rows_of(known)))
        known = self.known(node, names) if isinstance(node, exp.Subquery) else None
        if known is None:
            return None
        rows = self.tables.rows_of(known)
        if len(rows) > 1:
            raise ProgrammingError(
                "E_SUBQUERY",
                f"the sub-query has {len(rows):,} rows where one value is asked for",
                hint="aggregate in it, SELECT MAX(x) FROM ..., or write IN (SELECT x FROM ...)",
                span=self.locate(node),
            )
        return as_literal(rows[0][0]) if rows else exp.null()

    def known(self, query: exp.Expr, names: Names, columns: int | None = 1) -> ShellTable | None:
        """The table that a query stands for, of so many columns, unless it is a private one."""
        inner = query.unnest()
        if not isinstance(inner, exp.Query):
            return None
        found = self.relation(inner, names)
        if isinstance(found, PrivateRows | MeasuredSelect):
            return None
        known = self.tables.known(found)
        wrong = columns is not None and len(known.traits) != columns
        return None if known.private or wrong else known
