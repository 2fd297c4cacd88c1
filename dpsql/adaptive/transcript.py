"""What a run was told, look by look: all of it was paid for, and nothing else is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.adaptive.handle import Floats, Handle, Measured, Query
from dpsql.adaptive.query import attributes_of
from dpsql.plan.noise_law import Noise, law


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
