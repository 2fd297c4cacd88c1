"""Answers in groups that may be planned apart: how far off they would be, forecast without a plan.

With a part of the budget, noise on each of a group's own queries or on each of its own cells has an
error that is known at once, and no plan of the group is worse. Where that of all groups is less
than the error of one plan for all answers, the groups are worth planning.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.largest_cell import worst_cell
from dpsql.algebra.operator import Floats, Operator
from dpsql.plan.limits import find_limits
from dpsql.plan.plan import shared_error
from dpsql.plan.target import Target
from dpsql.records import dataclass
from dpsql.search.workload_rows import are_few
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.coarsen import label_cells, label_rows
from dpsql.workload.layout import Place

MOST = 12
"""Most groups of which pairs are compared; of more, those most alike are one from the start, though
there are up to twice as many where they could not be measured together."""

PAIRS = 200
"""Most pairs that are looked at for the two most alike."""

ALIKE = 4.0
"""Factor within which answers over the same columns cost alike, and are one group from the start:
what a number of one costs is how many rows change with a cell for each row that is asked."""


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """The error of a group with a unit budget, and the part of it that keeps its limits."""

    error: float
    least: float


@dataclass(frozen=True, slots=True)
class AnswerGroup:
    """Answers, and what noise on their queries, and on their cells, comes to."""

    places: frozenset[Place]
    prospects: tuple[GroupForecast, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """Groups of all answers, and the error that they have at most with the best shares.

    It is infinite where they are not known to keep the limits of all, which takes the ``least``
    part of the budget.
    """

    groups: tuple[frozenset[Place], ...]
    error: float
    least: float


def best_partition(target: Target, noise: Noise, *, measurable: bool = False) -> Partition:
    """Return the groups of least error that merging two by two comes to, as forecast.

    They depend on what is asked and on the noise law alone. Where they are to be ``measurable``
    noise on queries is only thought of where these can be measured, so that forecasts are kept.
    """
    forecaster = Forecaster(target, noise, measurable)
    known: dict[frozenset[Place], AnswerGroup] = {}

    def group(places: frozenset[Place]) -> AnswerGroup:
        if places not in known:
            known[places] = AnswerGroup(places, tuple(forecaster.prospects(places)))
        return known[places]

    groups = [group(places) for places in forecaster.starts()]
    best = forecaster.partition(groups)
    while len(groups) > 1:
        merged = []
        for one, other in combinations(groups, 2):
            rest = [each for each in groups if each is not one and each is not other]
            merged.append([*rest, group(one.places | other.places)])
        rated = [(forecaster.shared(each), each) for each in merged]
        _, groups = min(rated, key=lambda pair: pair[0])  # the least error, or else the least parts
        best = min(best, forecaster.partition(groups), key=_rank)
    return best


def keeps_limits(partition: Partition, target: Target, noise: Noise) -> bool:
    """True if groups are known to keep the limits, by what can be measured of each."""
    forecaster = Forecaster(target, noise, measurable=True)
    groups = [AnswerGroup(each, tuple(forecaster.prospects(each))) for each in partition.groups]
    return forecaster.shared(groups)[0] < math.inf


def _rank(partition: Partition) -> tuple[float, float]:
    """Return the rank of a partition: how far it is beyond the limits, then its error."""
    return max(1.0, partition.least), partition.error


class Forecaster:
    """Forecasts of groups of the answers of one target, on its single columns."""

    def __init__(self, target: Target, noise: Noise, measurable: bool = False) -> None:
        self.measurable = measurable
        self.law = law(noise)
        self.layout = target.layouts[0]
        self.rows = self.layout.rows
        self.weights = {place: each.weight for place, each in target.asked.items()}
        self.alone = target.alone or {}
        self.limits = {
            place: each * self.weights[place] ** 2
            for place, each in find_limits(target, noise).items()
        }
        self.columns: dict[tuple[str, int], _Columns] = {}
        self.few: dict[frozenset[Place], bool] = {}
        self.independent: dict[int, bool] = {}

    def partition(self, groups: Sequence[AnswerGroup]) -> Partition:
        """Return groups with their error."""
        return Partition(tuple(each.places for each in groups), *self.shared(groups))

    def statements(self) -> list[list[Place]]:
        """Return the answers of every statement."""
        found: dict[int, list[Place]] = {}
        for place in self.layout.products:
            found.setdefault(place[0], []).append(place)
        return list(found.values())

    def starts(self) -> list[frozenset[Place]]:
        """Return statements that are over the same columns and cost alike, in few groups.

        Those of one statement stay together: they are to agree with each other.
        """
        alike: dict[tuple[frozenset[str], int], list[list[Place]]] = {}
        cost: dict[Place, float] = {}
        for places in self.statements():
            readings = [self.layout.products[place] for place in places]
            names = frozenset(n for reading in readings for _, p in reading for n in p.factors)
            each = self._sensitivity(places) / sum(self.rows[place] for place in places)
            cost[places[0]] = math.log(each) / math.log(ALIKE)
            together = alike.setdefault((names, round(cost[places[0]])), [])
            if together and self.is_measurable([*together[-1], *places]):
                together[-1].extend(places)
            else:
                together.append(list(places))
        groups = [each for together in alike.values() for each in together]
        groups.sort(key=lambda places: cost[places[0]])
        while len(groups) > MOST:
            span = 1 + PAIRS // len(groups)
            near = [
                (cost[other[0]] - cost[one[0]], i, j)
                for i, one in enumerate(groups)
                for j, other in enumerate(groups[i + 1 : i + 1 + span], i + 1)
            ]
            pairs = [(d, i, j) for d, i, j in near if self.is_measurable(groups[i] + groups[j])]
            if not pairs and len(groups) <= 2 * MOST:
                break
            _, i, j = min(pairs or near)
            groups[i] = groups[i] + groups.pop(j)
        return [frozenset(places) for places in groups]

    def is_measurable(self, places: Collection[Place]) -> bool:
        """True if the queries of a group can be measured themselves: they are few, or of one."""
        if not self.measurable or len({place[0] for place in places}) == 1:
            return True
        key = frozenset(places)
        if key not in self.few:
            products = [product for place in places for _, product in self.layout.products[place]]
            self.few[key] = are_few(products, self.layout.workload.domain, self.independent)
        return self.few[key]

    def prospects(self, places: frozenset[Place]) -> Iterator[GroupForecast]:
        """Yield what a group comes to with noise on its queries, and on its cells."""
        if places in self.alone:
            yield GroupForecast(*self.alone[places])
        if self.is_measurable(places):
            each = self.law.squared(self._sensitivity(places))
            yield self._prospect(dict.fromkeys(places, each))
        if all(len(self.layout.products[place]) == 1 for place in places):
            yield self._prospect(self._counted(places))

    def _prospect(self, means: Mapping[Place, float]) -> GroupForecast:
        """A prospect by the mean variances of answers, times the squares of their weights."""
        error = sum(self.rows[place] * mean for place, mean in means.items())
        worst = max(mean / self.limits[place] for place, mean in means.items())
        least = worst ** (self.law.norm / 2)
        return GroupForecast(float(error), float(least))

    def _sensitivity(self, places: Iterable[Place]) -> float:
        """Bound the sensitivity of the weighted queries of a group to one row from above."""
        norm = self.law.norm
        products = []
        for place in places:
            reading = self.layout.products[place]
            total = sum(product.weight for _, product in reading)
            products += [(product, product.weight * total ** (norm - 1)) for _, product in reading]
        tables = []
        for name in self.layout.workload.domain:
            factors = [product.factors.get(name) for product, _ in products]
            picked, kept = self._kept(name, factors)
            if picked:
                tables.append(
                    np.array(
                        [
                            np.ones(len(kept)) if f is None else self._of(name, f).norms[kept]
                            for f in factors
                        ]
                    )
                )
        return float(worst_cell(tables, np.array([weight for _, weight in products]))[0])

    def _counted(self, places: Iterable[Place]) -> dict[Place, float]:
        """Return mean variances by noise on every cell that a group tells apart, weighted."""
        products = {place: self.layout.products[place][0] for place in places}
        out = {place: (scale * self.weights[place]) ** 2 for place, (scale, _) in products.items()}
        for name in self.layout.workload.domain:
            factors = {place: product.factors.get(name) for place, (_, product) in products.items()}
            picked, kept = self._kept(name, list(factors.values()))
            for place, factor in factors.items() if picked else ():
                if factor is None:
                    out[place] *= len(kept)
                else:
                    out[place] *= float(self._of(name, factor).squares[kept].sum()) / factor.rows
        return out

    def _kept(
        self, name: str, factors: Sequence[Operator | None]
    ) -> tuple[bool, NDArray[np.int64]]:
        """Return whether an attribute is asked, and one cell of each class that factors tell."""
        distinct = {id(factor): factor for factor in factors if factor is not None}
        columns = [self._of(name, factor) for factor in distinct.values()]
        if not columns:
            return False, np.zeros(1, dtype=np.int64)
        finest = max(columns, key=lambda each: len(each.firsts))
        if len(columns) == 1 or len(finest.firsts) == len(finest.labels):
            return True, finest.firsts
        labels = label_rows(np.array([each.labels for each in columns]).T)
        return True, np.unique(labels, return_index=True)[1]

    def _of(self, name: str, factor: Operator) -> _Columns:
        key = (name, id(factor))
        if key not in self.columns:
            self.columns[key] = _Columns.of(factor, self.law.norm)
        return self.columns[key]

    def shared(self, groups: Sequence[AnswerGroup]) -> tuple[float, float]:
        """Return ``shared_error`` of groups, with the part of a unit that keeps their limits."""
        if not all(each.prospects for each in groups):
            return math.inf, math.inf
        found = [min(each.prospects, key=lambda prospect: prospect.error) for each in groups]
        if sum(each.least for each in found) > 1:
            found = [min(each.prospects, key=lambda prospect: prospect.least) for each in groups]
        least = [each.least for each in found]
        return shared_error([each.error for each in found], least, self.law.name), sum(least)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a factor: classes of equal ones, their first cells, and their norms."""

    labels: NDArray[np.int64]
    firsts: NDArray[np.int64]
    norms: Floats
    squares: Floats

    @classmethod
    def of(cls, factor: Operator, norm: int) -> _Columns:
        """The columns of a factor."""
        labels = label_cells((factor,), factor.n, may_drop=False)
        firsts = np.unique(labels, return_index=True)[1]
        squares = np.asarray(factor.column_l2sq(), dtype=np.float64)
        norms = np.asarray(factor.column_l1(), dtype=np.float64) if norm == 1 else squares
        return cls(labels, firsts, norms, squares)
