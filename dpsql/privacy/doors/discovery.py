"""Discovery, the public facts that a release of keys is paid for: fixed before it."""

from __future__ import annotations

import hashlib
from fractions import Fraction

from dpsql.catalog.discovery import Key, Sought, distinct_keys
from dpsql.privacy.noise.partition_selection import count_threshold
from dpsql.records import dataclass, fields
from dpsql.strategy.base import round_up
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
    def paid(self) -> Fraction:
        """The whole epsilon or rho that it uses."""
        return self.amount

    @property
    def is_pure(self) -> bool:
        """True if every key has a coin by its number of units; else weights have noise."""
        return law(self.noise).is_pure

    @property
    def fingerprint(self) -> str:
        """A digest of everything that is paid for."""
        facts = [repr(getattr(self, each.name)) for each in fields(self)]
        return hashlib.sha256(repr(("keys", *facts)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class CountedDiscovery(Discovery):
    """The release of keys whose noisy counts of units reach a threshold, and of these counts.

    A unit is in at most ``spread`` of the counts of keys and of NULL, which is a cell of its own
    where ``null`` says so, and counts where keys of the unit leave room for it. For the amount
    ``rest`` those are counted who have any other value, zero where such rows do not count; where
    ``spread`` is 1, nobody who is in another count. Of the keys that pass, ``room`` are shown that
    differ from each other and from ``label``, that of all others.
    """

    rest: Fraction
    spread: int
    null: bool
    label: str | int | None
    room: int

    @property
    def paid(self) -> Fraction:
        """The whole epsilon or rho that it uses."""
        return self.amount + self.rest

    @property
    def scale(self) -> Fraction:
        """The scale of the noise on counts of keys and of NULL."""
        return round_up(law(self.noise).scale(self.spread, self.amount))

    @property
    def rest_scale(self) -> Fraction:
        """The scale of the noise on the count of all others. Raises: ZeroDivisionError for none."""
        return round_up(law(self.noise).scale(1, self.rest))

    @property
    def level(self) -> int:
        """The least noisy count that is shown."""
        return count_threshold(self.noise, self.scale, self.delta, self.sought.max_keys)

    def shown(self, passed: tuple[Key, ...]) -> tuple[Key, ...]:
        """Return the keys, of those that passed, which become cells."""
        return distinct_keys(passed, self.label, self.room)


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Keys and their noisy counts, those of NULL and of all others where these are cells."""

    keys: tuple[Key, ...]
    counts: tuple[int, ...]
    null: int | None
    other: int | None
