"""A strategy: which integer rows to measure, and how the budget is split over them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Integers
from dpsql.strategy.noise_law import Noise, is_law, law
from dpsql.strategy.quantise import bits_for, column_norm, quantise

if TYPE_CHECKING:
    from dpsql.strategy.forecast import Forecast
    from dpsql.workload.workload import Workload

__all__ = ["Block", "Strategy", "assemble", "residual_rows", "shares"]

SCALE_BITS = 30
"""Significant bits of a noise scale; the rounding is towards more noise."""

SHARE_UNITS = 1 << 40
"""Grid of the budget shares."""

NEGLIGIBLE = 1e-6
"""Blocks whose weight is below this part of the largest are not measured."""


@dataclass(frozen=True, slots=True)
class Block:
    """One Kronecker block: the attributes it resolves and its share of the budget.

    ``attributes`` are in domain order, () for the grand total; those in ``residual`` are measured
    with residual rows, the others with the full rows. ``share`` is of epsilon under Laplace and
    of rho under Gaussian noise.
    """

    attributes: tuple[str, ...]
    residual: frozenset[str]
    share: Fraction
    tables: Mapping[tuple[str, bool], Integers | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def factors(self) -> dict[str, Integers | None]:
        """Return attribute to its integer rows, None for the identity."""
        return {a: self.tables[a, a in self.residual] for a in self.attributes}


class _Tables(Mapping[tuple[str, bool], "Integers | None"]):
    """The rows of (attribute, residual?); residual rows of the identity are formed on use."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy

    def __getitem__(self, key: tuple[str, bool]) -> Integers | None:
        name, is_residual = key
        if not is_residual:
            return self.strategy.full[name]
        rows = self.strategy.residual[name]
        return residual_rows(self.strategy.domain[name]) if rows is None else rows

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        yield from ((name, False) for name in self.strategy.full)
        yield from ((name, True) for name in self.strategy.residual)

    def __len__(self) -> int:
        return len(self.strategy.full) + len(self.strategy.residual)


def residual_rows(n: int) -> Integers:
    """Return n I - J, the integer residual rows of the identity.

    >>> residual_rows(2).tolist()
    [[1, -1], [-1, 1]]
    """
    return n * np.eye(n, dtype=np.int64) - 1


@dataclass(frozen=True, slots=True)
class Strategy:
    """Blocks over a domain that share one integer matrix per attribute.

    ``full[a]`` has shape (rows, n_a), None for the identity; ``residual[a]`` likewise, None for
    n I - J. The shares of the blocks sum to exactly one.

    Guarantee: sensitivities are exact integers of the rows that are measured, so noise scales
    from ``scales`` cost at most the amount given, in exact rational arithmetic.
    """

    domain: Mapping[str, int]
    full: Mapping[str, Integers | None]
    residual: Mapping[str, Integers | None]
    blocks: tuple[Block, ...]
    noise: Noise
    method: str
    norms: dict[tuple[str, bool], int] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        if not is_law(self.noise):
            raise ValueError(f"there is no noise law {self.noise!r}")
        if sum(block.share for block in self.blocks) != 1 or any(b.share <= 0 for b in self.blocks):
            raise ValueError("the shares of a strategy are positive and sum to 1")
        tables = _Tables(self)
        order = {name: i for i, name in enumerate(self.domain)}
        for block in self.blocks:
            if list(block.attributes) != sorted(block.attributes, key=order.__getitem__):
                raise ValueError(f"block {block.attributes} is not in domain order")
            for name in block.attributes:
                source = self.residual if name in block.residual else self.full
                rows = source[name]
                if rows is not None and (
                    rows.dtype != np.int64 or rows.shape[1] != self.domain[name]
                ):
                    raise ValueError(f"the rows of {name!r} are not integers over its cells")
        blocks = tuple(replace(block, tables=tables) for block in self.blocks)
        object.__setattr__(self, "blocks", blocks)

    def sensitivity(self, block: Block) -> int:
        """Return the exact L1 (Laplace) or squared L2 (Gaussian) sensitivity of a block's rows."""
        return math.prod(self._norm(name, name in block.residual) for name in block.attributes)

    def sensitivities(self) -> tuple[int, ...]:
        """Return the sensitivity of every block."""
        return tuple(self.sensitivity(block) for block in self.blocks)

    def _norm(self, name: str, is_residual: bool) -> int:
        key = (name, is_residual)
        if key not in self.norms:
            rows = self.residual[name] if is_residual else self.full[name]
            self.norms[key] = (
                column_norm(rows, self.noise)
                if rows is not None
                else _identity_norm(self.domain[name], is_residual, self.noise)
            )
        return self.norms[key]

    def scales(
        self,
        amount: Fraction,
        rows_per_unit: int = 1,
        multipliers: Sequence[int] | None = None,
    ) -> tuple[Fraction, ...]:
        """Return per block the Laplace scale, or the Gaussian sigma squared, for a total cost.

        ``amount`` is epsilon (Laplace) or rho (Gaussian); ``rows_per_unit`` is how many rows one
        privacy unit can contribute, and ``multipliers[i]`` by how much the sensitivity of block i
        is larger than that of its rows for other reasons, 1 if absent.

        Guarantee: dyadic, rounded up, so the costs of all blocks sum to at most ``amount``.
        """
        if amount <= 0 or rows_per_unit < 1:
            raise ValueError(f"amount {amount} and rows per unit {rows_per_unit} must be positive")
        noise = law(self.noise)
        reach = rows_per_unit**noise.norm
        times = multipliers or [1] * len(self.blocks)
        return tuple(
            round_up(noise.scale(reach * each * self.sensitivity(block), block.share * amount))
            for block, each in zip(self.blocks, times, strict=True)
        )

    def rows(self, block: Block) -> int:
        """Return how many numbers the block measures."""
        return math.prod(
            self.domain[a] if m is None else len(m)
            for a, m in zip(block.attributes, self.matrices(block), strict=True)
        )

    def matrices(self, block: Block) -> list[Integers | None]:
        """Return the block's integer rows per attribute, None for the identity."""
        return [block.tables[a, a in block.residual] for a in block.attributes]

    def forecast(self, variances: Sequence[float]) -> Forecast:
        """Return the exact errors of every answer, for the noise variance of each block."""
        from dpsql.strategy.forecast import Forecast

        return Forecast(self, variances)

    def encode(self, keep: Callable[[Integers], str]) -> dict[str, Any]:
        """Return plain facts that describe the strategy; ``keep`` stores an array by name."""

        def matrices(source: Mapping[str, Integers | None]) -> dict[str, str | None]:
            return {name: None if rows is None else keep(rows) for name, rows in source.items()}

        return {
            "kind": "product",
            "domain": list(self.domain.items()),
            "full": matrices(self.full),
            "residual": matrices(self.residual),
            "blocks": [[list(b.attributes), sorted(b.residual), str(b.share)] for b in self.blocks],
            "noise": self.noise,
            "method": self.method,
        }

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, Integers]) -> Strategy:
        """Return the strategy that ``encode`` described."""

        def matrices(names: Mapping[str, str | None]) -> dict[str, Integers | None]:
            return {name: None if key is None else arrays[key] for name, key in names.items()}

        blocks = tuple(
            Block(tuple(attributes), frozenset(residual), Fraction(share))
            for attributes, residual, share in facts["blocks"]
        )
        full, residual = matrices(facts["full"]), matrices(facts["residual"])
        domain = {name: int(size) for name, size in facts["domain"]}
        return cls(domain, full, residual, blocks, facts["noise"], facts["method"])

    def fingerprint(self) -> str:
        """Return a hex digest of everything that is measured and of the noise law."""
        text: list[object] = [list(self.domain.items()), self.noise]
        for source in (self.full, self.residual):
            for name in sorted(source):
                rows = source[name]
                text.append((name, None if rows is None else (rows.shape, _digest(rows))))
        text += [(b.attributes, sorted(b.residual), str(b.share)) for b in self.blocks]
        return hashlib.sha256(repr(text).encode()).hexdigest()

    def rmse(self, workload: Workload, epsilon: float = 1.0, delta: float = 1e-6) -> float:
        """Return the expected root mean squared error in the convention of the literature.

        Laplace variance is 2 (sensitivity / epsilon)^2; Gaussian noise uses the analytic
        calibration at (epsilon, delta). Source: HDMM, section 8.
        """
        from dpsql.strategy.convention import rmse

        return rmse(self, workload, epsilon, delta)

    def heatmap(self, attribute: str) -> NDArray[np.float64]:
        """Return the rows measured on one attribute, scaled to a largest entry of one."""
        rows = self.full[attribute] if attribute in self.full else self.residual[attribute]
        if rows is None:
            return np.eye(self.domain[attribute])
        return np.asarray(rows / np.abs(rows).max())


def _identity_norm(n: int, is_residual: bool, noise: Noise) -> int:
    if not is_residual:
        return 1
    return 2 * (n - 1) if law(noise).norm == 1 else n * (n - 1)


def round_up(value: Fraction) -> Fraction:
    """Return the least dyadic of 30 significant bits that is not below a positive value.

    >>> round_up(Fraction(1, 3)) >= Fraction(1, 3), round_up(Fraction(5)) == 5
    (True, True)
    """
    exponent = SCALE_BITS - (value.numerator.bit_length() - value.denominator.bit_length())
    unit = Fraction(1, 1 << exponent) if exponent >= 0 else Fraction(1 << -exponent)
    return -(-value // unit) * unit


def shares(weights: Sequence[float], negligible: float = NEGLIGIBLE) -> list[Fraction]:
    """Return fractions proportional to weights that sum to exactly one; negligible ones are zero.

    >>> shares([0.5, 1.0])
    [Fraction(1, 3), Fraction(2, 3)]
    """
    largest = max(weights)
    units = [
        max(1, round(w / largest * SHARE_UNITS)) if w > negligible * largest else 0 for w in weights
    ]
    return [Fraction(u, sum(units)) for u in units]


def assemble(
    domain: Mapping[str, int],
    factors: Mapping[str, NDArray[Any] | None],
    weights: Mapping[tuple[str, ...], float],
    noise: Noise,
    method: str,
) -> Strategy:
    """Return the quantised strategy of full blocks, one per attribute set.

    ``factors[a]`` is the real-valued matrix of attribute a, None for the identity; ``weights``
    gives each attribute set its budget share (relative), for factors of unit sensitivity.
    """
    sets = list(weights)
    parts = shares([weights[s] for s in sets])
    kept = [(s, part) for s, part in zip(sets, parts, strict=True) if part]
    fractional = {
        a for a, m in factors.items() if m is not None and not np.array_equal(m, np.rint(m))
    }
    bits = bits_for(max(len(fractional & set(s)) for s, _ in kept))
    used = {a for s, _ in kept for a in s}
    full: dict[str, Integers | None] = {}
    for name in domain:
        if name in used:
            matrix = factors.get(name)
            full[name] = None if matrix is None else quantise(matrix, bits, noise)
    blocks = tuple(Block(s, frozenset(), part) for s, part in kept)
    return Strategy(dict(domain), full, {}, blocks, noise, method)


def _digest(rows: Integers) -> str:
    return hashlib.sha256(rows.tobytes()).hexdigest()
