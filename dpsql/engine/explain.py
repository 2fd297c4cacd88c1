"""The forecast a user sees: expected errors, comparisons and cost, from public facts only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.answer.display import LabelledFacts
from dpsql.catalog import Table
from dpsql.errors import decimal_text
from dpsql.plan.baselines import plain_variance
from dpsql.plan.plan import Plan
from dpsql.plan.request import Planned, Request
from dpsql.strategy.noise_law import LAPLACE, law
from dpsql.workload.layout import Place
from dpsql.workload.target import Readings, reading_variances, view_rows
from dpsql.workload.workload import Workload

if TYPE_CHECKING:
    from dpsql.sql.compiled import Compiled

Row: TypeAlias = tuple[str, str]
"""A label of at most eleven characters, empty for what goes on, and what is said."""

SHOWN = 20
"""Statements whose errors are listed one by one."""

CATALOG, MODEL = "catalog", "synthetic table"
FROM_CATALOG = "answered by the catalog alone: exact, free"
FROM_MODEL = "answered by a synthetic table: biased, no standard errors, free"

BOUND = "is a lower bound for every strategy"

MORE = 4
"""Times as much effort that a search which was cut short is said to go further with."""

SAME = 1e-6
"""Relative difference below which two total errors are the same."""

CLOSE = 0.05
"""Distance to the lower bound below which it is given in per cent."""


@dataclass(frozen=True, slots=True)
class StatementForecast:
    """What one statement will return: its rows, columns and expected standard errors.

    ``stddev`` has (column, mean, largest) for every aggregate that is a column of its own;
    ``derived`` are the columns whose errors depend on the answers, such as means. ``plain`` are
    what noise on each number alone would give every column of ``stddev``, None if unknown.
    """

    sql: str
    rows: int
    columns: tuple[str, ...]
    stddev: tuple[tuple[str, float, float], ...]
    derived: tuple[str, ...] = ()
    plain: tuple[float | None, ...] = ()

    def spreads(self) -> list[str]:
        """The expected standard errors as text, with those of plain noise where known."""
        known = self.plain or (None,) * len(self.stddev)
        pairs = zip(self.stddev, known, strict=True)
        return [_spread(*each) + _beside(plain) for each, plain in pairs]


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

    def lines(self, most: int | None = SHOWN) -> tuple[str, ...]:
        """The forecast as text: the one place that writes rows; of at most so many statements."""
        return tuple(f"{label:<12}{text}" for label, text in self.rows(most))

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
            rows.append(("error", f"{self.rmse:.4g} expected (root mean square)"))
        for name, rmse in self.comparisons:
            if name == BOUND:
                continue
            times = f", {rmse / self.rmse:.3g} times as much" if rmse > 1.001 * self.rmse else ""
            rows.append(("", f"{rmse:.4g} {name}{times}"))
        if not self.mixed and not self.is_learned:
            rows.append(("", self.distance()))
        if count == 1:
            rows += [("column", item) for item in self.statements[0].spreads()]
            derived = self.statements[0].derived
            rows += [("column", f"{name}: DP_STDDEV({name}) tells its error") for name in derived]
            return tuple(rows)
        for number, statement in enumerate(self.statements[:most], start=1):
            later = [f"{name}: its error follows from the answers" for name in statement.derived]
            spreads = "; ".join([*statement.spreads(), *later])
            title = " ".join(statement.sql.split())
            title = title if len(title) <= 76 else title[:73] + "..."
            rows.append((f"{number:>9}", title))
            rows.append(("", f"{_plural(statement.rows, 'row')}{spreads and ': ' + spreads}"))
        if most is not None and count > most:
            rows.append(("", f"... and {count - most} more statements"))
        return tuple(rows)

    @property
    def is_learned(self) -> bool:
        """Whether answers come from a model, whose errors nothing is known about."""
        return math.isnan(self.rmse)

    @property
    def bound(self) -> float | None:
        """The least error that any strategy could have, None where no bound is known."""
        return dict(self.comparisons).get(BOUND)

    def distance(self) -> str:
        """How far the strategy is from the best there can be, as far as is known."""
        if self.bound is None:
            return "no lower bound is known for this workload"
        above = max(0.0, self.rmse / self.bound - 1)
        if above >= CLOSE:
            return f"{self.bound:.4g} {BOUND}"
        percent = max(0.01, math.ceil(above * 1e4) / 100)
        return f"within {percent:g} % of the best any strategy of this kind can do"


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _spread(name: str, mean: float, largest: float) -> str:
    if math.isclose(mean, largest, rel_tol=1e-3):
        return f"{name} \u00b1 {mean:.4g}"
    return f"{name} \u00b1 {mean:.4g} on average, {largest:.4g} at most"


def _beside(plain: float | None) -> str:
    return "" if plain is None else f" (plain noise: {plain:.4g})"


def explain(
    request: Request,
    planned: Planned | None,
    assumed: bool,
    remaining: Fraction,
    published: tuple[int, Plan, Readings] | None = None,
) -> Explanation:
    """Forecast a request; without a plan the catalog alone determines every answer.

    ``published`` says that a plan was carried out already that answers the request: by which
    entry of the ledger, and how every answer is read off it.
    """
    entry: int | None = None
    if published is not None:
        entry, plan, readings = published
    elif planned is not None:
        plan, readings = planned.plan, planned.readings
    else:
        statements = tuple(_forecast(request, i, {}) for i in range(len(request.statements)))
        nothing = Fraction(0)
        method = MODEL if any(item.is_modelled for item in request.statements) else CATALOG
        details = view_rows(request.statements)
        facts = (method, "none", nothing, nothing, 0.0, (), True, assumed, remaining)
        return Explanation(statements, *facts, details=details)
    variances: dict[Place, NDArray[np.float64]] = {}
    for index, part in enumerate(plan.parts):
        here = {place: reading for place, (at, reading, _) in readings.items() if at == index}
        found = reading_variances(part.forecast, list(here.values()))
        variances.update(zip(here, found, strict=True))
    alone = {} if planned is None else _plain_errors(request, planned)
    rows = sum(len(v) for v in variances.values())
    total = sum(float(v.sum()) for v in variances.values())
    return Explanation(
        tuple(_forecast(request, i, variances, alone) for i in range(len(request.statements))),
        " + ".join(dict.fromkeys(part.strategy.method for part in plan.parts)),
        plan.noise,
        plan.epsilon,
        plan.delta,
        math.sqrt(total / rows),
        _comparisons(request, planned, total, rows) if planned is not None else (),
        entry is not None,
        assumed,
        remaining,
        entry,
        request.is_mixed,
        (
            *_cut_short(request, planned),
            *_reconstruction(request),
            *view_rows(request.statements),
            *advise_sums(request.statements),
        ),
    )


def explain_learned(
    request: Request,
    mechanism: str,
    noise: str,
    details: tuple[Row, ...],
    assumed: bool,
    remaining: Fraction,
    entry: int | None,
) -> Explanation:
    """Forecast a request that a model answers, by what is known about the run: not its errors."""
    return Explanation(
        tuple(_forecast(request, i, None) for i in range(len(request.statements))),
        mechanism,
        noise,
        request.epsilon,
        request.delta,
        math.nan,
        (),
        entry is not None,
        assumed,
        remaining,
        entry,
        details=(*details, *view_rows(request.statements)),
    )


def _cut_short(request: Request, planned: Planned | None) -> tuple[Row, ...]:
    """One line where more strategies would have been tried."""
    if planned is None or not planned.is_cut:
        return ()
    more = math.ceil(MORE * max(1.0, float(request.effort)))
    return (("search", f"was cut short; SET effort = {more} searches further"),)


def _reconstruction(request: Request) -> tuple[Row, ...]:
    """One line where answers are not the least-squares estimates."""
    methods = dict.fromkeys(map(request.method_of, request.statements))
    others = [method for method in methods if method != "gls"]
    if not others:
        return ()
    said = "biased; errors are those of the unprocessed estimate"
    return (("answers", f"reconstruct = '{', '.join(others)}': {said}"),)


def _forecast(
    request: Request,
    index: int,
    variances: Mapping[Place, NDArray[np.float64]] | None,
    alone: Mapping[Place, float] | None = None,
) -> StatementForecast:
    item = request.statements[index]
    spreads, beside = [], []
    plain = item.outer is None and variances is not None
    outputs = item.selects[0].query.shell.outputs if plain else ()
    for output in outputs:
        found = [
            (variances or {}).get((index, j), np.zeros(1))
            for j, (_, answer) in enumerate(item.answers())
            if answer.aggregate == output.aggregate and answer.rank is None
        ]
        others = [
            (alone or {}).get((index, j))
            for j, (_, answer) in enumerate(item.answers())
            if answer.aggregate == output.aggregate and answer.rank is None
        ]
        if found:
            beside.append(others[0])
            errors = np.sqrt(np.concatenate(found))
            spreads.append((output.name, float(errors.mean()), float(errors.max(initial=0))))
    derived = tuple(o.name for o in outputs if o.stddev is not None and o.aggregate is None)
    known = tuple(beside)
    return StatementForecast(item.text, item.rows, item.columns, tuple(spreads), derived, known)


def _plain_errors(request: Request, planned: Planned) -> dict[Place, float]:
    """The standard errors of plain noise on each number; nothing where units are counted."""
    noise = planned.plan.noise
    asked = [(place, t) for t in request.targets for place in t.asked]
    if len(asked) < 2 or any(target.units for target in request.targets):
        return {}
    whole = sum(t.plain(noise) * t.rows_per_unit ** law(noise).norm for t in request.targets)
    unit = law(noise).unit_variance(float(request.budget(noise)))
    return {
        place: math.sqrt(unit * plain_variance(whole, target.asked[place].weight, noise))
        for place, target in asked
    }


def cheap_bound(workload: Workload) -> float:
    """The best lower bound on the unit error of any strategy that takes little time, else 0."""
    from dpsql.search.bounds import is_cheap, svd_bound  # a forecast alone
    from dpsql.search.pairing import is_quick, paired_bound
    from dpsql.search.problem import Problem

    by_values = svd_bound(workload) if is_cheap(workload) else 0.0
    paired = is_quick(workload) and len(workload.index) > 1
    return max(by_values, paired_bound(Problem(workload, LAPLACE.name)) if paired else 0.0)


def _comparisons(
    request: Request, planned: Planned, total: float, rows: int
) -> tuple[tuple[str, float], ...]:
    """The same error for simpler mechanisms, when all of the workload is about rows of one table.

    One with less in all is no alternative: some statement would be worse than it may be.
    Nothing is known of others that count privacy units: their numbers are not linear in the cells.
    """
    (part, *others), (layout, *_) = planned.plan.parts, planned.layouts
    single = all(reading[0][0] == 1 and len(reading) == 1 for reading in layout.products.values())
    weights = {product.weight for product in layout.workload.products}
    if others or part.units or not single or len(weights) > 1:
        return ()
    from dpsql.plan.baselines import identity_error, workload_error  # a forecast alone

    workload = layout.workload
    unit = total / part.strategy.unit_error(workload)
    found = []
    noise = planned.plan.noise.capitalize()
    lower = 0.0 if layout.padded else part.lower or cheap_bound(workload)
    for name, error in (
        (f"with {noise} noise on each query", workload_error(workload, part.strategy.noise)),
        ("with noise on each cell (Identity)", identity_error(workload, part.strategy.noise)),
        (BOUND, lower or None),
    ):
        if error is not None and (name == BOUND or total <= unit * error * (1 + SAME)):
            found.append((name, math.sqrt(unit * error / rows)))
    return tuple(found)


def advise_clip(table: Table, columns: Sequence[str]) -> tuple[Row, ...]:
    """What to try for sums of those columns whose upper bound is a guess."""
    return tuple(
        (
            "hint",
            f"the bounds of {table.columns[key].name} are declared loose: "
            "OPTIONS(clip = 'svt') chooses a threshold privately",
        )
        for key in dict.fromkeys(columns)
        if key in table.columns and table.columns[key].loose
    )


def advise_sums(statements: Sequence[Compiled]) -> tuple[Row, ...]:
    """The advice for statements that sum columns with loose bounds."""
    lines: list[Row] = []
    for item in [each for each in statements if each.truncation is None]:
        for select, answer in item.answers():
            names = [name for term in answer.terms for name in term.polynomials]
            names += [n for term in answer.terms if term.largest != 1 for n in term.factors]
            lines += advise_clip(select.table, names)
    return tuple(dict.fromkeys(lines))
