"""The membrane's door with counts in place of rows: what an audit knocks at."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.plan.plan import Part, Plan
from dpsql.privacy.budget.accounting import Policy, gaussian_cost, laplace_cost
from dpsql.privacy.budget.receipt import Receipt, issue
from dpsql.privacy.doors.measure import measure
from dpsql.privacy.doors.vaults import Vaults
from dpsql.privacy.vault.data_engine import Room
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.product import ProductStrategy
from dpsql.strategy.product_block import ProductBlock
from dpsql.workload.cells import Resolution, cells_of

Counts = NDArray[np.int64]
POLICY = Policy(Fraction(10**5), Fraction(1, 10**9))
_numbers = itertools.count()


class Cells:
    """A vault that holds counts; classes are taken to be the identity."""

    sources = ("cells",)

    data_version = "audit"

    def __init__(self, names: Sequence[str], counts: Counts) -> None:
        self.names = list(names)
        self.counts = counts

    def check(self) -> None:
        """Do nothing: there is no source."""

    def load(self) -> None:
        """Do nothing: there are no rows."""

    def close(self) -> None:
        """Do nothing: there are no rows."""

    def count(self, attributes: Sequence[str], classes: Sequence[Counts]) -> Counts:
        """Return the marginal on some attributes."""
        return self.tally([cells_of(a, c) for a, c in zip(attributes, classes, strict=True)])

    def tally(
        self, resolutions: Sequence[Resolution], units: bool = False, room: Room = None
    ) -> Counts:
        """Return the marginal on some attributes, in the order of the domain."""
        attributes = [each.columns[0] for each in resolutions]
        others = tuple(i for i, name in enumerate(self.names) if name not in attributes)
        return np.asarray(self.counts.sum(axis=others), dtype=np.int64)


class Door(Vaults):
    """One table of counts behind the door, and the plan that may be measured on it."""

    _salt = b"a salt that is known"

    def __init__(self, plan: Plan, counts: Counts) -> None:
        self.plan = plan
        self.cells = Cells(list(plan.parts[0].resolutions), counts)

    def check_unit(self, table: str, rows: int) -> None:
        """Any number of rows may be those of a unit."""

    def __getitem__(self, table: str) -> Any:
        return self.cells

    def receipt(self) -> Receipt:
        """Return a receipt for the plan; audits of noise need no ledger behind it."""
        plan = self.plan
        if plan.rho is None:
            cost = laplace_cost(POLICY, plan.epsilon)
        else:
            cost = gaussian_cost(POLICY, plan.rho, plan.epsilon)
        version = self.versions(part.table for part in plan.parts)
        return issue("audit", 1, f"audit-{next(_numbers)}", plan.fingerprint, version, cost)

    def measured(self, receipt: Receipt | None = None) -> NDArray[Any]:
        """Return all noisy values of one measurement, flat."""
        (found,) = measure(self.plan, receipt or self.receipt(), self)
        return np.concatenate([np.ravel(value) for value in found.values])


def plan_for(noise: Noise, factors: dict[str, Counts | int], amount: Fraction, c: int = 1) -> Plan:
    """Return a plan of one block over all attributes; a number stands for an identity factor."""
    sizes = {n: f if isinstance(f, int) else f.shape[1] for n, f in factors.items()}
    full = {n: None if isinstance(f, int) else f for n, f in factors.items()}
    block = ProductBlock(tuple(factors), frozenset(), Fraction(1))
    strategy = ProductStrategy(sizes, full, {}, (block,), noise, "audit")
    resolutions = {name: cells_of(name, np.arange(size)) for name, size in sizes.items()}
    part = Part("t", strategy, resolutions, amount, c)
    rho = amount if noise == "gaussian" else None
    return Plan((part,), noise, amount if rho is None else Fraction(1), Fraction(1, 10**9), rho)


def empty(plan: Plan) -> Door:
    """Return the plan's door on a table without rows."""
    shape = [each.size for each in plan.parts[0].resolutions.values()]
    return Door(plan, np.zeros(shape, dtype=np.int64))


def with_unit(plan: Plan, cell: tuple[int, ...], rows: int = 1) -> Door:
    """Return the plan's door on a table of ``rows`` rows in one cell."""
    door = empty(plan)
    door.cells.counts[cell] = rows
    return door
