"""Answers as the ``reconstruct`` option wants them: what counts can be, by free post-processing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats
from dpsql.catalog import Column, Table
from dpsql.catalog.domain import Bins, DecimalRange, IntegerRange
from dpsql.plan.plan import Plan
from dpsql.plan.request import Request
from dpsql.plan.target import Readings
from dpsql.sql.cells.group_rows import Grouping
from dpsql.sql.compiled import Answer, Select
from dpsql.sql.query import Aggregate, RunningSum
from dpsql.workload.layout import Place
from dpsql.workload.polynomial import Polynomial
from dpsql.workload.term import Term

if TYPE_CHECKING:
    from dpsql.answer.graphical import Models

Shape = Literal["apart", "growing", "overlapping"]

PROJECTED = (
    "projected: counts are non-negative and those of disjoint groups keep their estimated total; "
    "biased, no standard errors (reconstruct = 'gls' has them)"
)
MODELLED = (
    "answers of a graphical model fitted to the release (reconstruct = '{}'): biased, no standard "
    "errors (reconstruct = 'gls' has them)"
)
UNTOUCHED = "sums of values of either sign are left as they were estimated"


def project_answer(
    select: Select, answer: Answer, values: Floats, variances: Floats
) -> Floats | None:
    """Return answers in result order, projected; None for sums that may be negative.

    Counts of disjoint groups move to the simplex of their own estimated total, running totals to
    the nearest non-decreasing ones, all else that cannot be negative to zero at least. Which is
    which is a public fact of the statement.

    Args:
        values: (rows,) in the unit of the answer.
        variances: (rows,) in its square.
    """
    aggregate = select.query.aggregates[answer.aggregate]
    counts = _is_count(aggregate)
    if not counts and not all(_cannot_be_negative(term, select.table) for term in answer.terms):
        return None
    from dpsql.pgm.project import project_orthant, project_simplex  # answers stay as they are

    shapes = [_shape(axis, running) for axis, running in _axes(answer, aggregate.running)]
    if counts and not answer.units and all(shape == "apart" for shape in shapes):
        return project_simplex(values, max(float(values.sum()), 0.0))
    growing = [k for k, shape in enumerate(shapes) if shape == "growing"]
    if not growing or answer.units:
        return project_orthant(values)
    return _make_monotone(answer, aggregate.running, growing, values, variances)


def _axes(answer: Answer, running: RunningSum | None) -> list[tuple[Grouping, RunningSum | None]]:
    """The axes of an answer; the hidden one of a ranked column, the last, runs by itself."""
    last = len(answer.axes) - (answer.rank is not None)
    return [(axis, running if k < last else None) for k, axis in enumerate(answer.axes)]


def _rows(axis: Grouping, running: RunningSum | None) -> NDArray[np.bool_] | None:
    if axis.members is None or running is None:
        return axis.members
    return axis.running(running)


def _shape(axis: Grouping, running: RunningSum | None) -> Shape:
    if axis.apart(running):
        return "apart"
    if axis.intervals(running) is not None:
        return "growing"
    rows = _rows(axis, running)
    if rows is None:
        return "overlapping"
    if int(rows.sum(axis=0).max(initial=0)) <= 1:
        return "apart"
    ordered = rows[_order(rows)]
    return "growing" if (ordered[:-1] <= ordered[1:]).all() else "overlapping"


def _order(rows: NDArray[np.bool_]) -> NDArray[np.intp]:
    return np.argsort(rows.sum(axis=1), kind="stable")


def _make_monotone(
    answer: Answer,
    running: RunningSum | None,
    growing: Sequence[int],
    values: Floats,
    variances: Floats,
) -> Floats:
    """Make answers monotone along the axis with the most different groups."""
    found = _axes(answer, running)
    rows = {k: _rows(*found[k]) for k in growing}
    sizes = {k: len(np.unique(r.sum(axis=1))) for k, r in rows.items() if r is not None}
    axis = max(sizes, key=lambda k: sizes[k])
    chosen = rows[axis]
    assert chosen is not None
    from dpsql.pgm.project import project_monotone

    order = _order(chosen)
    shape = [len(each.groups) for each in answer.axes]
    lines = np.moveaxis(values.reshape(shape), axis, -1)
    spreads = np.moveaxis(variances.reshape(shape), axis, -1)
    out = np.empty_like(lines)
    for place in np.ndindex(*lines.shape[:-1]):
        known = spreads[place][order]
        out[(*place, order)] = project_monotone(
            lines[place][order], known if (known > 0).all() else None
        )
    return np.moveaxis(out, -1, axis).ravel()


def _is_count(aggregate: Aggregate) -> bool:
    """True if a row adds one or nothing."""
    if len(aggregate.summands) != 1 or aggregate.summands[0].factors:
        return False
    known = [(1.0, 0.0, 0.0)]
    return all(p.coefficients in known and not p.null for p in aggregate.summands[0].polynomials)


def _cannot_be_negative(term: Term, table: Table) -> bool:
    if term.scale < 0 or any(_least(table.columns[p.column], p) < 0 for p in _polynomials(term)):
        return False
    return all(float(np.min(f.dense(), initial=0)) >= 0 for f in term.factors.values())


def _polynomials(term: Term) -> list[Polynomial]:
    return list(term.polynomials.values())


def _least(column: Column, polynomial: Polynomial) -> float:
    """The least value of a polynomial over a column, NULL included."""
    return min(polynomial.null, *polynomial.extremes(*_ends(column)))


def _ends(column: Column) -> tuple[float, float]:
    match column.domain:
        case IntegerRange(lo, hi):
            return float(lo), float(hi)
        case DecimalRange(first, step, count):
            return float(first), float(first + (count - 1) * step)
        case Bins() as bins:
            return float(bins.edges[0]), float(bins.edges[-1])
    low, high = column.bounds or (-np.inf, np.inf)
    return float(low), float(high)


Columns: TypeAlias = "dict[Place, Floats]"


def check_methods(request: Request, plan: Plan, readings: Readings) -> None:
    """Refuse what a plan cannot be reconstructed as, before it is paid for.

    Raises: NotSupportedError (E_SETTING); ProgrammingError (E_TOO_LARGE); OperationalError.
    """
    for index, item in enumerate(request.statements):
        if request.reads_model(item):
            from dpsql.answer.graphical import check_models  # few statements are read so

            here = [
                (at, reading) for place, (at, reading, _) in readings.items() if place[0] == index
            ]
            check_models(plan, here, request.method_of(item))


def reprocess(
    request: Request,
    index: int,
    readings: Readings,
    answers: Columns,
    variances: Columns,
    models: Models | None,
) -> tuple[set[Place], tuple[str, ...]]:
    """Replace the answers of one statement in place; return which, and what to say about them.

    Nothing is known about the errors of what was replaced: their variances become NaN.

    Args:
        index: the number of the statement.
        readings: of every answer off the parts.
        answers, variances: (rows,) of each place; both are changed.
        models: of the parts, where statements are read off these.
    """
    item = request.statements[index]
    method = request.method_of(item)
    if method == "gls":
        return set(), ()
    changed: set[Place] = set()
    left = False
    for j, (select, answer) in enumerate(item.answers()):
        place = (index, j)
        if place not in readings:
            continue
        if method == "nonnegative":
            found = project_answer(select, answer, answers[place], variances[place])
        else:
            assert models is not None
            part, reading, order = readings[place]
            found = answer.arrange(models.answer(part, reading, method), order)
        if found is None:
            left = True
            continue
        answers[place] = found
        variances[place] = np.full(found.shape, np.nan)
        changed.add(place)
    said = PROJECTED if method == "nonnegative" else MODELLED.format(method)
    notes = ((said,) if changed else ()) + ((UNTOUCHED,) if left else ())
    return changed, notes
