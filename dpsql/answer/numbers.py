"""Numbers: rows, the standard error of every number, and the receipt that paid for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np

from dpsql.errors import decimal_text
from dpsql.records import cached_property, dataclass
from dpsql.strategy.noise_law import law
from dpsql.vectors import Vector, rows_of, vectors_of

DRAFT = "scratch: a draft, not for publication"
"""The note of every answer in scratch mode."""
ERRORLESS = frozenset({"text", "boolean"})
"""Types of values that have no standard error: there is no distance between them."""


@dataclass(frozen=True, slots=True)
class CostInfo:
    """The cost of a request: its epsilon and delta, the noise, and whether it was free."""

    epsilon: Fraction
    delta: Fraction
    noise: str
    free: bool

    def __str__(self) -> str:
        if self.free:
            return "free"
        delta = "" if law(self.noise).is_pure else f", delta {float(self.delta):g}"
        return f"epsilon {decimal_text(self.epsilon)}{delta} ({self.noise})"


@dataclass(frozen=True, slots=True)
class ReceiptInfo:
    """The entry in the ledger of the charge; proves a later rollback."""

    ledger_id: str
    seq: int
    head: str


def reported_errors(errors: Vector, values: Vector, kind: str) -> Vector:
    """The standard errors of noisy values as they are told: NaN beside a number that has none.

    >>> reported_errors(Vector.of([1.5, None, None]), Vector.of([7, 8, None]), "number")
    (1.5, nan, None)
    """
    is_known = errors.missing is None and isinstance(errors.values, np.ndarray)
    if is_known or kind in ERRORLESS:
        return errors
    missing = errors.nulls() & values.nulls()
    return Vector(errors.numbers(), missing if missing.any() else None)


class ErrorRange(NamedTuple):
    """A noisy column: the least and the greatest standard error, how many are not known."""

    name: str
    least: float | None
    greatest: float | None
    unknown: int


@dataclass(frozen=True)
class Numbers:
    """The answer to one statement, by columns; ``rows`` are made of them when they are asked for.

    ``stddev`` and ``intervals`` have one entry per column: ``None`` for a column without noise,
    else one standard error (95 % interval) per row, ``None`` where the number is NULL or no error
    is worked out. ``errors`` tells these two apart.
    ``biased`` says that numbers come from a model or were projected: there are no standard errors.
    ``standing`` are those of the ``notes`` that every answer about the same columns has: which rows
    never count. ``kind`` is "answer" or, for SET, SHOW, EXPLAIN and the like, "message".
    ``types`` follow from the statement alone. ``typed`` are the names that a dialect of its own has
    for them, () where it has none.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    vectors: tuple[Vector, ...]
    stddev: tuple[Vector | None, ...]
    sql: str
    kind: str = "answer"
    message: str | None = None
    notes: tuple[str, ...] = ()
    cost: CostInfo | None = None
    receipt: ReceiptInfo | None = None
    biased: bool = False
    standing: tuple[str, ...] = ()
    typed: tuple[str | None, ...] = ()

    @classmethod
    def of_rows(
        cls,
        columns: Sequence[str],
        types: Sequence[str],
        rows: Iterable[Sequence[Any]],
        stddev: Sequence[Sequence[float | None] | None],
        sql: str,
        **more: Any,
    ) -> Self:
        """An answer whose rows are given one by one.

        Args:
            columns, types: (columns,) names and types.
            rows: (rows, columns) values.
            stddev: (columns,) standard errors (rows,), None without noise.
            sql: of the statement.
            more: other fields, by name.
        """
        errors = tuple(None if each is None else Vector.of(each) for each in stddev)
        vectors = vectors_of(rows, len(columns))
        return cls(tuple(columns), tuple(types), vectors, errors, sql, **more)

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.vectors[0]) if self.vectors else 0

    @cached_property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """Rows as tuples, kept from then on."""
        return tuple(rows_of(self.vectors))

    @property
    def is_draft(self) -> bool:
        """True if it was asked in scratch mode."""
        return DRAFT in self.notes

    @property
    def errors(self) -> tuple[Vector | None, ...]:
        """The error of every value as it is told; each output asks here, and nowhere else.

        Shaped like ``stddev``: ``None`` for a column that is exact or a key, or tells errors
        itself. In others a standard error, NaN beside a number whose error is not worked out, and
        ``None`` where there is no number.
        """
        return tuple(
            None if errors is None else reported_errors(errors, values, kind)
            for errors, values, kind in zip(self.stddev, self.vectors, self.types, strict=True)
        )

    @property
    def spans(self) -> tuple[ErrorRange, ...]:
        """The errors of every noisy column with a number, in short."""
        found = []
        for name, errors in zip(self.columns, self.errors, strict=True):
            if errors is None:
                continue
            told = errors.numbers()
            if errors.missing is not None or not isinstance(errors.values, np.ndarray):
                told = told[~errors.nulls()]
            known = told[~np.isnan(told)] if np.isnan(told.sum()) else told
            if len(told):
                least = float(known.min()) if len(known) else None
                greatest = float(known.max()) if len(known) else None
                found.append(ErrorRange(name, least, greatest, len(told) - len(known)))
        return tuple(found)

    @property
    def intervals(self) -> tuple[tuple[tuple[float, float] | None, ...] | None, ...]:
        """95 % intervals, shaped like ``stddev``."""
        width = law(self.cost.noise).interval if self.cost is not None else 0.0
        return tuple(
            None
            if errors is None
            else tuple(
                None if error is None else (value - width * error, value + width * error)
                for value, error in zip(values, errors, strict=True)
            )
            for values, errors in zip(self.vectors, self.stddev, strict=True)
        )
