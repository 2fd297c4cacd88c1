"""Single-column expressions -> their value on every cell of the column's public domain table.

DuckDB itself evaluates them, in a sealed connection that holds nothing but declared values, so the
semantics (three-valued logic, collation, rounding) are exactly DuckDB's. Results are cached by
canonical text: a workload of thousands of statements has few distinct predicates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog import Column, Table
from dpsql.errors import ProgrammingError, printable
from dpsql.sealed import EvaluationError, Sealed
from dpsql.sql.query import Expression

Mask = NDArray[np.bool_]

BATCH = 64
_SQL_TYPES = {
    "integer": "BIGINT",
    "number": "DOUBLE",
    "text": "VARCHAR",
    "date": "DATE",
    "boolean": "BOOLEAN",
}


class Evaluator:
    """Evaluates expressions on declared domains; caches every result.

    The sealed connection is opened on first use; not thread safe.
    """

    def __init__(self) -> None:
        self._sealed: Sealed | None = None
        self._tables: dict[tuple[str, str], str] = {}
        self._masks: dict[tuple[str, str | None, str], Mask] = {}
        self._values: dict[tuple[str, str | None, str], tuple[str, tuple[Any, ...]]] = {}

    def prepare(self, table: Table, conditions: Iterable[Expression]) -> None:
        """Evaluate many conditions in a few queries; later look-ups are free.

        Raises: ProgrammingError (E_DOMAIN_EVAL) with the caret at the failing condition.
        """
        missing: dict[str | None, dict[str, Expression]] = {}
        for condition in conditions:
            if (table.name, condition.column, condition.sql) not in self._masks:
                missing.setdefault(condition.column, {})[condition.sql] = condition
        for column, found in missing.items():
            pending = list(found.values())
            for first in range(0, len(pending), BATCH):
                self._evaluate_masks(table, column, pending[first : first + BATCH])

    def mask(self, table: Table, condition: Expression) -> Mask:
        """The cells on which the condition is TRUE; shape (column size,), or (1,) if constant."""
        self.prepare(table, [condition])
        return self._masks[table.name, condition.column, condition.sql]

    def values(self, table: Table, key: Expression) -> tuple[str, tuple[Any, ...]]:
        """The DuckDB type of a grouping expression and its value on every cell."""
        name = (table.name, key.column, key.sql)
        if name not in self._values:
            source = self._domain_table(table, key.column)
            rows = self._run(f"SELECT ({key.sql}), typeof({key.sql}) FROM {source} ORDER BY i", key)
            values = tuple(row[0] for row in rows)
            if any(isinstance(v, float) and not math.isfinite(v) for v in values):
                raise ProgrammingError(
                    "E_DOMAIN_EVAL",
                    "the key is not a finite number on some declared value",
                    span=key.span,
                )
            self._values[name] = (rows[0][1] if rows else "VARCHAR", values)
        return self._values[name]

    def rehearse(self, sql: str, kinds: Mapping[str, str]) -> None:
        """Run SQL over a table ``cells`` that has the columns ``kinds`` and no rows.

        Raises: ProgrammingError (E_DOMAIN_EVAL).
        """
        self.sealed.fill("cells", {name: (kind, ()) for name, kind in kinds.items()})
        try:
            self.sealed.run(sql)
        except EvaluationError as error:
            raise ProgrammingError(
                "E_DOMAIN_EVAL",
                "an expression over the answers cannot be evaluated",
                hint=f"DuckDB says: {_first_line(error)}",
            ) from None

    def _evaluate_masks(self, table: Table, column: str | None, batch: list[Expression]) -> None:
        source = self._domain_table(table, column)
        tests = ", ".join(f"coalesce(CAST(({c.sql}) AS BOOLEAN), FALSE)" for c in batch)
        try:
            rows = self.sealed.run(f"SELECT {tests} FROM {source} ORDER BY i")
        except EvaluationError:
            if len(batch) > 1:
                for condition in batch:
                    self._evaluate_masks(table, column, [condition])
                return
            rows = self._run(f"SELECT {tests} FROM {source} ORDER BY i", batch[0])
        matrix = np.array(rows, dtype=np.bool_).reshape(len(rows), len(batch))
        for index, condition in enumerate(batch):
            mask = np.ascontiguousarray(matrix[:, index])
            mask.flags.writeable = False
            self._masks[table.name, column, condition.sql] = mask

    def _run(self, sql: str, expression: Expression) -> list[tuple[Any, ...]]:
        try:
            return self.sealed.run(sql)
        except EvaluationError as error:
            reason = _first_line(error)
            raise ProgrammingError(
                "E_DOMAIN_EVAL",
                "the expression fails on the declared domain",
                hint=f"on declared values only, DuckDB says: {reason}",
                span=expression.span,
            ) from None

    def _domain_table(self, table: Table, column: str | None) -> str:
        name = (table.name, column or "")
        if name not in self._tables:
            known = f"d{len(self._tables)}"
            declared = table.columns[column] if column is not None else None
            self.sealed.fill(known, _domain_columns(declared))
            self._tables[name] = known
        return self._tables[name]

    @property
    def sealed(self) -> Sealed:
        """The sealed connection, opened on first use."""
        if self._sealed is None:
            self._sealed = Sealed()
        return self._sealed


def _first_line(error: EvaluationError) -> str:
    return printable(str(error).split("\n")[0])[:200]


def _domain_columns(column: Column | None) -> dict[str, tuple[str, Sequence[object]]]:
    if column is None:
        return {"i": ("BIGINT", [0])}
    return {"i": ("BIGINT", range(column.size)), "v": (_SQL_TYPES[column.type], column.cells)}
