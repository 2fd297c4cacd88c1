"""A plan: what is measured on which table, with how much of the budget. Frozen and hashable."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.integer_rows import KronRows, largest_entry
from dpsql.records import cached_property, dataclass
from dpsql.relation.row_view import RowView, view_of
from dpsql.strategy.base import Block, Estimate, Forecast, Strategy
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.cells import Cells, Resolution, unit_reach
from dpsql.workload.weights import block_unit, joint_excess

if TYPE_CHECKING:
    from dpsql.plan.target import Target
    from dpsql.strategy.joined import AgreeingStrategies

MANY_ROWS, WRAPS = 2**31, 2**62
"""Rows that are told apart, and integers that are not wide, as the membrane has them."""

SHARE_GRID = 2**20
"""Grid of the shares of the tables, so that amounts are exact fractions that sum to the whole."""

NO_ERROR = 1e-300
"""Error in place of zero, so that its part has a share."""


@dataclass(frozen=True)
class PartFacts:
    """The public facts by which a part of a release is looked for: what it was measured about.

    ``columns`` have cells or nodes, ``narrowing`` are those of which some values are in no cell.
    """

    table: str
    noise: Noise
    units: bool
    occupied: bool
    columns: frozenset[str]
    narrowing: frozenset[str]
    view: RowView | None

    def is_about(self, target: Target) -> bool:
        """True if it counts the same things of the same table as a target."""
        counted = self.units, self.occupied
        same = self.table == target.table.name.casefold()
        return same and counted == (target.units, target.occupied)

    def admits(self, target: Target) -> bool:
        """True if it tells apart what a target tells apart, of all of its rows."""
        if not self.is_about(target):
            return False
        if not (target.columns <= self.columns and self.narrowing <= target.mentioned):
            return False
        return self.view == target.view or self._is_wider(target)

    def _is_wider(self, target: Target) -> bool:
        """True if the view shows all rows of a target's, and no other values of the same columns.

        Of a unit with too many rows it may have kept others: what is read off it says so.
        """
        columns = None if self.view is None else self.view.columns
        if view_of(target.table, columns) != target.seen:
            return False
        return self.view is None or self.view.holds(target.view or RowView(()))


@dataclass(frozen=True)
class Part:
    """The measurement of one table.

    ``resolutions`` says how rows become the cells of every measured attribute of the strategy's
    domain. With ``units``, cells and unions count privacy units with a row in them, not rows; with
    ``occupied`` besides, they are 1 where any unit has, else 0.
    ``amount`` is the epsilon (Laplace) or rho (Gaussian) this part costs for a
    privacy unit of at most ``rows_per_unit`` rows. ``lower`` is a certified lower bound on the
    error of every strategy at unit cost, 0 where none is known; it is no part of the release.
    ``view`` are the rows that count; None for those with declared values in all columns.
    """

    table: str
    strategy: Strategy
    resolutions: Mapping[str, Resolution]
    amount: Fraction
    rows_per_unit: int
    lower: float = 0.0
    units: bool = False
    view: RowView | None = None
    occupied: bool = False

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The measured blocks, each with its own noise."""
        return self.strategy.blocks

    @property
    def reads(self) -> frozenset[str] | None:
        """The columns that are read, None for all that are declared."""
        if self.view is None:
            return None
        used = (name for each in self.resolutions.values() for name in each.columns)
        return self.view.names.union(used)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns that have cells or nodes."""
        return frozenset(name for each in self.resolutions.values() for name in each.columns)

    @cached_property
    def narrowing(self) -> frozenset[str]:
        """The columns of which some values are in no cell."""
        found = [each.columns for each in self.resolutions.values() if each.leaves_out]
        return frozenset(name for columns in found for name in columns)

    @cached_property
    def kind(self) -> PartFacts:
        """The public facts by which it is looked for."""
        facts = self.table, self.strategy.noise, self.units, self.occupied
        return PartFacts(*facts, self.columns, self.narrowing, self.view)

    @cached_property
    def homes(self) -> Mapping[str, Sequence[str]]:
        """By column, the attributes that are made of its cells."""
        found: dict[str, list[str]] = {}
        for name, each in self.resolutions.items():
            for column in each.columns if isinstance(each, Cells) else ():
                found.setdefault(column, []).append(name)
        return found

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        """The noise parameter of every block: Laplace scale, or Gaussian sigma squared."""
        return self.strategy.scales(self.amount / (1 + self.excess), 1, self.multipliers)

    @cached_property
    def multipliers(self) -> tuple[int, ...]:
        """Per block how much one privacy unit moves its rows, times what a single cell does."""
        pairs = zip(self.blocks, self.block_units, strict=True)
        return tuple(self._multiplier(block, unit) for block, unit in pairs)

    @cached_property
    def excess(self) -> Fraction:
        """The share by which rounding may add to the cost of blocks that are paid for together."""
        if self.units or not self.strategy.is_joint:
            return Fraction(0)
        blocks = self.blocks
        return joint_excess([[self.resolutions[n] for n in each.attributes] for each in blocks])

    @cached_property
    def block_units(self) -> tuple[int, ...]:
        """Per block what one row adds to its cells in total: measured numbers are in 1/unit."""
        return tuple(
            block_unit([self.resolutions[name] for name in block.attributes])
            for block in self.blocks
        )

    @cached_property
    def is_wide(self) -> bool:
        """True if numbers may be measured that take more than 64 bits: a forecast of memory."""
        most = [
            self.rows_per_unit * unit * _largest(block)
            for block, unit in zip(self.blocks, self.block_units, strict=True)
        ]
        return max(most, default=0) * MANY_ROWS >= WRAPS

    def _multiplier(self, block: Block, unit: int) -> int:
        """Sensitivity of a block's rows to one privacy unit, over that to a single cell.

        Numbers of units grow by one each: where the rows are the cells, squares add up.
        """
        power = law(self.strategy.noise).norm
        if not self.units:
            return int((self.rows_per_unit * unit) ** power)
        found = [self.resolutions[name] for name in block.attributes]
        cells = unit_reach(found, self.rows_per_unit)
        return cells if block.integer_rows.is_identity else int(cells**power)

    @cached_property
    def forecast(self) -> Forecast:
        """The exact expected error of every answer of this part, in rows or privacy units."""
        variances = self.strategy.noise_variances(self.scales)
        return self.strategy.forecast(
            [v / unit**2 for v, unit in zip(variances, self.block_units, strict=True)],
            all(unit == 1 for unit in self.block_units),
        )

    def estimate(self, values: Sequence[NDArray[Any]]) -> Estimate:
        """Estimate the part from its noisy integers, one flat array per block.

        Cells are in rows, or privacy units: integers are divided by what one row adds to the block.
        """
        pairs = zip(values, self.block_units, strict=True)
        rows = [v if unit == 1 else v / unit for v, unit in pairs]
        return self.strategy.solve(rows, self.forecast)

    def fingerprint(self) -> str:
        """A digest of everything that is measured."""
        digest = hashlib.sha256()
        facts = (self.table, self.strategy.fingerprint(), self.amount, self.rows_per_unit)
        scales = [str(scale) for scale in self.scales]
        view = None if self.view is None else self.view.facts
        digest.update(repr((*map(str, facts), scales, self.units, view)).encode())
        digest.update(b"occupied" if self.occupied else b"")
        for name in sorted(self.resolutions):
            facts_of, arrays = self.resolutions[name].facts, self.resolutions[name].arrays()
            shapes = [each.shape for each in arrays]
            digest.update(repr((name, facts_of, shapes)).encode())
            for each in arrays:
                digest.update(np.ascontiguousarray(each, dtype=np.int64).tobytes())
        return digest.hexdigest()


def _largest(block: Block) -> int:
    """The largest entry of the rows of a block; on orbits that of their longest."""
    rows = block.integer_rows
    if isinstance(rows, KronRows):
        return math.prod(largest_entry(m) for m in rows.matrices if m is not None)
    return math.isqrt(rows.sensitivity()) + 1


def joined_of(parts: Sequence[Part]) -> AgreeingStrategies | None:
    """Return parts with what they have in common, where several are of one table."""
    if len({part.table for part in parts}) == len(parts):
        return None
    from dpsql.plan.shared_rows import joined  # most plans measure a table once

    return joined(parts)


@dataclass(frozen=True)
class Plan:
    """The parts of one request; ``epsilon`` and ``delta`` are what the request asked for.

    ``rho`` is the zero-concentrated budget of a Gaussian plan, ``None`` under Laplace noise. Where
    it is ``joined`` one least squares is over all parts that measured the same rows, else one over
    each part.
    """

    parts: tuple[Part, ...]
    noise: Noise
    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None
    joined: bool = True

    @cached_property
    def _joined(self) -> AgreeingStrategies | None:
        return joined_of(self.parts) if self.joined else None

    @property
    def forecasts(self) -> tuple[Forecast, ...]:
        """The exact expected errors of every answer of each part, beside the others."""
        if self._joined is None:
            return tuple(part.forecast for part in self.parts)
        return self._joined.forecasts

    @cached_property
    def unagreed(self) -> frozenset[int]:
        """The places of parts whose answers may disagree with those of others of the same rows."""
        if not self.joined or len({part.table for part in self.parts}) == len(self.parts):
            return frozenset()
        from dpsql.plan.shared_rows import unagreed  # most plans measure a table once

        return unagreed(self.parts)

    def estimates(self, values: Sequence[Sequence[NDArray[Any]]]) -> tuple[Estimate, ...]:
        """Estimates from the noisy integers of all parts: of each, one flat array per block."""
        pairs = zip(self.parts, values, strict=True)
        alone = [part.estimate(own) for part, own in pairs]
        return tuple(alone if self._joined is None else self._joined.estimates(alone))

    @property
    def views(self) -> dict[str, RowView]:
        """By table, the rows that counted; those of all columns are not named here."""
        return {part.table: part.view or RowView(()) for part in self.parts}

    @cached_property
    def fingerprint(self) -> str:
        """A digest that binds a receipt to this plan."""
        facts = [self.noise, str(self.epsilon), str(self.delta), str(self.rho)]
        facts += [part.fingerprint() for part in self.parts]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    @property
    def reads(self) -> dict[str, frozenset[str] | None]:
        """The columns that are read of each table, None for all that are declared."""
        found: dict[str, frozenset[str] | None] = {}
        for part in self.parts:
            known, more = found.get(part.table, frozenset()), part.reads
            found[part.table] = None if known is None or more is None else known | more
        return found


def split_amount(
    amount: Fraction, errors: Sequence[float], noise: Noise, least: Sequence[float] = ()
) -> list[Fraction]:
    """Split a budget over parts so that the total expected squared error is least.

    ``errors[g]`` is the squared error of part g at a full unit of budget. The optimal shares are
    proportional to the cube root (Laplace) or the square root (Gaussian, in rho) of the errors;
    they are rounded to a grid and sum exactly to ``amount``. ``least`` are fractions that parts
    have at least; where these are more than there is, each has as much less. Source: HDMM,
    section 6.3 (OPT_+).

    >>> split_amount(Fraction(1), [1.0, 8.0], "laplace")
    [Fraction(349525, 1048576), Fraction(699051, 1048576)]
    >>> [float(each) for each in split_amount(Fraction(1), [1.0, 1e9], "laplace", [0.25, 0.5])]
    [0.25, 0.75]
    """
    if len(errors) == 1:
        return [amount]
    roots = [max(error, NO_ERROR) ** law(noise).share_power for error in errors]
    raised = _raised(roots, least or [0.0] * len(roots))
    grid = [max(1, int(SHARE_GRID * fraction)) for fraction in raised[:-1]]
    if (missing := sum(grid) + 1 - SHARE_GRID) > 0:  # the last part has one unit at least
        grid[grid.index(max(grid))] -= missing
    shares = [Fraction(units, SHARE_GRID) for units in (*grid, SHARE_GRID - sum(grid))]
    return [amount * share for share in shares]


def shared_error(errors: Sequence[float], least: Sequence[float], noise: Noise) -> float:
    """Return the error of parts that have these with a unit budget each, with the best shares.

    It is infinite where the ``least`` that parts have are more than there is.

    >>> round(shared_error([1.0, 8.0], [0.0, 0.0], "laplace"), 9)
    27.0
    """
    if sum(least) > 1:
        return math.inf
    power = law(noise).share_power
    parts = _raised([max(error, NO_ERROR) ** power for error in errors], least)
    pairs = zip(errors, parts, strict=True)
    return float(sum(error * part ** (1 - 1 / power) for error, part in pairs))


def _raised(roots: Sequence[float], least: Sequence[float]) -> list[float]:
    """Return fractions in proportion to ``roots``, but for those that would be below the least."""
    if sum(least) >= 1:
        return [each / sum(least) for each in least]
    fixed: dict[int, float] = {}
    while True:
        free = [g for g in range(len(roots)) if g not in fixed]
        if not free:  # the least come to one but for rounding
            return [each / sum(least) for each in least]
        unit = (1 - sum(fixed.values())) / sum(roots[g] for g in free)
        low = {g: least[g] for g in free if roots[g] * unit < least[g]}
        if not low:
            return [fixed.get(g, root * unit) for g, root in enumerate(roots)]
        fixed.update(low)
