"""The forecast as a user sees it: a value that writes itself as rows of text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TypeAlias

from dpsql.answer.display import LabelledFacts
from dpsql.errors import decimal_text, printable
from dpsql.records import dataclass, replace
from dpsql.strategy.noise_law import law

Row: TypeAlias = tuple[str, str]
"""A label of at most eleven characters, empty for what goes on, and what is said."""

SHOWN = 20
"""Statements whose errors are listed one by one."""

CATALOG, MODEL = "catalog", "synthetic table"
FROM_CATALOG = "answered by the catalog alone: exact, free"
FROM_MODEL = "answered by a synthetic table: biased, no standard errors, free"

ALL = "all columns"
"""In place of the name of a column, where a statement is computed from others."""

BOUND = "is a lower bound for every strategy"

CLOSE = 0.05
"""Distance to the lower bound below which it is given in per cent."""


@dataclass(frozen=True, slots=True)
class ColumnForecast:
    """The forecast of the errors of one column before it is asked for, in its own unit.

    ``rmse`` is the root mean square of its standard errors, ``largest`` the largest of them.
    ``plain`` is what noise on each number alone would give; ``lower`` what ``rmse`` no strategy
    could go below, were this column asked alone with all of the budget. ``alone`` is ``rmse`` for
    its statement by itself with its share of the budget. None where not known.
    """

    name: str
    rmse: float
    largest: float
    plain: float | None = None
    lower: float | None = None
    alone: float | None = None

    def text(self, beside: bool) -> str:
        """The expected error, with what it would be alone, or under plain noise, and at best."""
        text = f"{self.name} \u00b1 {self.rmse:.4g}"
        if not math.isclose(self.rmse, self.largest, rel_tol=1e-3):
            text += f" on average, {self.largest:.4g} at most"
        if not beside:
            return text
        plain = "" if self.plain is None else f"plain noise: {self.plain:.4g}; "
        plain += "" if self.alone is None else f"alone with its share: {self.alone:.4g}; "
        least = "no bound known" if self.lower is None else f"alone at least {self.lower:.4g}"
        return f"{text} ({plain}{least})"


@dataclass(frozen=True, slots=True)
class StatementForecast:
    """The forecast of one statement: its rows, columns and expected standard errors.

    ``errors`` has every aggregate that is a column of its own; ``derived`` are the columns whose
    errors depend on the answers, such as means. ``ratios`` are what errors of these and of medians
    and quantiles are of those alone with the statement's share, where statements are several.
    """

    sql: str
    rows: int
    columns: tuple[str, ...]
    errors: tuple[ColumnForecast, ...]
    derived: tuple[str, ...] = ()
    ratios: tuple[tuple[str, float], ...] = ()

    def later(self) -> Iterator[str]:
        """Yield what is known of columns whose errors depend on the answers."""
        known = dict(self.ratios)
        for name in dict.fromkeys((*self.derived, *known)):
            times = f", {known[name]:.3g} times that alone with its share" if name in known else ""
            yield f"{name}: its error follows from the answers{times}"


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(LabelledFacts):
    """The forecast of a workload.

    ``rmse`` is the expected root mean squared error over all answers; ``comparisons`` are the
    same figure for simpler mechanisms at the same cost, and, if one is known, a lower bound.
    ``mixed`` says that answers differ in unit, so that one figure for all means little;
    ``assumed`` that no epsilon was set and 1 was assumed; ``entry`` is the place in the
    ledger of the release that answers for free, if one does. ``details`` are further rows:
    how answers are reconstructed, by which rule a mechanism was chosen. ``rmse`` is NaN where
    answers come from a model. ``whole`` is there instead where more than one run is forecast.
    ``case`` says what ``rmse`` is, where that depends on the data. ``bounded`` says that values
    are added up within bounds, so that no more than these bounds allow for is compared.
    """

    statements: tuple[StatementForecast, ...]
    method: str
    noise: str
    epsilon: Fraction
    delta: Fraction
    rmse: float
    comparisons: tuple[tuple[str, float], ...]
    free: bool
    assumed: bool
    remaining: Fraction
    entry: int | None = None
    mixed: bool = False
    details: tuple[Row, ...] = ()
    whole: tuple[Row, ...] | None = None
    case: str = "expected"
    bounded: bool = False

    def lines(self, most: int | None = SHOWN) -> tuple[str, ...]:
        """The forecast as text: the one place that writes rows; of at most so many statements."""
        return tuple(printable(f"{label:<12}{text}") for label, text in self.rows(most))

    def rows(self, most: int | None = SHOWN) -> tuple[Row, ...]:
        """The forecast as labels and what is said under each."""
        return (*self._facts(most), *self.details) if self.whole is None else self.whole

    def adding(self, rows: Iterable[Row]) -> Explanation:
        """The forecast with further rows at its end."""
        return replace(self, details=(*self.details, *rows))

    def _facts(self, most: int | None) -> tuple[Row, ...]:
        if self.free and self.entry is None:
            return ((FROM_MODEL if self.method == MODEL else FROM_CATALOG, ""),)
        count, total = len(self.statements), sum(s.rows for s in self.statements)
        cost = f"epsilon {decimal_text(self.epsilon)}" + (" (assumed)" if self.assumed else "")
        if not law(self.noise).is_pure:
            cost += f", delta {float(self.delta):g}"
        if self.entry is not None:
            cost = f"free: from entry {self.entry} of the ledger ({cost})"
        else:
            cost += f"; at most {decimal_text(self.remaining)} can still be asked for"
        rows = [
            ("workload", f"{_plural(count, 'statement')}, {_plural(total, 'row')}"),
            ("strategy", f"{self.method}, {self.noise} noise"),
            ("cost", cost),
        ]
        if self.is_learned:
            rows.append(("error", "biased answers of a model: no standard errors"))
        elif self.mixed:
            rows.append(("error", "column by column, since counts and sums differ in unit"))
        else:
            rows.append(("error", f"{self.rmse:.4g} {self.case} (root mean square)"))
        for name, rmse in self.comparisons:
            if name == BOUND:
                continue
            times = f", {rmse / self.rmse:.3g} times as much" if rmse > 1.001 * self.rmse else ""
            rows.append(("", f"{rmse:.4g} {name}{times}"))
        if not self.mixed and not self.is_learned:
            rows.append(("", self.distance()))
        errors = [each for statement in self.statements for each in statement.errors]
        beside = any(e.alone for e in errors)
        beside |= len(errors) > 1 and any(e.plain or e.lower for e in errors)
        if count == 1:
            rows += [("column", each.text(beside)) for each in self.statements[0].errors]
            derived = self.statements[0].derived
            rows += [("column", f"{name}: DP_STDDEV({name}) tells its error") for name in derived]
            return tuple(rows)
        for number, statement in enumerate(self.statements[:most], start=1):
            known = [each.text(beside) for each in statement.errors]
            spreads = "; ".join([*known, *statement.later()])
            title = " ".join(statement.sql.split())
            title = title if len(title) <= 76 else title[:73] + "..."
            rows.append((f"{number:>9}", title))
            rows.append(("", f"{_plural(statement.rows, 'row')}{spreads and ': ' + spreads}"))
        if most is not None and count > most:
            rows.append(("", f"... and {count - most} more statements"))
        return tuple(rows)

    @property
    def is_learned(self) -> bool:
        """True if answers come from a model, whose errors nothing is known about."""
        return math.isnan(self.rmse)

    @property
    def bound(self) -> float | None:
        """The least error that any strategy could have, None where no bound is known."""
        return dict(self.comparisons).get(BOUND)

    def distance(self) -> str:
        """Tell the distance of the strategy from the best there can be, as far as is known."""
        if self.bound is None:
            return "no lower bound is known for this workload"
        above = max(0.0, self.rmse / self.bound - 1)
        if above >= CLOSE:
            return f"{self.bound:.4g} {BOUND}" + " with these bounds" * self.bounded
        percent = max(0.01, math.ceil(above * 1e4) / 100)
        best = "for these bounds" if self.bounded else "any strategy of this kind can do"
        return f"within {percent:g} % of the best {best}"


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
