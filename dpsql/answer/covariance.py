"""Standard errors of what is computed from several noisy numbers of one release.

The delta method: the variance of a smooth function is, to first order, that of the linear one with
the same slopes, and the covariances of the noisy numbers are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats
from dpsql.plan.target import Reading, Readings, reading_beside
from dpsql.records import dataclass
from dpsql.sql.compiled import Compiled
from dpsql.sql.query import Influence
from dpsql.strategy.base import Forecast, take_rows
from dpsql.strategy.structured_axis import interval_bounds
from dpsql.vectors import Vector
from dpsql.workload.layout import Place
from dpsql.workload.workload import Product

Rows = NDArray[np.int64]

CHUNK = 1 << 22
"""Numbers handled at once."""


@dataclass(frozen=True, slots=True)
class StatementNumbers:
    """The noisy numbers of one statement: how they are read off a release, and its errors.

    ``variances`` are NaN where a model or a projection answered; such places have no reading.
    """

    index: int
    item: Compiled
    variances: Mapping[Place, Floats]
    readings: Readings
    forecasts: Mapping[int, Forecast]

    def errors(self, influences: Sequence[Influence], found: Sequence[Vector]) -> Vector:
        """The standard error of a column in every row; None where it or a slope is not known."""
        rows = len(found[influences[0].cell]) if influences else 0
        slopes = np.ones((len(influences), rows))
        cells = np.empty((len(influences), rows))
        for p, each in enumerate(influences):
            cells[p] = found[each.cell].numbers()
            if each.slope is not None:
                slopes[p] = found[each.slope].numbers()
        out = np.full(rows, np.nan)
        known = np.isfinite(slopes).all(axis=0) & np.isfinite(cells).all(axis=0)
        out[known] = self._variance(influences, cells[:, known].astype(np.int64), slopes[:, known])
        return Vector.finite(np.sqrt(np.maximum(out, 0.0)))

    def _variance(self, influences: Sequence[Influence], cells: Rows, slopes: Floats) -> Floats:
        total = np.zeros(cells.shape[1])
        for p, one in enumerate(influences):
            for q, two in enumerate(influences[: p + 1]):
                shared = self.covariance(one, cells[p], two, cells[q])
                total += (1 if p == q else 2) * slopes[p] * slopes[q] * shared
        return total

    def covariance(self, one: Influence, left: Rows, two: Influence, right: Rows) -> Floats:
        """Return the covariance (rows,) of cells of one aggregate with cells of another.

        Args:
            left, right: (rows,) the cells of ``one`` and of ``two``.
        """
        out = np.zeros(len(left))
        for place, here, rows in self._places(one, left):
            for other, there, others in self._places(two, right):
                both = here & there
                if both.any():
                    out[both] = self._paired(place, rows[both], other, others[both])
        return out

    def _places(
        self, influence: Influence, cells: Rows
    ) -> list[tuple[Place, NDArray[np.bool_], Rows]]:
        """The answers of an aggregate, one by grouping set, and which cells are rows of each."""
        first = sum(len(select.answers) for select in self.item.selects[: influence.select])
        select = self.item.selects[influence.select]
        count, start, found = len(select.query.aggregates), 0, []
        for branch, each in enumerate(select.branches):
            rows = cells - start
            place = (self.index, first + branch * count + influence.aggregate)
            found.append((place, (rows >= 0) & (rows < each.rows), rows))
            start += each.rows
        return found

    def _paired(self, one: Place, left: Rows, two: Place, right: Rows) -> Floats:
        if one not in self.variances or two not in self.variances:
            return np.zeros(len(left))
        for place, rows in ((one, left), (two, right)):
            if place not in self.readings:
                return np.asarray(self.variances[place][rows])
        if self.readings[one][0] != self.readings[two][0]:
            sides = [self._beside(*each) for each in ((one, left), (two, right))]
            if not all(side.shape[1] for side in sides):
                return np.zeros(len(left))
            return -np.asarray((sides[0] * sides[1]).sum(axis=1))
        pairs, back = np.unique(np.stack([left, right]), axis=1, return_inverse=True)
        flat = [self._flat(place, rows) for place, rows in ((one, pairs[0]), (two, pairs[1]))]
        part, first, _ = self.readings[one]
        found = self._covariances(part, first, flat[0], self.readings[two][1], flat[1])
        return found[back.reshape(-1)]

    def _beside(self, place: Place, rows: Rows) -> Floats:
        """Numbers of other parts about result rows, shape (rows, numbers)."""
        part, reading, _ = self.readings[place]
        return reading_beside(self.forecasts[part], reading)[self._flat(place, rows)]

    def _flat(self, place: Place, rows: Rows) -> Rows:
        """Return the places of result rows in the order of the columns of a reading."""
        answer = [answer for _, answer in self.item.answers()][place[1]]
        whole = np.arange(len(self.variances[place]), dtype=np.float64)
        return answer.arrange(whole, self.readings[place][2])[rows].astype(np.int64)

    def _covariances(
        self, part: int, first: Reading, left: Rows, second: Reading, right: Rows
    ) -> Floats:
        forecast = self.forecasts[part]
        domain = forecast.domain
        written = set(domain) if forecast.writes_intervals else _written((*first, *second))
        step = max(1, CHUNK // max([1 << len(domain), *map(domain.__getitem__, written)]))
        out = np.zeros(len(left))
        for start in range(0, len(out), step):
            chunk = slice(start, start + step)
            for s, one in first:
                for t, two in second:
                    pair = (_rows(one, left[chunk], domain), _rows(two, right[chunk], domain))
                    out[chunk] += s * t * forecast.paired(*pair)
        return out


def _rows(product: Product, flat: Rows, domain: Mapping[str, int]) -> Product:
    """Chosen rows of a product: row r of every factor belongs to ``flat[r]``."""
    names = sorted(product.factors, key=list(domain).index)
    places = np.unravel_index(flat, [product.factors[name].rows for name in names] or [1])
    pairs = zip(names, places, strict=False)
    return Product({name: take_rows(product.factors[name], at) for name, at in pairs})


def _written(readings: Reading) -> set[str]:
    """The attributes on which some rows of readings are no intervals of cells."""
    factors = [pair for _, product in readings for pair in product.factors.items()]
    return {name for name, factor in factors if interval_bounds(factor) is None}
