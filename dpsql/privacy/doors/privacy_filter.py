"""Adaptive runs: the public facts that are paid for, and the filter that looks are charged to."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping
from fractions import Fraction
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog.catalog import Column
from dpsql.errors import BudgetExceeded, InternalError
from dpsql.interrupts import check
from dpsql.privacy.doors.sensitivity import misused
from dpsql.records import dataclass
from dpsql.relation.row_view import RowView
from dpsql.strategy.noise_law import Noise, law
from dpsql.workload.cells import AnyResolution, Cells, Nodes, Steps


@dataclass(frozen=True, slots=True)
class SumView:
    """The view of the rows in a run over sums, where it is more than the classes of one attribute.

    ``levels`` puts every row in one bin, or in none; ``spread``, with a node for every bin, is
    measured in place of the bins. Only the rows that are in a cell of each of ``within`` count.
    """

    levels: Cells | Steps
    spread: Nodes | None = None
    within: tuple[Cells, ...] = ()

    @property
    def resolutions(self) -> tuple[AnyResolution, ...]:
        """The resolutions, for digests."""
        return (self.levels, *(() if self.spread is None else (self.spread,)), *self.within)


@dataclass(frozen=True, slots=True)
class Run:
    """The public facts of one adaptive run, fixed before it is paid.

    ``classes`` gives, per attribute in domain order, the class of every declared cell, or -1 for
    rows to leave out. ``amount`` is the epsilon or rho, by the noise law, of the whole run,
    for a privacy unit of at most ``rows_per_unit`` rows. ``settings`` is the canonical text of
    every public setting of the mechanism. A run over sums has one attribute, and the public
    ``values`` of its classes, in order; or a ``view`` of the rows in place of classes. ``rows``
    are those that count; None for those with declared values in all columns. ``seen`` is a
    column that is not declared, as the run sees it.
    """

    table: str
    classes: Mapping[str, NDArray[np.int64]]
    noise: Noise
    amount: Fraction
    rows_per_unit: int
    settings: str
    values: tuple[int, ...] = ()
    view: SumView | None = None
    rows: RowView | None = None
    seen: Column | None = None

    @property
    def domain(self) -> dict[str, int]:
        """Attribute to number of classes."""
        if self.view is not None:
            return {self.view.levels.columns[0]: self.view.levels.size}
        return {name: int(each.max(initial=-1)) + 1 for name, each in self.classes.items()}

    @property
    def reads(self) -> frozenset[str] | None:
        """The columns that are read, None for all that are declared."""
        if self.rows is None:
            return None
        seen = () if self.view is None else self.view.resolutions
        return self.rows.names.union(self.classes, *(each.columns for each in seen))

    @property
    def fingerprint(self) -> str:
        """A digest of everything the run was paid for."""
        facts = (self.table, self.noise, str(self.amount), self.rows_per_unit, self.settings)
        names, values = list(self.classes), list(map(int, self.values))
        rows = None if self.rows is None else self.rows.facts
        digest = hashlib.sha256(repr(("adaptive", *facts, names, values, rows)).encode())
        if self.seen is not None:
            digest.update(repr(self.seen).encode())
        arrays = list(self.classes.values())
        for seen in () if self.view is None else self.view.resolutions:
            digest.update(repr(seen.facts).encode())
            arrays += seen.arrays()
        for each in arrays:
            cells = np.ascontiguousarray(each, dtype=np.int64)
            digest.update(repr(cells.shape).encode() + cells.tobytes())
        return digest.hexdigest()


class Filter:
    """The privacy filter of one run: its amount left; every look is charged before it is taken.

    Guarantee: the amounts of all admitted looks add up to at most the run's, over all threads of
    the process that paid, however each was chosen. Source: Rogers and others 2016 (pure);
    Feldman and Zrnic 2021, Whitehouse and others 2023 (zCDP, at every order at once).
    """

    __slots__ = ("_left", "_lock", "_pid", "_spent", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self._left = run.amount
        self._spent: list[tuple[str, Fraction]] = []
        # Two looks at once must not both be admitted by what is left for one.
        self._lock = threading.Lock()
        self._pid = os.getpid()

    @property
    def noise(self) -> Noise:
        """The noise law, which fixes the currency of the budget."""
        return self.run.noise

    @property
    def spent(self) -> tuple[tuple[str, Fraction], ...]:
        """The cost of every look, in order."""
        return tuple(self._spent)

    def remaining(self) -> Fraction:
        """Return the epsilon or rho that is left."""
        return self._left

    def spend(self, what: str, amount: Fraction) -> None:
        """Charge one look.

        Raises: BudgetExceeded; InternalError (E_INTERNAL, E_FORK); KeyboardInterrupt, for one that
        a library has swallowed.
        """
        if os.getpid() != self._pid:
            raise InternalError("E_FORK", "a handle cannot be used in a forked process")
        require_amount(amount)
        check()
        with self._lock:
            if amount > self._left:
                kind = "epsilon" if law(self.noise).is_pure else "rho"
                raise BudgetExceeded(amount, self._left, f"{kind} of this run")
            self._left -= amount
            self._spent.append((what, amount))

    def forfeit(self) -> None:
        """Give up what is left."""
        with self._lock:
            self._left = Fraction(0)

    def __repr__(self) -> str:
        return f"<handle on {self.run.table}>"

    def __copy__(self) -> NoReturn:
        raise misused()

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise misused()

    def __reduce__(self) -> NoReturn:
        raise misused()


def require_amount(amount: Fraction) -> None:
    """Raise InternalError unless an amount is a positive fraction."""
    if not isinstance(amount, Fraction) or amount <= 0:
        raise misused()
