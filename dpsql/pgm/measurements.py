"""The interface of adaptive mechanisms to private data: their queries, and what they return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats, Integers
from dpsql.records import dataclass
from dpsql.strategy.noise_law import Noise
from dpsql.workload.cells import Nodes
from dpsql.workload.term import Pattern
from dpsql.workload.workload import Product

Candidate: TypeAlias = tuple[Product, ...]
"""Products with equal rows whose answers add up; a whole marginal is one product of identities."""

Query: TypeAlias = "Candidate | Pattern"
"""A query of the data: a candidate, or the number of rows of a pattern."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A noisy answer to one query: flat counts in domain order, and their standard deviation.

    ``stddev`` is that of the noise, in counts; Laplace noise has scale stddev / sqrt(2). The
    candidate of a ``pattern`` is empty.
    """

    candidate: Candidate
    values: Floats
    stddev: float
    noise: Noise
    pattern: Pattern | None = None

    @property
    def query(self) -> Query:
        """The query that was measured."""
        return self.candidate if self.pattern is None else self.pattern

    @classmethod
    def of(cls, query: Query, values: Floats, stddev: float, noise: Noise) -> Measured:
        """Return the noisy answer to a candidate or a pattern."""
        if isinstance(query, Pattern):
            return cls((), values, stddev, noise, query)
        return cls(query, values, stddev, noise)


class Handle(Protocol):
    """Every look at the data of one adaptive run; it holds the run's budget and nothing more.

    The budget is epsilon where the law of ``noise`` is pure, rho (zCDP) where it is not.
    Raises BudgetExceeded, and releases nothing, when an amount is above ``remaining()``.
    """

    @property
    def domain(self) -> Mapping[str, int]:
        """Return attribute to number of cells, in domain order."""

    @property
    def noise(self) -> Noise:
        """Return the noise law, which fixes the currency of the budget."""

    def remaining(self) -> Fraction:
        """Return the epsilon or rho that is left."""

    def total(self, amount: Fraction) -> Measured:
        """Return the noisy number of rows."""

    def select(
        self,
        candidates: Sequence[Query],
        answers: Sequence[Floats],
        *,
        penalties: Sequence[float] | None = None,
        weights: Sequence[Fraction] | None = None,
        count: int = 1,
        amount: Fraction,
    ) -> list[int]:
        """Return ``count`` distinct indices of candidates that a model answers badly.

        The score of candidate i is weight_i (||true_i - round(answers_i)||_1 - penalty_i); the
        exponential mechanism draws without replacement and ``amount`` pays for all draws.
        """

    def measure(self, candidates: Sequence[Query], amount: Fraction) -> list[Measured]:
        """Return noisy answers of all candidates, released together."""


class Model(Protocol):
    """A public summary of a table that answers every query, without intervals.

    An implementation also has a class method ``decode(facts, arrays)`` that undoes ``encode``.
    """

    @property
    def total(self) -> float:
        """Return the number of rows the model stands for."""

    @property
    def domain(self) -> Mapping[str, int]:
        """Return attribute to number of cells, in domain order."""

    def answer(self, candidate: Candidate) -> Floats:
        """Return the answers of a candidate in counts, flat."""

    def marginal(self, attributes: tuple[str, ...]) -> Floats:
        """Return the counts over the given attributes as a tensor, axes as given."""

    def rows(self, k: int, rng: np.random.Generator) -> dict[str, Integers]:
        """Return k synthetic rows as cell numbers per attribute."""

    def describe(self) -> dict[str, Any]:
        """Return plain facts about the model for display."""

    def encode(self, keep: Callable[[NDArray[Any]], str]) -> dict[str, Any]:
        """Return plain facts that describe the model; ``keep`` stores an array by name."""


class SumHandle(Protocol):
    """Every look of one run at the counts of bins with public values.

    Thresholds are public and non-decreasing; a row is above theta when its bin's value is.
    ``upto`` restricts a look to the bins before that index. Budgets are as in Handle; a choice
    of threshold spends epsilon in the pure case, and an epsilon of sqrt(2 rho) under rho-zCDP.
    """

    @property
    def values(self) -> Integers:
        """Return the public value of every bin, non-decreasing and non-negative, shape (m,)."""

    @property
    def noise(self) -> Noise:
        """Return the noise law, which fixes the currency of the budget."""

    def remaining(self) -> Fraction:
        """Return the epsilon or rho that is left."""

    def first_below(
        self, thresholds: Sequence[int], count: int, amount: Fraction, upto: int | None = None
    ) -> int | None:
        """Return the first index where noisily at most ``count`` rows are above, by SVT."""

    def first_covering(
        self, thresholds: Sequence[int], ratio: Fraction, amount: Fraction, upto: int | None = None
    ) -> int | None:
        """Return the first index where noisily a ``ratio`` of the rows is not above, by SVT."""

    def recursive(
        self, thresholds: Sequence[int], amount: Fraction, upto: int | None = None
    ) -> int:
        """Return, with noise, the least i such that at most i rows are above thresholds[i]."""

    def quantile(
        self,
        thresholds: Sequence[int],
        count: int,
        amount: Fraction,
        upto: int | None = None,
        falling: int = 0,
    ) -> int:
        """Return an index with about ``count`` rows above, by the exponential mechanism.

        Of thresholds with equally many rows above, chances fall with that power of theta.
        """

    def measure(self, rows: Integers, amount: Fraction) -> Measured:
        """Return noisy answers of integer rows over the bins, shape (r, m), released together."""


class MeasureHandle(SumHandle, Protocol):
    """Every look of one run at a measure: its bins lie between the thresholds to choose from."""

    def spread(self, nodes: Nodes, rows: Integers, amount: Fraction) -> Measured:
        """Return noisy answers of integer rows over nodes of the measure, in rows of data."""
