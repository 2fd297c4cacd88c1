"""A result: rows, the standard error of every number, and the receipt that paid for them."""

from __future__ import annotations

import html
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.errors import decimal_text
from dpsql.strategy.noise_law import law

if TYPE_CHECKING:
    import pandas as pd


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
class Result:
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

    def to_df(self, *, stddev: bool = False) -> pd.DataFrame:
        """The rows as a data frame, with ``<column>_stddev`` columns if asked for."""
        import pandas as pd  # pandas is optional

        frame = pd.DataFrame(list(self.rows), columns=list(self.columns))
        if stddev:
            for name, errors in zip(self.columns, self.stddev, strict=True):
                if errors is not None:
                    frame[f"{name}_stddev"] = list(errors)
        return frame

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>"
            + "".join(
                f"<td>{_cell(value, errors[i] if errors else None)}</td>"
                for value, errors in zip(row, self.stddev, strict=True)
            )
            + "</tr>"
            for i, row in enumerate(self.rows)
        )
        notes = "".join(f"<p><small>{html.escape(note)}</small></p>" for note in self.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _cell(value: object, error: float | None) -> str:
    text = "NULL" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    spread = f" &plusmn; {error:.3g}" if error is not None else ""
    return html.escape(text) + spread


def message(text: str, sql: str = "") -> Result:
    """A result without rows that says something."""
    return Result((), (), (), (), sql, kind="message", message=text)


def listing(columns: tuple[str, ...], rows: list[tuple[Any, ...]], sql: str = "") -> Result:
    """A result of public facts, such as SHOW tables."""
    types = tuple(
        "integer" if rows and all(isinstance(row[j], int) for row in rows) else "text"
        for j in range(len(columns))
    )
    return Result(columns, types, tuple(rows), tuple(None for _ in columns), sql, kind="message")
