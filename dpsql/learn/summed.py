"""A statement with a clip: which column it sums, over which rows, and in which nested groups.

What can be clipped is SUM(column) of non-negative values: of the rows of the table, of those that
satisfy conditions, or group by group of the column itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats, Integers
from dpsql.catalog import Column, Table
from dpsql.catalog.domain import Bins
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.learn.batches import RESHAPED, Measure
from dpsql.learn.thresholds import AFTERWARDS
from dpsql.records import dataclass
from dpsql.sql.compiled import Answer, Compiled
from dpsql.sql.text.clauses import Truncation
from dpsql.workload.cells import Cells, Nodes, cells_of
from dpsql.workload.term import Term

WORKS = "SELECT SUM(x) FROM t WHERE ..., or SELECT x, SUM(SUM(x)) OVER (ORDER BY x) ... GROUP BY x"
GENERAL = "In every other statement: clip = 'svt', 'quantile' or a number, without sum_mechanism"
BOUNDS = "SUM(x, contribution_bounds_per_group => (0, 5000)) clips in every other statement"

MAX_STRATEGY = 512
"""Most bins that a strategy is searched for."""
MAX_CELLS = 1 << 12
"""Most bins of a batch, and most queries."""
MAX_SINGLE = 1 << 20
"""Most values of a column that is summed once."""
MAX_JOINT = 1 << 20
"""Most combinations of classes of a condition over several columns."""
LARGEST = 1 << 40
"""The largest value of a column with cells, in its own units."""
FINE = 1 << 20
"""Units to which a measure of real numbers is divided, at least, for its thresholds."""


@dataclass(frozen=True, slots=True, eq=False)
class SummedMeasure:
    """The summed quantity: a ``measure``, or cells with public ``values`` in whole ``units``.

    ``queries`` (q, m) are nested where they can be; query i is row ``order[i]`` of the result.
    Values are clipped to ``upper`` at most, ``largest`` is the largest declared one.
    """

    column: str
    measure: Measure | None
    values: Integers
    queries: Integers
    order: Integers
    levels: Cells | None
    spread: Nodes | None
    within: tuple[Cells, ...]
    unit: Fraction
    upper: Fraction
    largest: Fraction
    given: bool
    is_batch: bool

    @property
    def top(self) -> int:
        """The largest threshold, in units."""
        return int(self.values[-1]) if self.measure is None else self.measure.upper

    @property
    def largest_of_each(self) -> Floats:
        """The largest value that each query adds up, (q,)."""
        if self.measure is not None:
            return np.array([float(self.upper)])
        return np.asarray((self.queries * self.values).max(axis=1) * float(self.unit))

    def level(self, theta: int) -> Fraction:
        """The number that a threshold stands for."""
        return theta * self.unit if self.measure is None else self.measure.level(theta)


def read_summed(item: Compiled, clip: Truncation) -> tuple[Table, SummedMeasure]:
    """Read what a statement sums. Raises: NotSupportedError, ProgrammingError, with a hint."""
    return _SumReader(item, clip).read()


@dataclass(frozen=True, slots=True)
class _SumReader:
    item: Compiled
    clip: Truncation

    def refuse(self, what: str, hint: str, code: str = "E_AGGREGATE") -> NoReturn:
        raise NotSupportedError(
            code, f"clip with {what} is not supported", hint=hint, span=self.clip.span
        )

    def wrong(self, code: str, what: str, hint: str) -> NoReturn:
        raise ProgrammingError(code, what, hint=hint, span=self.clip.span)

    def read(self) -> tuple[Table, SummedMeasure]:
        answer, table = self.answer()
        key = self.column_of(answer.terms)
        column = table.columns[key]
        if any(axis.column != key for axis in answer.axes):
            self.refuse("GROUP BY another column than the one summed", GENERAL)
        is_batch = bool(answer.axes)
        if not is_batch and self.clip.mechanism is not None:
            self.refuse("sum_mechanism for a single sum", "leave it out", "E_SETTING")
        rule, mechanism = self.clip.rule, self.clip.mechanism or "tamm"
        if not is_batch and rule in AFTERWARDS:
            hint = "clip = 'svt', 'recursive', 'quantile' or a number"
            self.refuse(f"'{rule}' for a single sum", hint, "E_SETTING")
        if rule in AFTERWARDS and mechanism not in RESHAPED:
            hint = f"{' or '.join(sorted(RESHAPED))}, or a threshold chosen before measuring"
            self.refuse(f"'{rule}' for {mechanism}", hint, "E_SETTING")
        if is_batch and rule == "r2t" and mechanism != "workload":
            self.refuse(f"'r2t' for {mechanism}", "sum_mechanism = 'workload'", "E_SETTING")
        if column.bounds is not None:
            return table, self.measure(table, key, column, answer)
        return table, self.cells(table, key, column, answer, is_batch)

    def answer(self) -> tuple[Answer, Table]:
        """The one aggregate of the statement."""
        if self.item.outer is not None or len(self.item.selects) != 1:
            self.refuse("sub-queries or set operations", WORKS)
        select = self.item.selects[0]
        if select.table.synthetic:
            self.refuse("a synthetic table", "its answers are free: leave clip out", "E_SETTING")
        if len(select.query.aggregates) != 1:
            hint = f"one SUM(x) per statement. {GENERAL}"
            self.refuse("more than one aggregate, as AVG is,", hint)
        if len(select.branches) != 1:
            self.refuse("several grouping sets", WORKS)
        (answer,) = select.answers
        if answer.rank is not None or answer.units or not answer.terms:
            self.refuse("this aggregate", WORKS)
        return answer, select.table

    def column_of(self, terms: Sequence[Term]) -> str:
        """The case-folded name of the column that is summed."""
        found = {p.column for term in terms for p in term.polynomials.values()}
        for term in terms:
            for name, factor in term.factors.items():
                if not np.isin(factor.dense(), (0, 1)).all():
                    found.add(name)
        if len(found) != 1:
            self.refuse("this aggregate" if not found else "more than one summed column", WORKS)
        return found.pop()

    def measure(self, table: Table, key: str, column: Column, answer: Answer) -> SummedMeasure:
        assert column.bounds is not None
        low, largest = column.bounds
        high = largest
        if self.clip.level is not None:
            high = min(high, self.clip.level)
            if high <= low:
                hint = f"a number above the lower bound of {column.name}, {float(low):g}"
                self.wrong("E_DEGENERATE_BOUNDS", "the clip leaves nothing to add up", hint)
        elif self.clip.rule != "none":
            self.check_signs(column, low)
        terms = [_without(term, key) for term in answer.terms]
        for term in answer.terms:
            polynomial = term.polynomials[key]
            if polynomial.coefficients != (0.0, 1.0, 0.0) or polynomial.null or polynomial.clip:
                self.refuse("anything but SUM(column)", WORKS)
        measure = measure_of(key, column, high)
        unit = measure.unit
        one = np.ones((1, 1), dtype=np.int64)
        within = self.within(table, terms)
        nowhere = np.zeros(1, dtype=np.int64)
        given = self.clip.level is not None
        facts = (one[0], one, nowhere, None, None, within)
        return SummedMeasure(column.name, measure, *facts, unit, high, largest, given, False)

    def check_signs(self, column: Column, least: Fraction) -> None:
        if least < 0:
            self.refuse(
                f"values below 0, as {column.name} may have,",
                "clip = a number works for measures with bounds",
                "E_SETTING",
            )

    def cells(
        self, table: Table, key: str, column: Column, answer: Answer, is_batch: bool
    ) -> SummedMeasure:
        ends = _ends(column)
        if ends is None:
            self.refuse("a column that is no number", WORKS)
        self.check_signs(column, min(ends))
        largest = max(ends)
        upper = self.cut(column, ends, largest)
        unit = Fraction(1, math.lcm(*(end.denominator for end in (*ends, upper))))
        numbers = np.array([int(end / unit) for end in ends], dtype=np.int64)
        self.check_size(column, len(numbers), len(answer.axes[0].groups) if is_batch else 1)
        if largest / unit >= LARGEST:
            self.wrong("E_TOO_LARGE", "the values have too many digits", "fewer decimals in bins")
        masks = self.masks(key, column, answer, numbers)
        used = np.asarray(masks.any(axis=0))
        if not used.any():
            self.refuse("a condition that no row satisfies", WORKS)
        classes = np.full(column.size, -1, dtype=np.int64)
        places = np.argsort(numbers, kind="stable")
        spread = None
        if isinstance(column.domain, Bins):
            bins = column.domain.size
            classes[:bins] = 2 * np.arange(bins) + 1
            others = (-1,) * (column.size - bins)
            spread = Nodes(key, 1, bins, 0, others)
            kept = used[::2]
        else:
            classes[places] = np.arange(len(places))
            kept = used
        numbers, masks = numbers[places], masks[:, places]
        own = np.full(column.size, -1, dtype=np.int64)
        own[np.flatnonzero(classes >= 0)[kept]] = 0
        order = np.argsort(masks.sum(axis=1), kind="stable")
        within = self.within(table, [_without(term, key) for term in answer.terms])
        within = (*(() if kept.all() else (cells_of(key, own),)), *within)
        return SummedMeasure(
            column.name,
            None,
            np.minimum(numbers, int(upper / unit)),
            masks[order],
            order,
            cells_of(key, classes),
            spread,
            within,
            unit,
            upper,
            largest,
            self.clip.level is not None,
            is_batch,
        )

    def cut(self, column: Column, ends: Sequence[Fraction], largest: Fraction) -> Fraction:
        """Return the value at which values are clipped before anything is chosen."""
        level = self.clip.level
        if level is None or level >= largest:
            return largest
        if isinstance(column.domain, Bins) and level not in ends:
            near = sorted(set(ends), key=lambda end: abs(end - level))[:2]
            edges = " or ".join(f"{float(end):g}" for end in sorted(near))
            self.wrong("E_BIN_EDGE", f"clip is no edge of the bins of {column.name}", edges)
        return level

    def check_size(self, column: Column, cells: int, queries: int) -> None:
        mechanism = self.clip.mechanism or "tamm"
        most = MAX_SINGLE if queries == 1 else MAX_CELLS
        hint = f"declare {column.name} with fewer bins"
        if queries > 1 and mechanism in ("tamm", "timm") and cells > MAX_STRATEGY:
            most, hint = MAX_STRATEGY, f"sum_mechanism = 'identity', or {hint}"
        if cells > most or queries > MAX_CELLS:
            what = f"{max(cells, queries):,} values, over {most:,}"
            self.wrong("E_TOO_LARGE", f"a batch of sums over {what}", hint)

    def masks(self, key: str, column: Column, answer: Answer, numbers: Integers) -> Integers:
        """The rows of the queries over the values, as zeros and ones."""
        rows = answer.terms[0].factors.get(key)
        if any(term.factors.get(key) is not rows for term in answer.terms):
            hint = "conditions on the summed column go into an AND of their own"
            self.refuse("a condition that couples the summed column with others", hint)
        polynomial = answer.terms[0].polynomials.get(key)
        if isinstance(column.domain, Bins):
            plain = polynomial is not None and polynomial.coefficients == (0.0, 1.0, 0.0)
            if polynomial is None or not plain or polynomial.null:
                self.refuse("anything but SUM(column)", WORKS)
            bins = column.domain.size
            full = np.ones((1, column.size)) if rows is None else np.asarray(rows.dense())
            return np.repeat(full[:, :bins], 2, axis=1).astype(np.int64)
        assert rows is not None
        dense = np.asarray(rows.dense(), dtype=np.float64)
        values = np.array(_ends(column), dtype=np.float64)
        inside, rest = dense[:, : len(values)], dense[:, len(values) :]
        is_plain = np.asarray((inside == 0) | (inside == values))
        if not is_plain.all() or rest.any():
            self.refuse("anything but SUM(column)", WORKS)
        return np.where(values == 0, 1, inside != 0).astype(np.int64)

    def within(self, table: Table, terms: Sequence[Term]) -> tuple[Cells, ...]:
        """The conditions on other columns, as cells of the rows that satisfy them."""
        if len(terms) == 1 and terms[0].scale == 1:
            found = []
            for name, factor in terms[0].factors.items():
                row = np.asarray(factor.dense())[0]
                found.append(cells_of(name, np.where(row > 0, 0, -1).astype(np.int64)))
            return tuple(found)
        names = [name for name in table.columns if any(name in t.factors for t in terms)]
        kept: list[Integers] = []
        sides: list[NDArray[Any]] = []
        for name in names:
            ones = np.ones(table.columns[name].size)
            rows = [
                np.asarray(t.factors[name].dense())[0] if name in t.factors else ones for t in terms
            ]
            distinct, classes = np.unique(np.array(rows), axis=1, return_inverse=True)
            kept.append(classes.reshape(-1).astype(np.int64))
            sides.append(distinct)
        if math.prod(side.shape[1] for side in sides) > MAX_JOINT:
            self.wrong("E_TOO_LARGE", "the condition couples too many values", "fewer columns")
        truth: Any = 0
        for i, term in enumerate(terms):
            part: NDArray[Any] = np.array(term.scale)
            for side in sides:
                part = np.multiply.outer(part, side[i])
            truth = truth + part
        if not np.isin(truth, (0, 1)).all() or not truth.any():
            self.refuse("anything but SUM(column)", WORKS)
        labels = np.where(truth > 0, 0, -1).astype(np.int64)
        return (Cells(tuple(names), tuple(kept), labels),)


def measure_of(key: str, column: Column, high: Fraction) -> Measure:
    """A column with bounds, its values up to ``high``."""
    assert column.bounds is not None
    whole, unit = column.type == "integer", Fraction(1)
    while not whole and high / unit < FINE:
        unit /= 2
    return Measure(key, column.bounds[0], high, unit, whole, column.null)


def _without(term: Term, key: str) -> Term:
    """A term without the column that is summed."""
    factors = {name: factor for name, factor in term.factors.items() if name != key}
    return Term(factors, {}, term.scale)


def _ends(column: Column) -> list[Fraction] | None:
    """The values of cells that are integers, or both ends of every bin; None for other columns."""
    if isinstance(column.domain, Bins):
        edges = column.domain.edges
        return [edge for pair in itertools.pairwise(edges) for edge in pair]
    known = column.cells[: 0 if column.domain is None else column.domain.size]
    found = [Fraction(v) for v in known if isinstance(v, int) and not isinstance(v, bool)]
    return found if found and len(found) == len(known) else None
