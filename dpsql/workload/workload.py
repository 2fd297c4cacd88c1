"""A workload: a weighted union of Kronecker products over the attributes of one domain."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Identity, Prefix, Total, simplify
from dpsql.algebra.operator import Operator
from dpsql.algebra.ranges import AllRange
from dpsql.errors import ProgrammingError
from dpsql.records import cached_property, dataclass

Factor: TypeAlias = "str | Operator | NDArray[Any] | Sequence[Any]"

NAMED: dict[str, type[Identity] | type[Total] | type[Prefix] | type[AllRange]] = {
    "identity": Identity,
    "total": Total,
    "prefix": Prefix,
    "allrange": AllRange,
}


@dataclass(frozen=True)
class Product:
    """One Kronecker product of query rows; an attribute without a factor is summed over."""

    factors: Mapping[str, Operator]
    weight: float = 1.0

    @cached_property
    def rows(self) -> int:
        """Return the number of query rows."""
        return math.prod(operator.rows for operator in self.factors.values())


ProductLike: TypeAlias = "Product | Mapping[str, Any] | tuple[Mapping[str, Any], float]"


class Workload:
    """Products over a domain (attribute to number of cells), frozen after construction.

    A product is a ``Product``, a mapping from attribute to a factor, or a pair of such a mapping
    and a weight. A factor is "identity", "total", "prefix", "allrange", an array of rows, or an
    operator. ``pinned`` names attributes that every measurement must resolve, because some of
    their cells were dropped as irrelevant and must not be counted. ``attributes`` are in Kronecker
    order, ``products`` as given.

    Raises ProgrammingError E_WORKLOAD for empty or malformed workloads.

    >>> w = Workload({"sex": 2, "age": 4}, [{"age": "prefix"}, ({"sex": "identity"}, 2.0)])
    >>> w.rows, w.index.tolist(), w.weights2.tolist()
    (6, [[-1, 0], [0, -1]], [1.0, 4.0])
    """

    def __init__(
        self,
        domain: Mapping[str, int],
        products: Iterable[ProductLike],
        *,
        pinned: Iterable[str] = (),
    ) -> None:
        self.domain: Mapping[str, int] = _checked_domain(domain)
        self.attributes = tuple(self.domain)
        self.pinned = frozenset(pinned)
        reader = _ProductReader(self.domain, self.pinned)
        self.products = tuple(reader.product(item) for item in products)
        if not self.products:
            _refuse("the workload is empty", "give at least one product")

    @cached_property
    def rows(self) -> int:
        """Return the number of query rows, duplicates counted."""
        return sum(product.rows for product in self.products)

    @cached_property
    def factors(self) -> tuple[tuple[Operator, ...], ...]:
        """Return per attribute its distinct factors that are not Total."""
        return self._merged[0]

    @cached_property
    def index(self) -> NDArray[np.int64]:
        """Return the merged products, shape (k, d): positions in ``factors``, -1 for Total."""
        return self._merged[1]

    @cached_property
    def weights2(self) -> NDArray[np.float64]:
        """Return per merged product the sum of its squared weights, shape (k,)."""
        return self._merged[2]

    @cached_property
    def asked(self) -> tuple[tuple[Product, float], ...]:
        """Return the merged products, each with the sum of its squared weights."""
        return tuple(
            (
                Product(
                    {
                        name: self.factors[i][j]
                        for i, (name, j) in enumerate(zip(self.attributes, row, strict=True))
                        if j >= 0
                    }
                ),
                weight2,
            )
            for row, weight2 in zip(self.index.tolist(), self.weights2.tolist(), strict=True)
        )

    @cached_property
    def _merged(
        self,
    ) -> tuple[tuple[tuple[Operator, ...], ...], NDArray[np.int64], NDArray[np.float64]]:
        axis = {name: i for i, name in enumerate(self.domain)}
        distinct: list[dict[Hashable, int]] = [{} for _ in axis]
        factors: list[list[Operator]] = [[] for _ in axis]
        known: dict[tuple[int, int], int] = {}  # by identity: the products hold their operators
        merged: dict[tuple[int, ...], float] = {}
        for product in self.products:
            row = [-1] * len(axis)
            for name, operator in product.factors.items():
                i = axis[name]
                place = (i, id(operator))
                if place not in known:
                    known[place] = distinct[i].setdefault(operator.key, len(factors[i]))
                    if known[place] == len(factors[i]):
                        factors[i].append(operator)
                row[i] = known[place]
            merged[tuple(row)] = merged.get(tuple(row), 0.0) + product.weight**2
        index = np.array(list(merged), dtype=np.int64).reshape(len(merged), len(axis))
        weights2 = np.array(list(merged.values()))
        for array in (index, weights2):
            array.setflags(write=False)
        return tuple(tuple(f) for f in factors), index, weights2

    def fingerprint(self) -> str:
        """Return a hex digest of what is asked: domain, merged products and weights."""
        digests = [
            [hashlib.sha256(repr(f.key).encode()).hexdigest() for f in factors]
            for factors in self.factors
        ]
        products = sorted(
            ([d[j] if j >= 0 else "" for d, j in zip(digests, row, strict=True)], repr(float(w2)))
            for row, w2 in zip(self.index.tolist(), self.weights2, strict=True)
        )
        text = repr((list(self.domain.items()), sorted(self.pinned), products))
        return hashlib.sha256(text.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Workload({self.domain}, {len(self.products)} products, {self.rows} rows)"


class _ProductReader:
    """Turn what the caller wrote into operators, each distinct object once."""

    def __init__(self, domain: Mapping[str, int], pinned: frozenset[str]) -> None:
        self.domain = domain
        self.pinned = pinned
        self.axis = {name: i for i, name in enumerate(domain)}
        self.seen: dict[tuple[str, int], tuple[object, Operator | None]] = {}
        self.shared: dict[tuple[str, Hashable], Operator] = {}

    def product(self, item: ProductLike) -> Product:
        if isinstance(item, Product):
            mapping: Mapping[str, Any] = item.factors
            weight = item.weight
        elif isinstance(item, Mapping):
            mapping, weight = item, 1.0
        elif isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], Mapping):
            mapping, weight = item
        else:
            _refuse(f"{item!r} is not a product", "give a mapping from attribute to factor")
        if not isinstance(weight, (int, float, np.number)) or not 0 < float(weight) < math.inf:
            _refuse(f"the weight {weight!r} is not positive", "leave out what is not wanted")
        factors = {}
        for name in sorted(mapping, key=self.position):
            operator = self.factor(name, mapping[name])
            if operator is not None:
                factors[name] = operator
        if not self.pinned <= factors.keys():
            missing = sorted(self.pinned - factors.keys())
            _refuse(f"a product leaves the pinned attributes {missing} out", "give them a factor")
        return Product(factors, float(weight))

    def position(self, name: str) -> int:
        if name not in self.axis:
            _refuse(f"{name!r} is not an attribute", f"attributes: {', '.join(self.domain)}")
        return self.axis[name]

    def factor(self, name: str, value: Factor) -> Operator | None:
        """Return the operator of one factor, None for Total."""
        if isinstance(value, str):
            if value not in NAMED:
                _refuse(f"{value!r} is not a factor of {name!r}", f"known: {', '.join(NAMED)}")
            operator: Operator = NAMED[value](self.domain[name])
            return self.share(name, operator)
        key = (name, id(value))  # the value is kept beside what became of it
        if key not in self.seen:
            self.seen[key] = (value, self.share(name, self.convert(name, value)))
        return self.seen[key][1]

    def share(self, name: str, operator: Operator) -> Operator | None:
        if isinstance(operator, Total) or (
            operator.shape == (1, 1) and operator.dense()[0, 0] == 1
        ):
            if name not in self.pinned:
                return None
            operator = Dense(np.ones((1, operator.n))) if operator.n > 1 else Identity(1)
        return self.shared.setdefault((name, operator.key), operator)

    def convert(self, name: str, value: Operator | NDArray[Any] | Sequence[Any]) -> Operator:
        size = self.domain[name]
        if isinstance(value, Operator):
            operator = value.simpler or value if isinstance(value, Dense) else value
        else:
            operator = simplify(_rows_of(name, size, value))
        shape = operator.shape
        if shape[1] != size or not shape[0]:
            _refuse(
                f"a factor of {name!r} has shape {shape}, the attribute {size} cells",
                "each row needs one entry per cell",
            )
        return operator


def _rows_of(name: str, size: int, value: object) -> NDArray[Any]:
    try:
        rows = np.asarray(value)
        rows = rows if rows.dtype.kind in "iub" else rows.astype(np.float64)
    except (TypeError, ValueError):
        _refuse(f"the rows of {name!r} are not numbers", "give an array of rows")
    if rows.ndim == 1:
        rows = rows[np.newaxis]
    if rows.ndim != 2 or rows.shape[1] != size or not rows.shape[0]:
        _refuse(
            f"the rows of {name!r} have shape {rows.shape}, the attribute {size} cells",
            "each row needs one entry per cell",
        )
    if not np.isfinite(rows).all():
        _refuse(f"the rows of {name!r} are not all finite", "use finite numbers")
    return rows


def _checked_domain(domain: Mapping[str, int]) -> dict[str, int]:
    for name, size in domain.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            _refuse(f"{name!r} has {size!r} cells", "every attribute needs at least one cell")
    return {str(name): int(size) for name, size in domain.items()}


def _refuse(message: str, hint: str) -> NoReturn:
    raise ProgrammingError("E_WORKLOAD", message, hint=hint)
