"""What a release of keys is paid for: public facts, fixed before it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

from dpsql.catalog.sought import Sought
from dpsql.strategy.noise_law import Noise, law


@dataclass(frozen=True, slots=True)
class Discovery:
    """The release of the keys of one column, which nobody listed.

    ``amount`` is its epsilon or rho, by the noise law; ``delta`` the chance with which that may not
    hold. ``table`` and ``column`` are case-folded.
    """

    table: str
    column: str
    sought: Sought
    noise: Noise
    amount: Fraction
    delta: Fraction

    @property
    def is_pure(self) -> bool:
        """Whether every key has a coin by its number of units; else weights have noise."""
        return law(self.noise).is_pure

    @property
    def fingerprint(self) -> str:
        """A digest of everything that is paid for."""
        facts = (self.table, self.column, repr(self.sought), self.noise, self.amount, self.delta)
        return hashlib.sha256(repr(("keys", *map(str, facts))).encode()).hexdigest()
