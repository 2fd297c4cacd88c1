"""Numbers: rows, the standard error of every number, and the receipt that paid for them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

from dpsql.errors import decimal_text
from dpsql.records import dataclass
from dpsql.strategy.noise_law import law

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


def told_error(error: float | None, value: object, kind: str) -> float | None:
    """The standard error of a noisy value as it is told: NaN beside a number that has none.

    >>> told_error(1.5, 7, "number"), told_error(None, 8, "number"), told_error(None, None, "date")
    (1.5, nan, None)
    """
    is_missing = error is None and value is not None and kind not in ERRORLESS
    return math.nan if is_missing else error


class ErrorRange(NamedTuple):
    """A noisy column: its name, the standard errors that are known, and how many are not."""

    name: str
    known: tuple[float, ...]
    unknown: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """The answer to one statement.

    ``stddev`` and ``intervals`` have one entry per column: ``None`` for a column without noise,
    else one standard error (95 % interval) per row, ``None`` where the number is NULL or no error
    is worked out. ``errors`` tells these two apart.
    ``biased`` says that numbers come from a model or were projected: there are no standard errors.
    ``standing`` are those of the ``notes`` that every answer about the same columns has: which rows
    never count. ``kind`` is "answer" or, for SET, SHOW, EXPLAIN and the like, "message".
    ``types`` follow from the statement alone. ``whole`` are columns of numbers that the plan makes
    whole: their values are integers. ``typed`` are the names that a dialect of its own has for
    the types, () where it has none.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    stddev: tuple[tuple[float | None, ...] | None, ...]
    sql: str
    kind: str = "answer"
    message: str | None = None
    notes: tuple[str, ...] = ()
    cost: CostInfo | None = None
    receipt: ReceiptInfo | None = None
    biased: bool = False
    standing: tuple[str, ...] = ()
    whole: tuple[bool, ...] = ()
    typed: tuple[str | None, ...] = ()

    @property
    def is_draft(self) -> bool:
        """True if it was asked in scratch mode."""
        return DRAFT in self.notes

    @property
    def value_types(self) -> tuple[str, ...]:
        """The types of the values: those of columns, or integers where the plan makes them so."""
        whole = self.whole or (False,) * len(self.types)
        pairs = zip(self.types, whole, strict=True)
        return tuple("integer" if w and kind == "number" else kind for kind, w in pairs)

    @property
    def errors(self) -> tuple[tuple[float | None, ...] | None, ...]:
        """The error of every value as it is told; each output asks here, and nowhere else.

        Shaped like ``stddev``: ``None`` for a column that is exact or a key, or tells errors
        itself. In others a standard error, NaN beside a number whose error is not worked out, and
        ``None`` where there is no number.
        """
        return tuple(
            None
            if errors is None
            else tuple(
                told_error(error, row[j], kind)
                for row, error in zip(self.rows, errors, strict=True)
            )
            for j, (errors, kind) in enumerate(zip(self.stddev, self.types, strict=True))
        )

    @property
    def spans(self) -> tuple[ErrorRange, ...]:
        """The errors of every noisy column with a number, in short."""
        found = []
        for name, errors in zip(self.columns, self.errors, strict=True):
            told = [each for each in errors or () if each is not None]
            known = [each for each in told if not math.isnan(each)]
            if told:
                found.append(ErrorRange(name, tuple(known), len(told) - len(known)))
        return tuple(found)

    @property
    def intervals(self) -> tuple[tuple[tuple[float, float] | None, ...] | None, ...]:
        """95 % intervals, shaped like ``stddev``."""
        width = law(self.cost.noise).interval if self.cost is not None else 0.0
        return tuple(
            None
            if errors is None
            else tuple(
                None if error is None else (row[j] - width * error, row[j] + width * error)
                for row, error in zip(self.rows, errors, strict=True)
            )
            for j, errors in enumerate(self.stddev)
        )
