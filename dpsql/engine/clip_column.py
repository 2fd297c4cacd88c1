"""The column that statements with a clip sum, and advice for sums that would gain by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fractions import Fraction
from typing import NoReturn

from dpsql.answer.clipped import number_text, rounded_text
from dpsql.catalog import Column, Table
from dpsql.catalog.domain import Bins
from dpsql.engine.clip import MANY_ROWS, MARGIN, find_clipped, make_rule, rule_of_one
from dpsql.errors import Error, NotSupportedError, Span, decimal_text
from dpsql.learn.summed import BOUNDS, WORKS, measure_of
from dpsql.learn.thresholds import Method, Threshold, rows_above, rows_lost
from dpsql.plan.plan import Plan
from dpsql.records import replace
from dpsql.sql.compiled import Answer, Compiled
from dpsql.sql.text.clauses import Truncation
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.term import Term

ADVISED: Method = "svt"
"""The rule that is advised: of all it has the least error at its worst."""
WIDE = 1000
"""Times as large as the least value, or one, an upper bound is that a clip is advised for."""


def read_column(item: Compiled) -> tuple[Table, Column]:
    """The one column whose values a statement with a clip sums: a measure, else one with a domain.

    Raises: NotSupportedError (E_AGGREGATE) for none or several, and for columns in bins.
    """
    measures: dict[tuple[str, str], tuple[Table, Column]] = {}
    others: dict[tuple[str, str], tuple[Table, Column]] = {}
    for table, name, is_measure in _summed(item):
        place = (table.name.casefold(), name)
        (measures if is_measure else others)[place] = table, table.columns[name]
    found = list((measures or others).values())
    if len(found) > 1:
        names = " and ".join(column.name for _, column in found[:2])
        refuse(item, f"clip of two columns, {names}, is not supported", f"one of them, or {BOUNDS}")
    if not found:
        refuse(item, "clip without a sum of values is not supported", "leave clip out, or SUM(x)")
    table, column = found[0]
    if isinstance(column.domain, Bins):
        what = f"clip of {column.name}, a column in bins, is not supported here"
        refuse(item, what, f"bounds in the catalog in place of bins, or {WORKS}")
    if table.synthetic:
        refuse(item, "clip with a synthetic table is not supported", "it is free: leave clip out")
    return table, column


def _summed(item: Compiled) -> Iterator[tuple[Table, str, bool]]:
    """The columns whose values are summed, and whether each has bounds; some twice."""
    for select, answer in item.answers():
        for term in answer.terms if answer.rank is None else ():
            for name, polynomial in term.polynomials.items():
                bounded = select.table.columns[name].bounds is not None
                if polynomial.clip is not None and item.truncation is not None:
                    what = "clip beside contribution_bounds_per_group is not supported"
                    refuse(item, what, "one or the other", "E_SETTING")
                if any(polynomial.coefficients[1:]):
                    yield select.table, name, bounded
            for name, factor in term.factors.items() if term.largest != 1 else ():
                if not factor.only_counts:
                    yield select.table, name, False


def summing(item: Compiled, key: str) -> list[Answer]:
    """The sums of a measure; those of its squares only where there are no others."""
    plain, squares = [], []
    for _, answer in item.answers():
        found = [t.polynomials[key].coefficients for t in answer.terms if key in t.polynomials]
        if any(square for _, _, square in found):
            squares.append(answer)
        elif any(once for _, once, _ in found):
            plain.append(answer)
    return plain or squares


def advise_clip(item: Compiled, plan: Plan) -> str | None:
    """The words for a statement whose bounds are wide against what a private clip would leave.

    The standard error of a sum is in proportion to the largest value, of its column or of what a
    clip leaves: so both errors are known in units of that. None where bounds are narrow, the
    statement takes no clip, or the rows that it leaves above are many.
    Guarantee: a function of the statement, the catalog and the budget.
    """
    if item.truncation is not None or item.is_static or item.demands:
        return None
    words = Truncation(ADVISED, None, None, Span("", 0, 0))
    asked = replace(item, truncation=words)
    with suppress(Error):
        table, column = read_column(asked)
        if table.public or column.bounds is None or column.bounds[0] < 0:
            return None
        low, high = column.bounds
        key, unit = column.name.casefold(), table.unit.max_rows
        answers = summing(asked, key)
        squares = [t.polynomials[key].coefficients[2] for a in answers for t in _of(a, key)]
        if (
            not squares
            or any(squares)
            or not (column.loose or high >= WIDE * max(low, Fraction(1)))
        ):
            return None
        is_one = find_clipped([asked]) is not None
        cells = groups_of(answers)
        facts = (ADVISED, measure_of(key, column, high).upper)
        rule = (
            rule_of_one(*facts, unit, plan.noise)
            if is_one
            else make_rule(*facts, cells, unit, plan.noise)
        )
        return _advice(column, high, rule, plan, table, 1 if is_one else cells)
    return None


def groups_of(answers: Iterable[Answer]) -> int:
    """The groups of all answers together."""
    return sum(math.prod(len(axis.groups) for axis in each.axes) for each in answers)


def _of(answer: Answer, key: str) -> list[Term]:
    """The terms of an answer with a measure."""
    return [term for term in answer.terms if key in term.polynomials]


def _advice(
    column: Column, high: Fraction, rule: Threshold, plan: Plan, table: Table, cells: int
) -> str | None:
    """The advice, with what bounds cost and from where on a clip has less error."""
    amount = plan.epsilon if plan.rho is None else plan.rho
    unit, used = table.unit.max_rows, law(plan.noise)
    rows = rows_above(rule, plan.noise, (1 - rule.share) * amount)
    hint = table.row_count_hint
    if (rows >= MANY_ROWS) if hint is None else (hint < MARGIN * rows):
        return None
    plain = unit * math.sqrt(used.unit_variance(float(amount)))
    least = float(high) / worst_ratio(rule, plan.noise, amount, unit, cells)
    below, tenth, error = map(rounded_text, (least, least / 10, plain * float(high)))
    share = decimal_text(rule.share * 100)
    return (
        f"a sum of {column.name} by itself has a standard error of {error} "
        f"because it may be {number_text(high)}; SELECT WITH DIFFERENTIAL_PRIVACY "
        f"OPTIONS(clip = '{ADVISED}') looks for less with "
        f"{share} % of the budget: less error if all but about {rows:,} rows are below "
        f"{below} and those not far above, a tenth of it if below {tenth}"
    )


def worst_ratio(rule: Threshold, noise: Noise, amount: Fraction, unit: int, cells: int) -> float:
    """The error of sums at their worst, by themselves, beside that without a clip.

    Both are in units of the largest value; ``cells`` groups have a threshold together.
    """
    used, rest = law(noise), (1 - rule.share - rule.again) * amount
    lost = (rows_lost(rule, noise, amount, unit) or 0.0) / cells
    plain, cut = (unit * math.sqrt(used.unit_variance(float(each))) for each in (amount, rest))
    return math.hypot(cut, lost) / plain


def refuse(item: Compiled, what: str, hint: str, code: str = "E_AGGREGATE") -> NoReturn:
    """Refuse a clip by name."""
    assert item.truncation is not None
    raise NotSupportedError(code, what, hint=hint, span=item.truncation.span)
