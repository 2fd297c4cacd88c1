"""Conditions and amounts of a query on declared cells -> signed products of masks and numbers.

Where public rows are joined to several columns, a piece belongs to one of these rows: there every
condition is one on single columns again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog import Table
from dpsql.errors import ProgrammingError
from dpsql.records import dataclass
from dpsql.sql.cells.cell_classes import grid_of
from dpsql.sql.cells.combinations import Given
from dpsql.sql.cells.evaluate import Evaluator, Operand
from dpsql.sql.query import (
    Aggregate,
    Condition,
    Expression,
    JointCondition,
    Listing,
    Lookup,
    Query,
    Summand,
    conditions_of,
    connected,
)
from dpsql.workload.polynomial import Polynomial
from dpsql.workload.term import (
    Mask,
    Pattern,
    intersect,
    join,
    refuse_patterns,
    with_pattern,
)

MAX_COMPARED = 1 << 26
"""Most combinations of classes of cells and public rows for rows that match none of these."""

LARGEST = 100
"""Largest power of ten or of a tenth of what rows add to a sum; variances have twice as much."""

TOGETHER = 1 << 22
"""Most pairs of combinations and rows of a listing compared at once: 64 MiB where all match."""


@dataclass(frozen=True, slots=True)
class MaskedSum:
    """A summand where signs and masks are known: ``weights`` are numbers per item of a column."""

    scale: float
    masks: Mapping[str, Mask]
    weights: Mapping[str, NDArray[Any]]
    polynomials: Mapping[str, Polynomial]
    pattern: Pattern | None = None


Split = tuple[list[MaskedSum], list[MaskedSum] | None]
"""Pieces with whole patterns, and as signed products alone; None where these are too many."""


class SignedProducts:
    """The pieces of one query, for one row of its listing at a time; row 0 without one."""

    def __init__(self, evaluator: Evaluator, query: Query, table: Table) -> None:
        self.evaluator = evaluator
        self.query = query
        self.table = table
        self.listing = query.listing
        self.lookups: dict[str, Lookup] = {each.column: each for each in query.lookups}
        self.sources: dict[tuple[str | None, bool], Operand] = {}
        self.patterns: dict[tuple[tuple[JointCondition, ...], int], Pattern] = {}
        self.known: dict[tuple[Aggregate, int], Split] = {}
        self._met: dict[JointCondition, tuple[int, NDArray[np.int64], NDArray[np.int64]]] = {}
        self._where: dict[int, dict[str | None, Mask]] = {}

    def source(self, column: str | None, listed: bool = False) -> Operand:
        """The values that an expression over a column is evaluated on."""
        key = (column, listed)
        if key not in self.sources:
            known = None if column is None else self.table.columns[column]
            lookup = None if column is None else self.lookups.get(column)
            listing = self.listing if listed else None
            self.sources[key] = Operand(self.table.name, known, lookup, listing)
        return self.sources[key]

    def prepare(self) -> None:
        """Evaluate all conditions over single columns together."""
        found: dict[Operand, list[Expression]] = {}
        for condition in conditions_of(self.query):
            if isinstance(condition, Expression):
                source = self.source(condition.column, condition.listed)
                found.setdefault(source, []).append(condition)
        for source, expressions in found.items():
            if len(expressions) > 1:
                self.evaluator.prepare(source, expressions)

    def rows(self) -> list[int]:
        """The rows of the listing that some declared values match."""
        if self.listing is None:
            return [0]
        alone = len(self.listing.rows) - 1 if self.listing.keep else None
        found = []
        for row in range(len(self.listing.rows)):
            masks = self.where(row)
            is_met = row != alone or bool(self.unmatched().truth.any())
            if is_met and all(mask.any() for mask in masks.values()):
                found.append(row)
        return found

    def conditions(self, row: int) -> tuple[Condition, ...]:
        """WHERE, and what joins a row of the listing."""
        if self.listing is None or self.is_unmatched(row):
            return self.query.where
        return (*self.query.where, *self.listing.tests)

    def tells_rows(self, aggregate: Aggregate) -> bool:
        """True if some rows of the listing that count may meet other private rows than others."""
        common = [
            c for c in self.conditions(0) if isinstance(c, JointCondition) or c.column is not None
        ]
        own = itertools.chain.from_iterable(each.conditions for each in aggregate.summands)
        tests = [*common, *aggregate.conditions, *own]
        parts = [
            part for t in tests for part in (t.parts if isinstance(t, JointCondition) else (t,))
        ]
        distinct = [] if aggregate.distinct is None else [aggregate.distinct]
        return any(part.listed for part in [*parts, *distinct])

    def where(self, row: int) -> dict[str | None, Mask]:
        """``masks`` of the conditions of a row, worked out once."""
        if row not in self._where:
            self._where[row] = self.masks(self.conditions(row), row)
        return self._where[row]

    def is_unmatched(self, row: int) -> bool:
        """True if a row of the listing stands for private rows that match none of the others."""
        listing = self.listing
        return listing is not None and listing.keep and row == len(listing.rows) - 1

    def mask(self, condition: Expression, row: int) -> Mask:
        """Mask of the items of a column for which a condition holds."""
        found = self.evaluator.mask(self.source(condition.column, condition.listed), condition)
        mask: Mask = self.of_row(found, condition, row)
        return mask

    def of_row(self, found: Any, expression: Expression, row: int) -> Any:
        """The part of one row in what is known per item and row of the listing."""
        if not expression.listed or self.listing is None:
            return found
        return found[row :: max(1, len(self.listing.rows))]

    def masks(
        self,
        conditions: Sequence[Condition],
        row: int = 0,
        known: Mapping[str | None, Mask] | None = None,
    ) -> dict[str | None, Mask]:
        """The conjunction of the single-column conditions, column by column.

        ``known`` is that of others, which hold as well.
        """
        found = dict(known or {})
        for condition in conditions:
            if isinstance(condition, Expression):
                mask = self.mask(condition, row)
                other = found.get(condition.column)
                found[condition.column] = mask if other is None else other & mask
        return found

    def pieces(self, aggregate: Aggregate, row: int) -> Split:
        """The summands of an aggregate on one row of the listing."""
        if (aggregate, row) not in self.known:
            self.known[aggregate, row] = self._pieces(aggregate, row)
        return self.known[aggregate, row]

    def _pieces(self, aggregate: Aggregate, row: int) -> Split:
        where = self.conditions(row)
        whole: list[MaskedSum] = []
        apart: list[MaskedSum] | None = []
        for summand in aggregate.summands:
            own_conditions = (*aggregate.conditions, *summand.conditions)
            masks = self.masks(own_conditions, row, self.where(row))
            if any(not mask.any() for mask in masks.values()):
                continue
            own = {name: mask for name, mask in masks.items() if name is not None}
            scale, weights = self.weights(summand, row)
            shape = weights, {each.column: each for each in summand.polynomials}
            conditions = (*where, *own_conditions)
            coupled = list(dict.fromkeys(c for c in conditions if isinstance(c, JointCondition)))
            patterns = [self.pattern(group, row) for group in connected(coupled)]
            if self.is_unmatched(row):
                patterns = with_pattern(patterns, self.unmatched())
            boxes = intersect(patterns)
            pieces = []
            for sign, box in boxes or ():
                both = own | {n: m & own[n] if n in own else m for n, m in box.items()}
                if all(both[name].any() for name in box):  # the others were looked at
                    pieces.append(MaskedSum(sign * scale, both, *shape))
            apart = None if apart is None or boxes is None else [*apart, *pieces]
            pattern = None if boxes is not None and len(pieces) < 2 else join(patterns)
            if any(name in self.lookups for each in patterns for name in each.labels):
                pattern = None  # its labels are those of pairs with public rows, not of cells
            if boxes is None and pattern is None:
                refuse_patterns(patterns)
            if pattern is not None:
                pieces = [MaskedSum(scale, own, *shape, pattern)]
            whole += pieces
        return whole, apart

    def weights(self, summand: Summand, row: int) -> tuple[float, dict[str, NDArray[Any]]]:
        """The constant factor of a summand, and its numbers per item of every column."""
        scale = 1.0
        weights: dict[str, NDArray[Any]] = {}
        for factor in summand.factors:
            source = self.source(factor.column, factor.listed)
            numbers = self.of_row(self.evaluator.numbers(source, factor), factor, row)
            if factor.column is None:
                scale *= float(numbers[0])
            else:
                known = weights.get(factor.column)
                weights[factor.column] = numbers if known is None else _product(known, numbers)
        self.check_scale(summand, scale, weights)
        return scale, weights

    def check_scale(
        self, summand: Summand, scale: float, weights: Mapping[str, NDArray[Any]]
    ) -> None:
        """Refuse a product of numbers of which no double holds the variance.

        Raises: ProgrammingError (E_EXPR_IN_AGG).
        """
        sizes = [abs(scale), *(float(np.abs(each).max(initial=0)) for each in weights.values())]
        found = sum(map(math.log10, sizes)) if all(sizes) else 0.0
        if abs(found) <= LARGEST:
            return
        raise ProgrammingError(
            "E_EXPR_IN_AGG",
            f"a sum of numbers of about 1e{found:.0f} is not supported",
            hint="the sum itself may be multiplied: 1e-200 * SUM(x)",
            span=summand.factors[0].span,
        )

    def values(self, part: Expression, row: int = 0) -> tuple[str, tuple[Any, ...]]:
        """The DuckDB type of an expression and its value on every item."""
        source = self.source(part.column, part.listed)
        kind, values = self.evaluator.values(source, part)
        return kind, self.of_row(values, part, row)

    def counts(
        self, aggregate: Aggregate, labels: NDArray[np.int64] | None, size: int
    ) -> tuple[float, ...]:
        """The amount that each different value counts for, one where they are counted.

        ``labels`` (items,) is the number of the value of every item, below ``size``, or -1.
        """
        part, out = aggregate.counts, np.ones(size)
        if part is not None and labels is not None:
            source = self.source(part.column, part.listed)
            kept = labels >= 0
            out[labels[kept]] = np.asarray(self.evaluator.numbers(source, part))[kept]
        return tuple(map(float, out))

    def pattern(self, coupled: tuple[JointCondition, ...], row: int) -> Pattern:
        """Conditions over the same columns together."""
        place = row if any(part.listed for each in coupled for part in each.parts) else 0
        if (coupled, place) not in self.patterns:
            self.patterns[coupled, place] = self._pattern(coupled, place)
        return self.patterns[coupled, place]

    def _pattern(self, coupled: Sequence[JointCondition], row: int) -> Pattern:
        span = coupled[0].span
        parts = list(dict.fromkeys(p for each in coupled for p in each.parts if p.column))
        values = {part: self.values(part, row) for part in parts}
        grid = grid_of(values, list(self.table.columns), span)
        truth = np.ones(grid.shape, dtype=np.bool_)
        for each in coupled:
            named = [(f"x{number}", part) for number, part in enumerate(each.parts)]
            axes = grid.axes((name, part) for name, part in named if part.column)
            alone = {name: self.values(part, row) for name, part in named if not part.column}
            held = self._beside(each, axes, alone, row, truth.size)
            if held is None:
                held = self.evaluator.combined.truth(each.sql, axes, alone, span)
            truth &= held.reshape(grid.shape)
        return Pattern({name: each.labels for name, each in grid.classes.items()}, truth, span)

    def _beside(
        self, each: JointCondition, axes: Sequence[Given], alone: Given, row: int, size: int
    ) -> NDArray[np.bool_] | None:
        """Mask of ``size`` combinations on which a condition holds, for one row of the listing.

        Other rows are compared as well, as many as have room, and what they meet is kept. None
        where that cannot be, or fails for some row.
        """
        step = TOGETHER // size
        listed = {part: f"x{n}" for n, part in enumerate(each.parts) if part.listed}
        if step < 2 or not listed or alone.keys() != set(listed.values()):
            return None
        start = row - row % step
        if self._met.get(each, (None,))[0] != start:
            given = {
                name: self.evaluator.values(self.source(None, True), part)
                for part, name in listed.items()
            }
            some = {
                name: (kind, values[start : start + step]) for name, (kind, values) in given.items()
            }
            try:
                found = self.evaluator.combined.met(each.sql, axes, some, each.span)
            except ProgrammingError:
                return None
            self._met[each] = start, *found
        _, rows, places = self._met[each]
        held = np.zeros(size, dtype=np.bool_)
        held[places[slice(*np.searchsorted(rows, [row - start, row - start + 1]))]] = True
        return held

    def unmatched(self) -> Pattern:
        """The values that no row of the listing matches.

        Raises: ProgrammingError (E_TOO_LARGE).
        """
        listing = self.listing
        assert listing is not None
        if ((), 0) not in self.patterns:
            self.patterns[(), 0] = self._unmatched(listing)
        return self.patterns[(), 0]

    def _unmatched(self, listing: Listing) -> Pattern:
        rows = range(len(listing.rows) - 1)
        found = [self.masks(listing.tests, row) for row in rows]
        names = [name for name in self.table.columns if any(name in each for each in found)]
        labels: dict[str, NDArray[np.int64]] = {}
        matched = np.array([bool(each.get(None, np.ones(1)).all()) for each in found])
        for name in names:
            masks = np.stack([each[name] for each in found], axis=1)
            classes, inverse = np.unique(masks, axis=0, return_inverse=True)
            labels[name] = inverse.reshape(-1)
            if math.prod(matched.shape) * len(classes) > MAX_COMPARED:
                raise ProgrammingError(
                    "E_TOO_LARGE",
                    f"{len(rows):,} public rows have too many combinations of {', '.join(names)}",
                    hint="leave out LEFT, or join fewer rows",
                    span=listing.span,
                )
            matched = matched[..., None, :] & classes
        alone = np.asarray(~np.any(matched, axis=-1))
        return Pattern(labels, alone, listing.span)


def _product(one: NDArray[Any], two: NDArray[Any]) -> NDArray[Any]:
    """Numbers times numbers, as doubles where integers do not hold all of the products.

    >>> _product(np.array([3_000_000_000]), np.array([6_000_000_000])).tolist()
    [1.8e+19]
    """
    found: NDArray[Any] = one.astype(np.float64) * two
    if np.abs(found).max(initial=0) <= 2.0**53:
        found = one * two
    return found
