"""Strategies of Kronecker blocks that share one integer matrix per attribute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.integer_rows import Matrix, structured_of
from dpsql.algebra.levels import Structured
from dpsql.algebra.operator import Integers
from dpsql.records import dataclass, field, replace
from dpsql.strategy.base import Keep, Strategy, array_digest, decode_domain, digest_of
from dpsql.strategy.noise_law import Noise, is_law, law
from dpsql.strategy.product_block import AttributeRows, ProductBlock
from dpsql.strategy.product_forecast import ProductForecast
from dpsql.strategy.product_solve import ProductEstimate, solve
from dpsql.strategy.quantise import bits_for, column_norm, quantise
from dpsql.strategy.registry import register

SHARE_UNITS = 1 << 40
"""Grid of the budget shares, so that they are exact fractions that sum to one."""

NEGLIGIBLE = 1e-6
"""Blocks whose weight is below this part of the largest are not measured."""


@register
@dataclass(frozen=True, slots=True)
class ProductStrategy(Strategy):
    """Blocks over a domain that share one integer matrix per attribute.

    ``full[a]`` has shape (rows, n_a), a matrix or structured, None for the identity;
    ``residual[a]`` is a matrix, None for n I - J. The shares of the blocks sum to exactly one.

    Guarantee: sensitivities are exact integers of the rows that are measured, so noise scales
    from ``scales`` cost at most the amount given, in exact rational arithmetic.
    """

    kind: ClassVar[str] = "product"
    has_marginals: ClassVar[bool] = True

    domain: Mapping[str, int]
    full: Mapping[str, Matrix]
    residual: Mapping[str, Integers | None]
    blocks: tuple[ProductBlock, ...]
    noise: Noise
    method: str
    norms: dict[tuple[str, bool], int] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        if not is_law(self.noise):
            raise ValueError(f"there is no noise law {self.noise!r}")
        if not _add_up([block.share for block in self.blocks]):
            raise ValueError("the shares of a strategy are positive and sum to 1")
        order = {name: i for i, name in enumerate(self.domain)}
        for block in self.blocks:
            if list(block.attributes) != sorted(block.attributes, key=order.__getitem__):
                raise ValueError(f"block {block.attributes} is not in domain order")
            for name in block.attributes:
                source: Mapping[str, Matrix]
                source = self.residual if name in block.residual else self.full
                rows = source[name]
                whole = rows is None or isinstance(rows, Structured) or rows.dtype == np.int64
                if not whole or (rows is not None and rows.shape[1] != self.domain[name]):
                    raise ValueError(f"the rows of {name!r} are not integers over its cells")
        tables = AttributeRows(self.domain, self.full, self.residual)
        blocks = tuple(replace(block, tables=tables) for block in self.blocks)
        object.__setattr__(self, "blocks", blocks)

    def sensitivity(self, block: ProductBlock) -> int:
        """Return the exact L1 (Laplace) or squared L2 (Gaussian) sensitivity of a block's rows."""
        return math.prod(self._norm(name, name in block.residual) for name in block.attributes)

    def _norm(self, name: str, is_residual: bool) -> int:
        key = (name, is_residual)
        if key not in self.norms:
            rows = self.residual[name] if is_residual else self.full[name]
            if rows is None:
                self.norms[key] = _identity_norm(self.domain[name], is_residual, self.noise)
            elif isinstance(rows, Structured):
                self.norms[key] = rows.norm(law(self.noise).norm)
            else:
                self.norms[key] = column_norm(rows, self.noise)
        return self.norms[key]

    @property
    def shared_rows(self) -> Mapping[str, Matrix] | None:
        """Return the full rows of every attribute, None where residual ones are measured."""
        return None if self.residual else self.full

    def forecast(self, variances: Sequence[float], integers: bool = False) -> ProductForecast:
        """Return the exact errors of every answer, for the noise variance of each block."""
        tables = AttributeRows(self.domain, self.full, self.residual)
        return ProductForecast(tables, self.blocks, variances, integers)

    def solve(self, values: Sequence[NDArray[Any]], forecast: Any) -> ProductEstimate:
        """Return the least-squares estimate of a release.

        Args:
            values: per block its noisy integers, flat.
            forecast: that of this strategy at the noise that was drawn.
        """
        return solve(forecast, values)

    def describe(self, keep: Keep) -> dict[str, Any]:
        """Return plain facts; ``keep`` stores an array by name."""

        def matrices(source: Mapping[str, Matrix]) -> dict[str, Any]:
            return {name: _written(rows, keep) for name, rows in source.items()}

        return {
            "full": matrices(self.full),
            "residual": matrices(self.residual),
            "blocks": [[list(b.attributes), sorted(b.residual), str(b.share)] for b in self.blocks],
        }

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, Integers]) -> ProductStrategy:
        """Return the strategy that ``encode`` described.

        Args:
            facts: as ``encode`` returned them.
            arrays: the integer rows that it kept, by name.
        """

        blocks = tuple(
            ProductBlock(tuple(attributes), frozenset(residual), Fraction(share))
            for attributes, residual, share in facts["blocks"]
        )
        full = {name: _read(fact, arrays) for name, fact in facts["full"].items()}
        residual = {
            name: None if key is None else arrays[key] for name, key in facts["residual"].items()
        }
        return cls(decode_domain(facts), full, residual, blocks, facts["noise"], facts["method"])

    def fingerprint(self) -> str:
        """Return a hex digest of everything that is measured and of the noise law."""
        text: list[object] = [list(self.domain.items()), self.noise]
        sources: tuple[Mapping[str, Matrix], ...] = (self.full, self.residual)
        for source in sources:
            for name in sorted(source):
                rows = source[name]
                if isinstance(rows, Structured):
                    text.append((name, rows.key))
                else:
                    text.append((name, None if rows is None else (rows.shape, array_digest(rows))))
        text += [(b.attributes, sorted(b.residual), str(b.share)) for b in self.blocks]
        return digest_of(text)


def _add_up(parts: Sequence[Fraction]) -> bool:
    """Say whether fractions are positive and sum to exactly one."""
    common = math.lcm(*(part.denominator for part in parts))
    units = [part.numerator * (common // part.denominator) for part in parts]
    return sum(units) == common and min(units) > 0


def _written(rows: Matrix, keep: Keep) -> Any:
    """Return the name of an array, or what structured rows are made from; None for the identity."""
    if isinstance(rows, Structured):
        return rows.facts
    return None if rows is None else keep(rows)


def _read(fact: Any, arrays: Mapping[str, Integers]) -> Matrix:
    if isinstance(fact, list):
        return structured_of(fact)
    return None if fact is None else arrays[fact]


def _identity_norm(n: int, is_residual: bool, noise: Noise) -> int:
    if not is_residual:
        return 1
    return 2 * (n - 1) if law(noise).norm == 1 else n * (n - 1)


def shares(weights: Sequence[float], negligible: float = NEGLIGIBLE) -> list[Fraction]:
    """Return fractions proportional to weights that sum to exactly one; negligible ones are zero.

    >>> shares([0.5, 1.0])
    [Fraction(1, 3), Fraction(2, 3)]
    """
    largest = max(weights)
    units = [
        max(1, round(w / largest * SHARE_UNITS)) if w > negligible * largest else 0 for w in weights
    ]
    total = sum(units)
    return [Fraction(unit, total) for unit in units]


def assemble(
    domain: Mapping[str, int],
    factors: Mapping[str, NDArray[Any] | Structured | None],
    weights: Mapping[tuple[str, ...], float],
    noise: Noise,
    method: str,
) -> ProductStrategy:
    """Return the quantised strategy of full blocks, one per attribute set.

    Args:
        domain: the cells of every attribute.
        factors: the real matrix (r, n) of each attribute, None for the identity, or structured
            rows, which are whole already.
        weights: the relative share of the budget of each attribute set, for factors of unit
            sensitivity.
        method: the name of the search, for people.
    """
    sets = list(weights)
    parts = shares([weights[s] for s in sets])
    kept = [(s, part) for s, part in zip(sets, parts, strict=True) if part]
    fractional = {
        a
        for a, m in factors.items()
        if isinstance(m, Structured) or (m is not None and not np.array_equal(m, np.rint(m)))
    }
    # Factors that are rounded multiply within a block, whose entries are to stay within int64: the
    # more of them meet in one, the fewer bits each may have.
    bits = bits_for(max(len(fractional & set(s)) for s, _ in kept))
    used = {a for s, _ in kept for a in s}
    full: dict[str, Matrix] = {}
    for name in domain:
        if name in used:
            matrix = factors.get(name)
            full[name] = quantise(matrix, bits, noise) if isinstance(matrix, np.ndarray) else matrix
    blocks = tuple(ProductBlock(s, frozenset(), part) for s, part in kept)
    return ProductStrategy(dict(domain), full, {}, blocks, noise, method)
