"""Numbers: rows, the standard error of every number, and the receipt that paid for them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from dpsql.errors import decimal_text
from dpsql.records import dataclass
from dpsql.strategy.noise_law import law

DRAFT = "scratch: a draft, not for publication"
"""The note of every answer in scratch mode."""


@dataclass(frozen=True, slots=True)
class CostInfo:
    """What a request cost: its epsilon and delta, the noise, and whether it was free."""

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
    """Where the ledger recorded the charge; proves a later rollback."""

    ledger_id: str
    seq: int
    head: str


@dataclass(frozen=True, slots=True)
class Numbers:
    """The answer to one statement.

    ``stddev`` and ``intervals`` have one entry per column: ``None`` for a column without noise,
    else one standard error (95 % interval) per row, ``None`` where the number is NULL.
    ``biased`` says that numbers come from a model or were projected: there are no standard errors.
    ``standing`` are those of the ``notes`` that every answer about the same columns has: which rows
    never count. ``kind`` is "answer" or, for SET, SHOW, EXPLAIN and the like, "message".
    ``types`` follow from the statement alone. ``whole`` are columns of numbers that the plan makes
    whole: their values are integers.
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

    @property
    def is_draft(self) -> bool:
        """Whether it was asked in scratch mode."""
        return DRAFT in self.notes

    @property
    def value_types(self) -> tuple[str, ...]:
        """The types of the values: those of columns, or integers where the plan makes them so."""
        whole = self.whole or (False,) * len(self.types)
        pairs = zip(self.types, whole, strict=True)
        return tuple("integer" if w and kind == "number" else kind for kind, w in pairs)

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
