"""A strategy that treats interchangeable cells alike: integer rows on orbits of cells."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.operator import Floats, Integers
from dpsql.strategy.noise_law import GAUSSIAN, Noise, is_law, law
from dpsql.strategy.orbits import Orbits
from dpsql.strategy.product import round_up

if TYPE_CHECKING:
    from dpsql.strategy.symmetric_forecast import SymmetricForecast
    from dpsql.workload.workload import Workload

CONSTANT = -1
"""The kind of an axis that is summed over every orbit; other kinds name the orbit resolved."""

MATRIX_LIMIT = 1 << 26
"""Largest explicit matrix (entries) that is written out for inspection."""


@dataclass(frozen=True, slots=True)
class OrbitPart:
    """Rows over one kind of component.

    ``kinds`` has per attribute CONSTANT, for sums over each orbit, or an orbit o, for the residual
    rows s I - J of its s cells. ``rows`` (r, K) are over the K tuples of orbits of the CONSTANT
    axes; each row is measured for every combination of residual rows.
    """

    kinds: tuple[int, ...]
    rows: Integers

    @property
    def constant(self) -> tuple[int, ...]:
        """Return the axes that are summed over orbits."""
        return tuple(i for i, kind in enumerate(self.kinds) if kind == CONSTANT)

    @property
    def resolved(self) -> tuple[int, ...]:
        """Return the axes that are measured with residual rows."""
        return tuple(i for i, kind in enumerate(self.kinds) if kind != CONSTANT)


@dataclass(frozen=True, slots=True)
class OrbitBlock:
    """All rows of a symmetric strategy: they share one noise scale and all of the budget.

    Guarantee: ``sensitivity`` is the exact squared L2 norm of the largest column of ``apply``,
    in Python integers; all cells of an orbit tuple have equal columns.
    """

    attributes: tuple[str, ...]
    orbits: tuple[Orbits, ...]
    parts: tuple[OrbitPart, ...]
    share: Fraction = Fraction(1)
    residual: frozenset[str] = frozenset()

    @property
    def cells(self) -> int:
        """Return the number of cells the block reads."""
        return math.prod(orbits.n for orbits in self.orbits)

    @property
    def rows(self) -> int:
        """Return how many numbers the block measures."""
        return sum(math.prod(self.shape(part)) for part in self.parts)

    @property
    def factors(self) -> dict[tuple[str, ...], Integers]:
        """Return the attributes, jointly, to the integer rows over their cells.

        The only key is the tuple of all attributes of the block, because these rows are no
        Kronecker product; their columns are the combinations of cells, the first attribute
        slowest. A block of a product strategy has one key per attribute instead.
        Raises ValueError where these are too many to write out.
        """
        return {self.attributes: self.matrix()}

    def shape(self, part: OrbitPart) -> tuple[int, ...]:
        """Return (rows, cells of the resolved orbits, in the order of the attributes)."""
        sizes = [int(self.orbits[i].sizes[part.kinds[i]]) for i in part.resolved]
        return (len(part.rows), *sizes)

    def column_norms(self) -> NDArray[Any]:
        """Return the squared L2 norm of the column of every orbit tuple, as Python integers."""
        shape = [len(orbits.sizes) for orbits in self.orbits]
        norms = np.zeros(shape, dtype=object)
        for part in self.parts:
            scale = 1
            for i in part.resolved:
                size = int(self.orbits[i].sizes[part.kinds[i]])
                scale *= size * (size - 1)
            where = tuple(slice(None) if kind == CONSTANT else kind for kind in part.kinds)
            columns = squared_columns(part.rows) * scale
            norms[where] += columns.reshape([shape[i] for i in part.constant] or ())
        return norms

    def sensitivity(self) -> int:
        """Return the largest squared L2 norm of a column."""
        return int(self.column_norms().max())

    def apply(self, counts: Integers) -> Integers:
        """Return all rows applied to a table of counts, flat; exact modulo 2^64.

        ``counts`` has one axis per attribute, in order.
        """
        tensor = counts
        for axis, orbits in enumerate(self.orbits):
            tensor = _split(tensor, axis, orbits)
        return np.concatenate([self._apply_part(part, tensor) for part in self.parts])

    def _apply_part(self, part: OrbitPart, tensor: Integers) -> Integers:
        where = tuple(slot(o, k) for o, k in zip(self.orbits, part.kinds, strict=True))
        chosen = tensor[where].transpose(*part.constant, *part.resolved)
        return np.asarray(part.rows @ chosen.reshape(part.rows.shape[1], -1)).reshape(-1)

    def matrix(self) -> Integers:
        """Return the explicit rows, shape (rows, cells), columns row-major over the attributes.

        Raises ValueError where they exceed the limit.
        """
        if self.rows * self.cells > MATRIX_LIMIT:
            raise ValueError(f"{self.rows} rows over {self.cells} cells are too many to write out")
        shape = [orbits.n for orbits in self.orbits]
        unit = np.eye(self.cells, dtype=np.int64)
        return np.array([self.apply(cell.reshape(shape)) for cell in unit]).T


@dataclass(frozen=True, slots=True)
class SymmetricStrategy:
    """One block of Gaussian measurements that is invariant under exchange of alike cells.

    Guarantee: as for ``Strategy``, the scale from ``scales`` costs at most the amount given, in
    exact rational arithmetic.
    """

    domain: Mapping[str, int]
    block: OrbitBlock
    method: str = "symmetric"
    noise: Noise = GAUSSIAN.name
    norm: list[int] = field(default_factory=list, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        order = list(self.domain)
        block = self.block
        if list(block.attributes) != sorted(block.attributes, key=order.index):
            raise ValueError(f"block {block.attributes} is not in domain order")
        if [o.n for o in block.orbits] != [self.domain[a] for a in block.attributes]:
            raise ValueError("the orbits do not cover the cells of the attributes")
        if not block.parts or not is_law(self.noise) or law(self.noise).norm != 2:
            raise ValueError("a symmetric strategy has rows, and a noise law of the L2 norm")
        if len({part.kinds for part in block.parts}) < len(block.parts):
            raise ValueError("every kind of component is measured by one part")
        for part in block.parts:
            for kind, orbits in zip(part.kinds, block.orbits, strict=True):
                if kind not in (CONSTANT, *orbits.wide):
                    raise ValueError(f"{kind} is not an orbit of at least two cells")
            columns = math.prod(len(block.orbits[i].sizes) for i in part.constant)
            if part.rows.dtype != np.int64 or part.rows.shape[1] != columns:
                raise ValueError("the rows of a part are integers over its orbit tuples")

    @property
    def blocks(self) -> tuple[OrbitBlock, ...]:
        """Return the only block."""
        return (self.block,)

    def sensitivity(self, block: OrbitBlock) -> int:
        """Return the exact squared L2 sensitivity."""
        if block is not self.block:
            return block.sensitivity()
        if not self.norm:
            self.norm.append(block.sensitivity())
        return self.norm[0]

    def sensitivities(self) -> tuple[int, ...]:
        """Return the sensitivity of every block."""
        return (self.sensitivity(self.block),)

    def scales(
        self,
        amount: Fraction,
        rows_per_unit: int = 1,
        multipliers: Sequence[int] | None = None,
    ) -> tuple[Fraction, ...]:
        """Return the Gaussian sigma squared for a total cost rho.

        The one multiplier is by how much the squared sensitivity is larger than that of the rows
        for other reasons, 1 if absent.
        Guarantee: dyadic, rounded up, so the cost is at most ``amount``.
        """
        if amount <= 0 or rows_per_unit < 1:
            raise ValueError(f"amount {amount} and rows per unit {rows_per_unit} must be positive")
        (times,) = multipliers or (1,)
        squared = rows_per_unit * rows_per_unit * times * self.sensitivity(self.block)
        return (round_up(law(self.noise).scale(squared, amount)),)

    def rows(self, block: OrbitBlock) -> int:
        """Return how many numbers the block measures."""
        return block.rows

    def forecast(self, variances: Sequence[float]) -> SymmetricForecast:
        """Return the exact errors of every answer, for the noise variance of the block."""
        from dpsql.strategy.symmetric_forecast import SymmetricForecast

        return SymmetricForecast(self, variances)

    def fingerprint(self) -> str:
        """Return a hex digest of everything that is measured and of the noise law."""
        text: list[object] = ["symmetric", list(self.domain.items()), self.block.attributes]
        text += [_digest(orbits.labels) for orbits in self.block.orbits]
        text += [(p.kinds, p.rows.shape, _digest(p.rows)) for p in self.block.parts]
        return hashlib.sha256(repr(text).encode()).hexdigest()

    def encode(self, keep: Callable[[Integers], str]) -> dict[str, Any]:
        """Return plain facts that describe the strategy; ``keep`` stores an array by name."""
        return {
            "kind": "symmetric",
            "domain": list(self.domain.items()),
            "attributes": list(self.block.attributes),
            "orbits": [keep(orbits.labels) for orbits in self.block.orbits],
            "parts": [[list(part.kinds), keep(part.rows)] for part in self.block.parts],
            "noise": self.noise,
            "method": self.method,
        }

    @classmethod
    def decode(cls, facts: Mapping[str, Any], arrays: Mapping[str, Integers]) -> SymmetricStrategy:
        """Return the strategy that ``encode`` described."""
        block = OrbitBlock(
            tuple(facts["attributes"]),
            tuple(Orbits(arrays[name]) for name in facts["orbits"]),
            tuple(OrbitPart(tuple(kinds), arrays[name]) for kinds, name in facts["parts"]),
        )
        domain = {name: int(size) for name, size in facts["domain"]}
        return cls(domain, block, facts["method"], facts["noise"])

    def rmse(self, workload: Workload, epsilon: float = 1.0, delta: float = 1e-6) -> float:
        """Return the expected root mean squared error in the convention of the literature.

        Gaussian noise uses the analytic calibration at (epsilon, delta). Source: HDMM, section 8.
        """
        from dpsql.strategy.convention import rmse

        return rmse(self, workload, epsilon, delta)

    def heatmap(self, attribute: str) -> Floats:
        """Return the symmetric root of what is measured on one attribute, scaled to at most one.

        The other attributes are summed over.
        """
        axis = self.block.attributes.index(attribute)
        information = np.zeros((self.domain[attribute],) * 2)
        for part in self.block.parts:
            if all(i == axis for i in part.resolved):
                information += self._information(part, axis)
        values, vectors = np.linalg.eigh(information)
        root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        return np.asarray(root / np.abs(root).max())

    def _information(self, part: OrbitPart, axis: int) -> Floats:
        orbits = self.block.orbits
        rows = part.rows.reshape(-1, *(len(orbits[i].sizes) for i in part.constant))
        total: NDArray[Any] = rows.astype(np.float64)
        for position, i in reversed(list(enumerate(part.constant))):
            if i != axis:
                total = np.tensordot(total, orbits[i].sizes, axes=(position + 1, 0))
        own, kind = orbits[axis], part.kinds[axis]
        if kind == CONSTANT:
            cells = total[:, own.labels]
            return np.asarray(cells.T @ cells)
        size = int(own.sizes[kind])
        inside = np.where(own.labels == kind, 1.0, 0.0)
        spread = float(total @ total) * size
        return np.asarray(spread * (size * np.diag(inside) - np.outer(inside, inside)))


def squared_columns(rows: Integers) -> NDArray[Any]:
    """Return the squared L2 norm of every column, as Python integers.

    >>> squared_columns(np.array([[1, 1 << 40], [2, 0]])).tolist()
    [5, 1208925819614629174706176]
    """
    largest = max(abs(int(rows.max(initial=0))), abs(int(rows.min(initial=0))))
    exact: NDArray[Any] = rows if largest**2 * len(rows) < 1 << 62 else rows.astype(object)
    return np.asarray((exact * exact).sum(axis=0)).astype(object)


def slot(orbits: Orbits, kind: int) -> slice:
    """Return where a kind lies on an axis [sum of every orbit, cells of every wide orbit].

    >>> slot(Orbits(np.array([0, 1, 1, 2, 2, 2])), 2)
    slice(5, 8, None)
    """
    count = len(orbits.sizes)
    if kind == CONSTANT:
        return slice(0, count)
    start = count + int(orbits.sizes[orbits.wide[orbits.wide < kind]].sum())
    return slice(start, start + int(orbits.sizes[kind]))


def wide_cells(orbits: Orbits) -> Integers:
    """Return the cells of the wide orbits, orbit by orbit."""
    return orbits.order[orbits.sizes[orbits.labels[orbits.order]] > 1]


def _split(tensor: Integers, axis: int, orbits: Orbits) -> Integers:
    """Return [sum of every orbit, s x - sum of the orbit for every cell of a wide orbit]."""
    sums = orbits.sums(tensor, axis)
    cells = wide_cells(orbits)
    if not len(cells):
        return sums
    own = orbits.labels[cells]
    scale = orbits.sizes[own].reshape((-1,) + (1,) * (tensor.ndim - axis - 1))
    inside = tensor.take(cells, axis) * scale - sums.take(own, axis)
    return np.concatenate([sums, inside], axis=axis)


def _digest(array: Integers) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
