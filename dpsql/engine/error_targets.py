"""Errors that statements demand, of every shown column of which they are known before.

Counts and sums have their error whatever the data hold. What is computed from them has one at
public reference values: the rows that ``row_count_hint`` states, in equal groups, their values
anywhere within the declared bounds. That is the delta method at a public place, not a promise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.answer.assemble import read_variances, results_at
from dpsql.errors import ProgrammingError
from dpsql.plan.plan import Plan
from dpsql.plan.request import Request
from dpsql.plan.target import Readings
from dpsql.records import dataclass
from dpsql.sealed import SealedConnection
from dpsql.sql.compiled import Answer, Compiled, Select
from dpsql.vectors import Vector
from dpsql.workload.layout import Place
from dpsql.workload.term import Term

if TYPE_CHECKING:
    from dpsql.answer.result import Result
    from dpsql.engine.explanation import Row

LEVELS = (0.5, 0.0, 1.0)
"""Parts of the way from the lower to the upper bound at which reference values lie.

At the ends all values are alike: a spread has no error there, and is taken in the middle alone.
"""

UNSTATED = (1e3, 1e6)
"""Rows of a table that states none: an error that is the same at both depends on no rows."""

SAME = 1e-6
"""Relative difference below which numbers are the same."""


@dataclass(frozen=True, slots=True)
class DemandedColumn:
    """A noisy column before it is measured: its largest error, and that beside what it is.

    ``error`` is None where it is not known, or depends on rows that nobody states; ``part`` is it
    as a part of ``value``, None where public facts do not say what the column comes to.
    """

    name: str
    error: float | None
    part: float | None
    value: float | None


def worst_ratio(
    request: Request, plan: Plan, readings: Readings, sealed: SealedConnection | None = None
) -> float:
    """The largest error, as a multiple of what its statement demands at most.

    Args:
        readings: how every answer is read off the plan.
        sealed: works out what is computed; without it counts and sums alone are looked at.

    Raises:
        ProgrammingError: E_SETTING where nothing is known of any error of a statement, or of all.
    """
    worst, kept, failure = 0.0, False, None
    for index, item in enumerate(request.statements):
        if not item.demands or item.is_static or item.is_modelled:
            continue
        ratio = _ratio(request, index, plan, readings, sealed)
        if ratio is None:
            failure = failure or _refused(item)
            if not item.lenient:
                raise failure
        else:
            worst, kept = max(worst, ratio), True
    if failure is not None and not kept:
        raise failure
    return worst


def _ratio(
    request: Request, index: int, plan: Plan, readings: Readings, sealed: SealedConnection | None
) -> float | None:
    item, ratios = request.statements[index], []
    variances = read_variances(request, readings, dict(enumerate(plan.forecasts)))
    if item.max_stddev is not None:
        places = [(index, j) for j in item.shown() if (index, j) in variances]
        roots = [math.sqrt(float(variances[place].max(initial=0))) for place in places]
        ratios += [root / item.max_stddev for root in roots]
    is_plain = item.outer is None and item.selects[0].query.shell.plain
    if sealed is not None and (item.within is not None or not is_plain):
        for column in foresee(request, index, plan, readings, sealed, variances):
            if item.max_stddev is not None and column.error:
                ratios.append(column.error / item.max_stddev)
            if item.within is not None and column.part:
                ratios.append(column.part / item.within)
    return max(ratios, default=None)


def _refused(item: Compiled) -> ProgrammingError:
    unstated = sorted({s.table.name for s in item.selects if s.table.row_count_hint is None})
    facts = f"row_count_hint = 50000 in [table.{unstated[0]}]" if unstated else ""
    if item.within is not None and item.max_stddev is None:
        fact = f"how many rows {unstated[0]} has" if unstated else "what its columns come to"
        what = f"{fact} is not public: there is nothing to be within a part of"
        return ProgrammingError(
            "E_SETTING", what, hint=f"{facts and facts + ', or '}max_stddev = 5"
        )
    what = "max_stddev needs a column whose error is known before: a COUNT, a SUM"
    if unstated:
        return ProgrammingError(
            "E_SETTING",
            f"{what}, or what is computed from them and a stated number of rows",
            hint=f"{facts}, or OPTIONS(max_stddev = 5) COUNT(*) ...",
        )
    return ProgrammingError(
        "E_SETTING",
        f"{what}, or what is computed from them",
        hint="SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_stddev = 5) COUNT(*) ...",
    )


def foresee(
    request: Request,
    index: int,
    plan: Plan,
    readings: Readings,
    sealed: SealedConnection,
    variances: Mapping[Place, Floats] | None = None,
) -> tuple[DemandedColumn, ...]:
    """Return what is known of the noisy columns of a statement at public reference values."""
    forecasts = dict(enumerate(plan.forecasts))
    known = read_variances(request, readings, forecasts) if variances is None else variances
    item = request.statements[index]
    is_stated = all(select.table.row_count_hint is not None for select in item.selects)
    results = []
    for rows in UNSTATED[:1] if is_stated else UNSTATED:
        for level in LEVELS:
            answers = dict(_references(index, item, rows, level))
            read = (readings, forecasts)
            (found,) = results_at(request, [index], answers, known, read, plan.noise, sealed)
            results.append(found)
    return tuple(
        _foreseen(item.columns[at], at, results, is_stated)
        for at, spread in enumerate(results[0].stddev)
        if spread is not None
    )


def _foreseen(name: str, at: int, results: Sequence[Result], is_stated: bool) -> DemandedColumn:
    errors = [_finite(result.stddev[at] or Vector(())) for result in results]
    values = [_finite(result.vectors[at]) for result in results]
    most = [float(each.max()) for each in errors if each is not None and each.size]
    is_known = len(most) == len(errors) and max(most) <= min(most) * (1 + SAME)
    if errors[0] is None or not errors[0].size or not (is_stated or is_known):
        return DemandedColumn(name, None, None, None)
    first, same = values[0], is_stated and values[0] is not None
    for value in values:
        if value is None or first is None or len(value) != len(first):
            same = False
        else:
            same = same and np.allclose(value, first, rtol=SAME, atol=0)
    if not same or first is None or not (first != 0).all():
        return DemandedColumn(name, max(most), None, None)
    parts = errors[0] / np.abs(first)
    place = int(parts.argmax())
    return DemandedColumn(name, max(most), float(parts[place]), float(first[place]))


def _finite(values: Vector) -> Floats | None:
    """The numbers, None where one is none."""
    if not set(map(type, values.distinct())) <= {int, float}:
        return None
    found = values.numbers()
    return found if np.isfinite(found).all() else None


def _references(
    index: int, item: Compiled, rows: float, level: float
) -> Iterator[tuple[Place, Floats]]:
    """The public reference values of every answer; ``rows`` where a table states none."""
    for place, (select, answer) in enumerate(item.answers()):
        stated = select.table.row_count_hint
        groups = select.branches[answer.branch].rows
        share = (rows if stated is None else stated) / max(1, groups)
        count = groups * (len(answer.values) if answer.rank is not None else 1)
        value = share * _per_row(select, answer, level)
        yield (index, place), np.full(count, value / (count / max(1, groups)))


def _per_row(select: Select, answer: Answer, level: float) -> float:
    """The amount that a row adds to an answer, where values lie at a level within their bounds."""
    if answer.units or answer.distinct is not None:
        least = 1 / select.table.unit.max_rows  # of persons with all of their rows
        least = 0.0 if answer.distinct is not None else least
        return least + (1 - least) * level
    return sum(_of_term(select, term, level) for term in answer.whole)


def _of_term(select: Select, term: Term, level: float) -> float:
    total = term.scale
    for name, polynomial in term.polynomials.items():
        low, high = polynomial.clip or select.table.columns[name].number_bounds or (0.0, 0.0)
        # The variance of a value that lies anywhere between the bounds.
        spread = float(polynomial.fractions[2]) * (float(high) - float(low)) ** 2 / 12
        total *= polynomial.at(float(low) + (float(high) - float(low)) * level) + spread
    for factor in term.factors.values():
        if term.largest != 1 or term.scale != 1:
            entries = factor.dense()
            if not np.isin(entries, (0, 1)).all():
                low, high = float(entries.min()), float(entries.max())
                total *= low + (high - low) * level
    return total


def told(
    request: Request, plan: Plan, readings: Readings, sealed: SealedConnection, most: int
) -> tuple[Row, ...]:
    """The rows of a forecast about errors that are demanded: what they are at, column by column."""
    rows: list[Row] = []
    for index, item in enumerate(request.statements):
        if not item.demands or item.is_static or item.is_modelled or len(rows) > most:
            continue
        is_plain = item.outer is None and item.selects[0].query.shell.plain
        if item.within is None and is_plain:
            continue  # its columns are told with their errors
        for column in foresee(request, index, plan, readings, sealed):
            rows.append(("demanded" if not rows else "", _text(item, column)))
    if rows:
        hints = {
            s.table.name: s.table.row_count_hint for i in request.statements for s in i.selects
        }
        stated = [f"{n} {hint:,}" for n, hint in hints.items() if hint is not None]
        if stated:
            rows.append(
                ("", f"at rows as row_count_hint states, in equal groups: {', '.join(stated)}")
            )
    return tuple(rows)


def _text(item: Compiled, column: DemandedColumn) -> str:
    if item.within is not None and item.max_stddev is None:
        if column.part is None:
            return f"{column.name}: left alone, what it comes to is not public"
        return f"{column.name} within {100 * column.part:.3g} % of {column.value:,.6g}"
    if column.error is None:
        return f"{column.name}: left alone, its error depends on the data"
    return f"{column.name} \u00b1 {column.error:.4g} at most"
