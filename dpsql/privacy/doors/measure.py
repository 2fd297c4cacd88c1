"""The membrane's first door: a plan and a receipt in, noisy integers out.

Two others are ``look`` and ``find_keys``; beside these three nothing draws noise. Sensitivities are
recomputed here, in Python integers, from the very matrices that are about to be applied, and
compared with what the receipt paid for, in exact fractions, before any row is touched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.cores import run_on_cores
from dpsql.algebra.integer_rows import IntegerRows, KronRows, Matrix, OrbitRows
from dpsql.algebra.largest_cell import worst_cell
from dpsql.algebra.levels import Structured
from dpsql.errors import InternalError
from dpsql.plan.plan import Part, Plan
from dpsql.privacy.budget.ledger import Receipt
from dpsql.privacy.doors.exact_products import (
    MANY_ROWS,
    PIECE,
    WRAPS,
    apply_rows,
    apply_rows_unbounded,
    checked,
    largest,
    working_shape,
    wrap_int64,
)
from dpsql.privacy.doors.vaults import Vaults
from dpsql.privacy.noise.entropy import Bits
from dpsql.privacy.noise.opendp_noise import certified
from dpsql.privacy.noise.samplers import SAMPLERS, sampler
from dpsql.privacy.vault.vault import Vault
from dpsql.records import dataclass
from dpsql.strategy.base import Block
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.cells import Cells, Nodes, Resolution, Unions
from dpsql.workload.weights import MOST_WEIGHT, joint_excess, weights_of

Values = NDArray[Any]
WIDE_NOISE = 2**55
"""Scales (roots of variances) from which noise of 2^62 is not absurdly rare: P < exp(-2^6)."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The noisy integers of one part, one flat array per block, and nothing else."""

    values: tuple[Values, ...]

    def __post_init__(self) -> None:
        for value in self.values:
            if value.dtype not in (np.dtype(np.int64), np.dtype(object)):
                raise InternalError("E_INTERNAL", "a measurement is not integer")


def check_noise(noise: Noise, vaults: Vaults) -> None:
    """Refuse, before any charge, a law whose noise cannot be drawn.

    Raises: OperationalError (E_NOISE, E_BACKEND).
    """
    if vaults.backend == "opendp":
        certified(noise, 1, Fraction(1))
    else:
        sampler(noise)


def certify(plan: Plan, vaults: Vaults) -> None:
    """Refuse, before any charge, a plan that does not fit the tables or the noise backend.

    Raises: ProgrammingError (E_WORKLOAD); OperationalError (E_BACKEND). From public facts only.
    """
    for part in plan.parts:
        for block, scale in zip(part.blocks, part.scales, strict=True):
            resolutions = [part.resolutions[name] for name in block.attributes]
            vaults.check_cells(part.table, resolutions, part.units)
            if vaults.backend == "opendp":
                certified(plan.noise, _sensitivity(part, block), scale)


def measure(plan: Plan, receipt: Receipt, vaults: Vaults) -> tuple[Measurement, ...]:
    """Measure every part of a plan, once, with fresh noise.

    Args:
        plan: parts with their integer strategies, noise and amounts.
        receipt: pays for exactly this plan; used up before a row is touched.
        vaults: of the catalog; each part reads the rows of its view.

    Raises: LedgerError (E_RECEIPT) if the receipt does not pay for exactly this plan on exactly
    this data; InternalError (E_INTERNAL, constant text) for any failure after that.
    Guarantee: the tuple is (epsilon)-DP, or rho-zCDP, for one privacy unit, with the amount the
    receipt paid. Source: CKS20 (discrete Gaussian); the discrete Laplace mechanism on integers.
    """
    version = vaults.versions([part.table for part in plan.parts])
    # Used up before a row is touched: whether a measurement fails may depend on rows, so that one
    # which fails is not made again for free.
    receipt.redeem(plan.fingerprint, version, plan.noise)
    check_cost(plan, receipt)
    for part in plan.parts:
        vaults.check_unit(part.table, part.rows_per_unit)
    try:
        return tuple(
            _measure_part(part, plan, vaults.narrowed(part.table, part.view), vaults.backend)
            for part in plan.parts
        )
    except Exception:
        pass  # what is raised in here would hold rows, in its context and its traceback
    raise InternalError("E_INTERNAL", "the measurement failed; the charge stays")


def check_cost(plan: Plan, receipt: Receipt) -> None:
    """Verify in exact fractions that the receipt covers the plan.

    Raises: InternalError (E_INTERNAL). Guarantee: sensitivities come from the integer matrices.
    """
    if any(part.strategy.noise != plan.noise for part in plan.parts):
        raise InternalError("E_INTERNAL", "a strategy is of another law than its plan")
    paid = law(plan.noise).budget(receipt.cost.epsilon, receipt.cost.rho)
    total = sum((_cost(part) for part in plan.parts), Fraction(0))
    if receipt.cost.noise != plan.noise or paid is None or total > paid:
        raise InternalError("E_INTERNAL", "the plan costs more than was paid; nothing was measured")


def _cost(part: Part) -> Fraction:
    if part.strategy.is_joint:
        return _joint_cost(part)
    noise = law(part.strategy.noise)
    pairs = zip(part.blocks, part.scales, strict=True)
    costs = (noise.cost(_sensitivity(part, block), scale) for block, scale in pairs)
    return sum(costs, Fraction(0))


def _joint_cost(part: Part) -> Fraction:
    """The cost of all blocks together: that of the cell where it is largest, or more.

    Guarantee: computed in exact integers from the rows, the scales and how rows become cells. What
    one row adds to a block is a mixture of single cells, of which the costs are convex; mixtures of
    different blocks differ by what their nodes are rounded: ``joint_excess``.
    """
    noise = part.strategy.noise
    if part.units:
        raise InternalError("E_INTERNAL", "units are counted one number at a time")
    costs = [
        law(noise).cost(_reach(part, block) ** law(noise).norm, scale)
        for block, scale in zip(part.blocks, part.scales, strict=True)
    ]
    common = math.lcm(*(cost.denominator for cost in costs))
    start = np.array([int(cost * common) for cost in costs], dtype=object)
    factors = [_factors(block) for block in part.blocks]
    tables = []
    for name in dict.fromkeys(name for each in factors for name in each):
        ones = np.ones(part.resolutions[name].size, dtype=object)
        found = [each.get(name) for each in factors]
        norms = [ones if rows is None else _column_norms(rows, noise) for rows in found]
        tables.append(np.array(norms, dtype=object))
    blocks = [[part.resolutions[name] for name in block.attributes] for block in part.blocks]
    return Fraction(int(worst_cell(tables, start)[0]), common) * (1 + joint_excess(blocks))


def _factors(block: Block) -> dict[str, Matrix]:
    """Attribute to integer rows of a block that is a Kronecker product. Raises: InternalError."""
    rows = checked(block.integer_rows)
    if not isinstance(rows, KronRows):
        raise InternalError("E_INTERNAL", "the joint cost is that of Kronecker products")
    return dict(zip(block.attributes, rows.matrices, strict=True))


def _sensitivity(part: Part, block: Block) -> int:
    """The exact L1 (Laplace) or squared L2 (Gaussian) sensitivity of a block to one unit.

    Guarantee: it is computed from the integer rows, on every call.
    """
    noise, c = part.strategy.noise, _reach(part, block)
    rows = checked(block.integer_rows)
    if part.occupied and not part.units:
        raise InternalError("E_INTERNAL", "what has a row at all is no sum over rows")
    if part.units and rows.is_identity:
        return c  # so many different numbers grow by one each
    return int(c ** law(noise).norm * _norm(rows, noise))


def _norm(rows: IntegerRows, noise: Noise) -> int:
    """The exact L1 (Laplace) or squared L2 (Gaussian) norm of the largest column of rows."""
    match rows:
        case KronRows(matrices):
            return math.prod(_column_norm(m, noise) for m in matrices if m is not None)
        case OrbitRows() if law(noise).norm == 2:
            return rows.sensitivity()
    raise InternalError("E_INTERNAL", "rows on orbits are measured under the L2 norm")


def _reach(part: Part, block: Block) -> int:
    """The largest L1 norm of what one privacy unit adds to the cells of a block.

    Guarantee: recomputed from how rows become cells. A row adds non-negative integers of a known
    sum. The distinct privacy units of a cell or union grow by at most one, in those that a row is
    in: as many as share its cell. Whether a cell or union has a row at all changes where its units
    do, by at most one as well.
    """
    resolutions = [part.resolutions[name] for name in block.attributes]
    if part.units:
        most = part.rows_per_unit * math.prod(map(_overlap, resolutions))
        return min(most, math.prod(each.size for each in resolutions))
    return part.rows_per_unit * _row_sum(resolutions)


def _overlap(resolution: Resolution) -> int:
    """The most cells or unions of one attribute that one row is in, from their members."""
    if isinstance(resolution, Cells):
        return 1
    if not isinstance(resolution, Unions) or resolution.members.dtype != np.bool_:
        raise InternalError("E_INTERNAL", "privacy units are counted in cells or unions of cells")
    return max(1, int(resolution.members.sum(axis=0, dtype=np.int64).max()))


def _row_sum(resolutions: Sequence[Resolution]) -> int:
    """The sum of what one row adds to the cells of a block, by the function that splits it."""
    for each in resolutions:
        if isinstance(each, Cells):
            continue
        if not isinstance(each, Nodes) or each.degree not in (1, 2) or each.grid or each.steps < 0:
            raise InternalError("E_INTERNAL", "nodes have degree 1 or 2")
    found = weights_of(resolutions).unit
    if type(found) is not int or not 1 <= found <= MOST_WEIGHT:
        raise InternalError("E_INTERNAL", "a row adds a whole number, of 31 bits at most")
    return found


def _column_norms(rows: NDArray[np.int64] | Structured, noise: str) -> Values:
    """The L1 (Laplace) or squared L2 (Gaussian) norm of every column or more, as Python ints."""
    if isinstance(rows, Structured):
        return np.full(rows.size, _column_norm(rows, noise), dtype=object)
    return np.asarray(law(noise).powers(rows.astype(object)).sum(axis=0))


def _column_norm(rows: NDArray[np.int64] | Structured, noise: str) -> int:
    """The largest L1 (Laplace) or squared L2 (Gaussian) norm of a column, as a Python int."""
    if isinstance(rows, Structured):
        return rows.norm(law(noise).norm)
    magnitude = max(abs(int(rows.max(initial=0))), abs(int(rows.min(initial=0))))
    # A norm that wrapped would be too small, and noise with it: Python integers near the end.
    exact: NDArray[Any] = rows if magnitude**2 * len(rows) < 2**62 else rows.astype(object)
    return int(law(noise).powers(exact).sum(axis=0).max())


def _measure_part(part: Part, plan: Plan, vault: Vault, backend: str) -> Measurement:
    """Measure one part.

    Guarantee: apart from the counts themselves nothing depends on them: neither which functions
    run, nor the types of their arrays, nor the encoding of what is released.
    """
    values = []
    for block, scale in zip(part.blocks, part.scales, strict=True):
        rows = checked(block.integer_rows)
        wide = _is_wide(largest(rows) * _reach(part, block), plan.noise, scale)
        exact = _apply(part, block, rows, vault, wide or backend == "opendp")
        if backend == "opendp":
            noisy = certified(plan.noise, _sensitivity(part, block), scale).release(exact)
        else:
            noisy = _add_noise(exact, plan.noise, scale, wide)
        noisy.flags.writeable = False
        values.append(noisy)
    return Measurement(tuple(values))


def _apply(part: Part, block: Block, rows: IntegerRows, vault: Vault, unbounded: bool) -> Values:
    """The exact rows of a block: int64 modulo 2^64, or exact as Python integers where need be."""
    resolutions = [part.resolutions[name] for name in block.attributes]
    most = MANY_ROWS * (1 if part.units else _row_sum(resolutions))
    multiply = apply_rows_unbounded if unbounded else apply_rows
    # No name is kept for the counts, so that they are freed before the rows are formed.
    if part.occupied:
        return multiply(rows, vault.mark(resolutions), most)
    room = None
    if isinstance(rows, KronRows) and math.prod(rows.sizes) > PIECE and not unbounded:
        room = working_shape(rows)
    asked = (resolutions, part.units) if room is None else (resolutions, part.units, room)
    return multiply(rows, vault.tally(*asked), most)


def _is_wide(most: int, noise: Noise, scale: Fraction) -> bool:
    """Say whether rows of a large table, or noise, could pass int64: from public facts only.

    ``most`` is what one privacy unit adds to a number at most.
    """
    spread = scale if law(noise).norm == 1 else math.isqrt(math.ceil(scale))
    return most * MANY_ROWS >= WRAPS or spread >= WIDE_NOISE


def _add_noise(exact: Values, noise: Noise, scale: Fraction, wide: bool) -> Values:
    """Add noise to exact integers, in place and in pieces: as Python integers, or modulo 2^64."""
    draw = sampler(noise)
    exact = exact.astype(object if wide else np.int64, copy=False)

    def add(starts: Sequence[int]) -> None:
        bits = Bits()
        for start in starts:
            piece = exact[start : start + PIECE]
            drawn = draw(bits, scale, piece.size)
            piece += drawn if wide else wrap_int64(drawn)

    starts = range(0, exact.size, PIECE)
    if len(starts) > 1 and noise in SAMPLERS:  # an installed sampler may be made for one thread
        run_on_cores(add, starts)
    else:
        add(starts)
    return exact
