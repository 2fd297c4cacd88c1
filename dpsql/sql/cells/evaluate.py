"""Single-column expressions -> their value on every cell of the column's public domain table.

DuckDB itself evaluates them, in a sealed connection that holds nothing but declared values, so the
semantics (three-valued logic, collation, rounding) are exactly DuckDB's. Results are cached by
canonical text: a workload of thousands of statements has few distinct predicates.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog import Column
from dpsql.catalog.domain import (
    Bins,
    DecimalRange,
    Periods,
    Value,
    Values,
    decimal_places,
    end_of_bin,
    ends_of_periods,
)
from dpsql.errors import ProgrammingError
from dpsql.records import dataclass
from dpsql.sealed import EvaluationError, SealedConnection
from dpsql.sql.cells.combinations import Combinations, first_line, told
from dpsql.sql.query import Expression, Listing, Lookup

Mask = NDArray[np.bool_]

MAX_PAIRS = 1 << 22
"""Most combinations of a cell and a public row that expressions are evaluated on."""

MAX_LINKS = 50
"""Most lists of public rows joined to one column: DuckDB plans 50 in .2 s, and 100 in 2 s."""

BATCH = 64
"""Conditions in one query: 512 over 100 values took .62 s singly, .10 s by 64, .12 s at once."""

_SQL_TYPES = {
    "integer": "BIGINT",
    "number": "DOUBLE",
    "text": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "time": "TIME",
    "boolean": "BOOLEAN",
}
_GIVEN_BACK = {"VARCHAR": str, "BIGINT": int, "BOOLEAN": bool}
"""Types whose values DuckDB gives back as it was given them."""


@dataclass(frozen=True, slots=True)
class Operand:
    """The values an expression is evaluated on: the cells of a column, or one constant row.

    With a ``lookup`` they are the pairs of a cell and a public row that fit together. With a
    ``listing`` each is paired with every row of that, which come one after another.
    """

    table: str
    column: Column | None
    lookup: Lookup | None = None
    listing: Listing | None = None

    def key(self) -> Hashable:
        """The identity of a source, which tells it from another."""
        column = None if self.column is None else self.column.name
        return self.table, column, self.lookup, self.listing and self.listing.name


class Evaluator:
    """Evaluates expressions on declared domains; caches every result.

    The sealed connection is opened on first use; not thread safe.
    """

    def __init__(self) -> None:
        self.sealed = SealedConnection()
        self.combined = Combinations(self.sealed)
        self._tables: dict[Hashable, tuple[str, NDArray[np.int64] | None]] = {}
        self._masks: dict[Hashable, Mask] = {}
        self._values: dict[Hashable, tuple[str, tuple[Any, ...]]] = {}
        self._ends: dict[tuple[Column, str], bool] = {}
        self._at_ends: dict[Column, str] = {}

    def prepare(self, source: Operand, conditions: Iterable[Expression]) -> None:
        """Evaluate many conditions in a few queries; later look-ups are free.

        Raises: ProgrammingError (E_DOMAIN_EVAL) with the caret at the failing condition.
        """
        missing: dict[str, Expression] = {}
        for condition in conditions:
            if (source.key(), condition.sql) not in self._masks:
                missing[condition.sql] = condition
        pending = list(missing.values())
        for first in range(0, len(pending), BATCH):
            self._evaluate_masks(source, pending[first : first + BATCH])

    def mask(self, source: Operand, condition: Expression) -> Mask:
        """Mask of the items for which a condition is TRUE; shape (items of the source,)."""
        name = (source.key(), condition.sql)
        if name not in self._masks:
            self.prepare(source, [condition])
        return self._masks[name]

    def cells(self, source: Operand) -> NDArray[np.int64] | None:
        """The cell of every item of a source, None when the items are the cells themselves."""
        is_itself = source.lookup is None and source.listing is None
        return None if is_itself else self._domain_table(source)[1]

    def values(self, source: Operand, key: Expression) -> tuple[str, tuple[Any, ...]]:
        """The DuckDB type of an expression and its value on every item."""
        name = (source.key(), key.sql)
        if name not in self._values and (declared := _declared(source, key)) is not None:
            self._values[name] = declared
        if name not in self._values:
            table = self._domain_table(source)[0]
            rows = self._run(f"SELECT ({key.sql}), typeof({key.sql}) FROM {table} ORDER BY i", key)
            values, kind = tuple(row[0] for row in rows), rows[0][1] if rows else "VARCHAR"
            is_real = kind in ("DOUBLE", "FLOAT")
            if is_real and not all(math.isfinite(v) for v in values if v is not None):
                raise ProgrammingError(
                    "E_DOMAIN_EVAL",
                    "the expression is not a finite number on some declared value",
                    hint="NULLIF(x, 0) under a division; CASE WHEN ... END leaves values out",
                    span=key.span,
                )
            self._values[name] = kind, values
        return self._values[name]

    def is_same(self, column: Column, sql: str) -> bool:
        """True if SQL over ``v`` has one value at both ends of every cell, and never fails there.

        The ends are the first and the last value that a cell can hold.
        """
        asked = column, sql
        if asked not in self._ends:
            self._ends[asked] = self._ask_ends(*asked)
        return self._ends[asked]

    def _ask_ends(self, column: Column, sql: str) -> bool:
        if column not in self._at_ends:
            known = f"e{len(self._at_ends)}"
            lows, highs = ends(column)
            kind = sql_type(column)
            cells = ("BIGINT", range(len(lows)))
            self.sealed.fill(f"{known}lo", {"i": cells, "v": (kind, lows)})
            self.sealed.fill(f"{known}hi", {"i": cells, "v": (kind, highs)})
            self._at_ends[column] = known
        table = self._at_ends[column]
        lo, hi = (f"(SELECT i, ({sql}) AS x FROM {table}{end})" for end in ("lo", "hi"))
        differ = f"FROM {lo} AS a JOIN {hi} AS b USING (i) WHERE a.x IS DISTINCT FROM b.x"
        try:
            return self.sealed.run(f"SELECT count(*) {differ}") == [(0,)]
        except EvaluationError:
            return False

    def numbers(self, source: Operand, expression: Expression) -> NDArray[Any]:
        """The value of a number on every item, 0 where it is NULL; whole where all values are.

        Raises: ProgrammingError (E_DOMAIN_EVAL).
        """
        cast = Expression(expression.column, f"CAST(({expression.sql}) AS DOUBLE)", expression.span)
        found = np.array([v or 0.0 for v in self.values(source, cast)[1]], dtype=np.float64)
        if (np.abs(found) <= 2.0**53).all() and (found == np.rint(found)).all():
            return found.astype(np.int64)
        return found

    def rehearse(self, sql: str, tables: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
        """Run SQL over tables without rows, given the types of their columns; return its types.

        Raises: ProgrammingError (E_DOMAIN_EVAL).
        """
        for table, kinds in tables.items():
            self.sealed.fill(table, {name: (kind, ()) for name, kind in kinds.items()})
        try:
            return self.sealed.query(sql)[0]
        except EvaluationError as error:
            raise ProgrammingError(
                "E_DOMAIN_EVAL",
                "an expression over the answers cannot be evaluated",
                hint=f"DuckDB says: {first_line(error)}",
            ) from None

    def _evaluate_masks(self, source: Operand, batch: list[Expression]) -> None:
        table = self._domain_table(source)[0]
        tests = ", ".join(f"coalesce(CAST(({c.sql}) AS BOOLEAN), FALSE)" for c in batch)
        try:
            rows = self.sealed.run(f"SELECT {tests} FROM {table} ORDER BY i")
        except EvaluationError:
            if len(batch) > 1:
                for condition in batch:
                    self._evaluate_masks(source, [condition])
                return
            rows = self._run(f"SELECT {tests} FROM {table} ORDER BY i", batch[0])
        matrix = np.array(rows, dtype=np.bool_).reshape(len(rows), len(batch))
        for index, condition in enumerate(batch):
            mask = np.ascontiguousarray(matrix[:, index])
            mask.flags.writeable = False
            self._masks[source.key(), condition.sql] = mask

    def _run(self, sql: str, expression: Expression) -> list[tuple[Any, ...]]:
        with told(expression.span):
            return self.sealed.run(sql)

    def _domain_table(self, source: Operand) -> tuple[str, NDArray[np.int64] | None]:
        name = source.key()
        if name not in self._tables:
            known = f"d{len(self._tables)}"
            self.sealed.fill(known, domain_columns(source.column))
            cells = None
            if source.lookup is not None:
                cells = self._join(known, source.lookup)
            if source.listing is not None:
                self._spread(known, source.listing)
            self._tables[name] = (known, cells)
        return self._tables[name]

    def _join(self, table: str, lookup: Lookup) -> NDArray[np.int64]:
        """Replace a domain table by its pairs with public rows; return the cell of every pair.

        Raises: ProgrammingError (E_TOO_LARGE, E_DOMAIN_EVAL).
        """
        if len(lookup.links) > MAX_LINKS:
            raise ProgrammingError(
                "E_TOO_COMPLEX",
                f"over {MAX_LINKS} lists of public rows joined to one column",
                hint="join fewer of them, or put what they hold in one table",
                span=lookup.span,
            )
        source, listed, places = f"{table} AS d", ["v"], ["d.i"]
        for number, link in enumerate(lookup.links):
            names = [f"p{index}" for index in link.columns]
            columns: dict[str, tuple[str, Sequence[object]]] = {
                name: (kind, [row[place] for row in link.rows])
                for place, (name, kind) in enumerate(zip(names, link.types, strict=True))
            }
            columns[f"j{number}"] = ("BIGINT", range(len(link.rows)))
            self.sealed.fill(f"public{number}", columns)
            kind = "LEFT JOIN" if link.keep else "JOIN"
            source += f" {kind} public{number} ON ({link.on})"
            listed += names
            places.append(f"j{number}")
        asked = Expression(None, lookup.links[-1].on, lookup.span)
        some = f"(SELECT 1 FROM {source} LIMIT {MAX_PAIRS + 1})"
        ((count,),) = self._run(f"SELECT count(*) FROM {some}", asked)
        if count > MAX_PAIRS:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"the join makes over {MAX_PAIRS:,} pairs of a cell of {lookup.column} and a "
                "public row",
                hint="join on a key, or keep the rows that are needed",
                span=lookup.span,
            )
        self._run(
            f"CREATE OR REPLACE TEMP TABLE {table} AS"
            f" SELECT row_number() OVER (ORDER BY {', '.join(places)}) - 1 AS i, d.i AS cell,"
            f" {', '.join(listed)} FROM {source}",
            asked,
        )
        rows = self.sealed.run(f"SELECT cell FROM {table} ORDER BY i")
        return np.array([row[0] for row in rows], dtype=np.int64)

    def _spread(self, table: str, listing: Listing) -> None:
        """Pair every row of a domain table with every row of a listing.

        Raises: ProgrammingError (E_TOO_LARGE).
        """
        ((count,),) = self.sealed.run(f"SELECT count(*) FROM {table}")
        if count * len(listing.rows) > MAX_PAIRS:
            raise ProgrammingError(
                "E_TOO_LARGE",
                f"{len(listing.rows):,} public rows for {count:,} cells of a column",
                hint=f"at most {MAX_PAIRS:,} combinations",
                span=listing.span,
            )
        columns: dict[str, tuple[str, Sequence[object]]] = {
            f"r{index}": (kind, [row[index] for row in listing.rows])
            for index, kind in enumerate(listing.types)
        }
        columns["j"] = ("BIGINT", range(len(listing.rows)))
        self.sealed.fill("public", columns)
        listed = ", ".join(f"r{index}" for index in range(len(listing.types)))
        self.sealed.run(
            f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT d.i * {len(listing.rows)} + j AS i,"
            f" d.* EXCLUDE (i), {listed} FROM {table} AS d CROSS JOIN public"
        )

    def close(self) -> None:
        """Close the sealed connection."""
        self.sealed.close()


def _declared(source: Operand, key: Expression) -> tuple[str, tuple[Any, ...]] | None:
    """The type and the values of a column by itself, where DuckDB gives back what is declared.

    Most keys are one, and a process that answers nothing else needs no sealed DuckDB.
    """
    column = source.column
    if key.sql != "v" or column is None or source.lookup or source.listing:
        return None
    kind, cells = sql_type(column), column.cells
    own = _GIVEN_BACK.get(kind)
    if own is None or not all(each is None or type(each) is own for each in cells):
        return None
    return kind, cells


def domain_columns(column: Column | None) -> dict[str, tuple[str, Sequence[object]]]:
    """The cells of a column as ``v``, numbered by ``i``; one row where there is no column."""
    if column is None:
        return {"i": ("BIGINT", [0])}
    return {"i": ("BIGINT", range(column.size)), "v": (sql_type(column), column.cells)}


def sql_type(column: Column) -> str:
    """The DuckDB type that a column is evaluated in."""
    if column.type == "decimal" and isinstance(column.domain, DecimalRange | Values):
        return f"DECIMAL(18, {decimal_places(column.domain)})"
    return _SQL_TYPES[column.type]


def ends(column: Column) -> tuple[list[Value], list[Value]]:
    """The first and the last value that every cell can hold."""
    domain = column.domain
    lows, highs = list(column.cells), list(column.cells)
    if isinstance(domain, Bins):
        whole = column.type == "integer"
        lows[: domain.size] = [int(e) if whole else float(e) for e in domain.edges[:-1]]
        highs[: domain.size] = [end_of_bin(domain, k, whole=whole) for k in range(domain.size)]
    if isinstance(domain, Periods):
        highs[: domain.size] = ends_of_periods(domain)
    return lows, highs
