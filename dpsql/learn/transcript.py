"""Transcripts: what a run was told, look by look, and what it ended with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from dpsql.algebra.operator import Floats
from dpsql.learn.candidates import attributes_of
from dpsql.learn.mechanism_choice import MechanismChoice
from dpsql.pgm.linear import clique_of, is_whole
from dpsql.pgm.measurements import Handle, Measured, Model, Query
from dpsql.records import dataclass
from dpsql.strategy.noise_law import GAUSSIAN, Noise, law


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """One look at the data: what it cost, in epsilon or rho, and what it returned.

    A measurement has the noisy answers that were released together. A choice says how many
    candidates were ``chosen`` ``among`` how many; what they are is measured next.
    """

    amount: Fraction
    measured: tuple[Measured, ...] = ()
    chosen: int = 0
    among: int = 0

    def told(self, noise: Noise) -> str:
        """Return the look in words."""
        cost = f"{'epsilon' if law(noise).is_pure else 'rho'} {float(self.amount):.4g}"
        if not self.measured:
            return f"chosen {self.chosen} of {self.among:,} candidates, {cost}"
        names = dict.fromkeys(", ".join(attributes_of(m.query)) for m in self.measured)
        count = sum(m.values.size for m in self.measured)
        numbers = "1 number" if count == 1 else f"{count:,} numbers"
        what = "; ".join(name or "number of rows" for name in names)
        return f"measured {what}: {numbers}, stddev {self.measured[0].stddev:.4g}, {cost}"


class Recorder:
    """A handle that writes down what another one returns."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.looks: list[Look] = []

    @property
    def domain(self) -> Mapping[str, int]:
        """Return attribute to number of cells, in domain order."""
        return self._handle.domain

    @property
    def noise(self) -> Noise:
        """Return the noise law, which fixes the currency of the budget."""
        return self._handle.noise

    def remaining(self) -> Fraction:
        """Return the epsilon or rho that is left."""
        return self._handle.remaining()

    def total(self, amount: Fraction) -> Measured:
        """Return the noisy number of rows."""
        found = self._handle.total(amount)
        self.looks.append(Look(amount, (found,)))
        return found

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
        """Return ``count`` distinct indices of candidates that a model answers badly."""
        found = self._handle.select(
            candidates, answers, penalties=penalties, weights=weights, count=count, amount=amount
        )
        self.looks.append(Look(amount, (), count, len(candidates)))
        return found

    def measure(self, candidates: Sequence[Query], amount: Fraction) -> list[Measured]:
        """Return noisy answers of all candidates, released together."""
        found = self._handle.measure(candidates, amount)
        self.looks.append(Look(amount, tuple(found)))
        return found


CONFIDENCE = 0.95
"""Level of the error statements; stated wherever one is shown."""


@dataclass(frozen=True, slots=True)
class ErrorStatement:
    """An error bound of one marginal: its L1 distance is at most ``bound``, with ``CONFIDENCE``.

    ``distance`` is that of the model to the noisy marginal, both in counts.
    """

    attributes: tuple[str, ...]
    cells: int
    distance: float
    bound: float


def error_statements(model: Model, measurements: Sequence[Measured]) -> tuple[ErrorStatement, ...]:
    """Return one statement per whole marginal measured with Gaussian noise; none for others.

    Nothing follows for marginals that were not measured. Source: AIM (McKenna et al. 2022),
    theorem 3 (triangle inequality and a Chernoff bound).
    """
    groups: dict[tuple[str, ...], list[Measured]] = {}
    for m in measurements:
        if law(m.noise) is GAUSSIAN and is_whole(m.candidate):
            groups.setdefault(clique_of(m.candidate, model.domain), []).append(m)
    level = math.sqrt(-math.log(1 - CONFIDENCE))
    out = []
    for attributes, group in groups.items():
        weights = np.array([m.stddev**-2 for m in group])
        mean = np.average([m.values for m in group], axis=0, weights=weights)
        distance = float(np.abs(model.answer(group[0].candidate) - mean).sum())
        n = mean.size
        noise = math.sqrt(2 * math.log(2)) * n + level * math.sqrt(2 * n)
        out.append(
            ErrorStatement(attributes, n, distance, distance + weights.sum() ** -0.5 * noise)
        )
    return tuple(out)


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """The model a run ended with, every look that led to it, and the mechanism that looked."""

    model: Model
    looks: tuple[Look, ...]
    choice: MechanismChoice
    interrupted: bool = False

    @property
    def measurements(self) -> tuple[Measured, ...]:
        """Every noisy answer that was released."""
        return tuple(m for look in self.looks for m in look.measured)

    def transcript(self, noise: Noise) -> tuple[str, ...]:
        """Return lines that tell what was measured, its precision and cost, and the errors."""
        lines = [look.told(noise) for look in self.looks]
        if self.choice.useless:
            lines.append("the number of rows says that the budget was too small to be useful")
        for s in error_statements(self.model, self.measurements):
            names = ", ".join(s.attributes)
            told = f"counts of {names} are, in sum," if names else "number of rows is"
            lines.append(f"with 95 % confidence the {told} within {s.bound:.4g} of the model's")
        return tuple(lines)
