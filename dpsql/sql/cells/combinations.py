"""Expressions over several columns, on all combinations of what these may be.

DuckDB combines the rows: written out one by one, a million rows of twenty columns took ten seconds
and a gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import ProgrammingError, Span, printable
from dpsql.sealed import EvaluationError, SealedConnection

Given: TypeAlias = Mapping[str, tuple[str, Sequence[object]]]
"""Names of values, with their DuckDB type; as many of each."""


class Combinations:
    """Rows of several ``axes``, every row of one with every row of the others, the last fastest.

    ``alone`` are names that have one value in all rows.
    """

    def __init__(self, sealed: SealedConnection) -> None:
        self.sealed = sealed
        self._content: list[Given] = []

    def values(self, sql: str, axes: Sequence[Given], alone: Given, span: Span) -> list[Any]:
        """The value of an expression on every row. Raises: ProgrammingError (E_DOMAIN_EVAL)."""
        rows, place = self._filled(axes, alone)
        with told(span):
            found = self.sealed.run(f"SELECT {sql} FROM {rows} ORDER BY {place}")
        return [row[0] for row in found]

    def truth(self, sql: str, axes: Sequence[Given], alone: Given, span: Span) -> NDArray[np.bool_]:
        """True if a condition holds, row by row. Raises: ProgrammingError (E_DOMAIN_EVAL)."""
        rows, place = self._filled(axes, alone)
        held = f"coalesce(CAST(({sql}) AS BOOLEAN), FALSE) AS x"
        with told(span):
            return self.sealed.truths(f"SELECT {held} FROM {rows} ORDER BY {place}")

    def met(
        self, sql: str, axes: Sequence[Given], listed: Given, span: Span
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of a list, in order, and the combinations with which they meet a condition.

        One of equality takes as long as both lists, not as their product: DuckDB joins them.
        Raises: ProgrammingError (E_DOMAIN_EVAL).
        """
        rows, place = self._filled(axes, {})
        (_, values), *_ = listed.values()
        self.sealed.fill("joint_row", {**listed, "listed": ("BIGINT", range(len(values)))})
        with told(span):
            found = self.sealed.columns(
                f"SELECT listed, {place} AS place FROM ({rows}) JOIN joint_row"
                f" ON CAST(({sql}) AS BOOLEAN)"
            )
        order = np.argsort(found["listed"], kind="stable")
        return found["listed"][order], found["place"][order]

    def different(
        self, sql: str, axes: Sequence[Given], most: int, span: Span
    ) -> tuple[int, list[Any]]:
        """The number of different values of an expression; and these in the order of rows, if few.

        Raises: ProgrammingError (E_DOMAIN_EVAL).
        """
        rows, place = self._filled(axes, {})
        each = f"SELECT {sql} AS x, {place} AS place FROM {rows}"
        # as text too, so that of zeros with either sign the first one stands for both
        groups = f"SELECT x, min(place) AS first FROM ({each}) GROUP BY x, CAST(x AS VARCHAR)"
        with told(span):
            ((count,),) = self.sealed.run(f"SELECT count(*) FROM ({groups})")
            if count > 2 * most:
                return count, []
            found = self.sealed.run(f"SELECT x FROM ({groups}) ORDER BY first")
        values = list(dict.fromkeys(row[0] for row in found))
        return len(values), values

    def _filled(self, axes: Sequence[Given], alone: Given) -> tuple[str, str]:
        """Fill tables with values; return what their combinations are, and the place of a row."""
        content: list[Given] = [
            {name: (kind, told_apart(each)) for name, (kind, each) in axis.items()} for axis in axes
        ]
        sizes = [len(next(iter(axis.values()))[1]) for axis in axes]
        if content != self._content:  # many conditions of one list are about the same cells
            self._content = []
            for number, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
                self.sealed.fill(f"joint{number}", {**axis, f"i{number}": ("BIGINT", range(size))})
            self._content = content
        tables = [f"joint{number}" for number in range(len(axes))]
        if alone:
            self.sealed.fill("joint_row", alone)
            tables.append("joint_row")
        place = "0"
        for number, size in enumerate(sizes):
            place = f"({place} * {size} + i{number})"
        return " CROSS JOIN ".join(tables), place


@contextmanager
def told(span: Span) -> Iterator[None]:
    """Say where it was written what fails inside. Raises: ProgrammingError (E_DOMAIN_EVAL)."""
    try:
        yield
    except EvaluationError as error:
        reason = first_line(error)
        raise ProgrammingError(
            "E_DOMAIN_EVAL",
            "the expression fails on the declared domain",
            hint=f"on declared values only, DuckDB says: {reason}",
            span=span,
        ) from None


def first_line(error: EvaluationError) -> str:
    """The message of DuckDB about public values, in one line that can be printed."""
    return printable(str(error).split("\n")[0])[:200]


def told_apart(values: Sequence[Any]) -> Sequence[Any]:
    """Values of one type such that equal ones are the same to SQL: -0.0 is not 0.0 to Python's ==.

    >>> told_apart([0.5, 0.0, -0.0])
    [0.5, '0.0', '-0.0']
    """
    if not any(type(v) is float and v == 0 for v in values):
        return values
    return [v or str(v) for v in values]
