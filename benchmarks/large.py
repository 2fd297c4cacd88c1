"""Measure and reconstruct 1e8 cells in one process: seconds and peak memory of every stage.

The strategy is a Kronecker product that resolves all four attributes of 100 cells, so that every
stage handles the whole data vector. Run: ``OMP_NUM_THREADS=1 python -m benchmarks.large [SIZE]``.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np

from dpsql.plan.plan import Part, Plan
from dpsql.privacy.budget.accounting import Policy, laplace_cost
from dpsql.privacy.budget.ledger import Ledger
from dpsql.privacy.doors.measure import measure
from dpsql.privacy.doors.vaults import Vaults
from dpsql.privacy.vault.codes.tally import axis_of_cells, tally_rows
from dpsql.privacy.vault.data_engine import Counts
from dpsql.search.select import select
from dpsql.workload.cells import Cells, Resolution
from dpsql.workload.workload import Product, Workload

ROWS = 1_000_000
TARGET = 2.0


class Drawn(Vaults):
    """One table of random codes in place of a source."""

    _salt = b"a salt that is known"

    backend = "own"
    data_version = "drawn"

    def __init__(self, names: Sequence[str], size: int) -> None:
        rng = np.random.default_rng(0)
        self.codes = {name: rng.integers(0, size, ROWS).astype(np.uint8) for name in names}

    def __getitem__(self, table: str) -> Drawn:  # type: ignore[override]
        return self

    def check_unit(self, table: str, rows: int) -> None:
        """Every row is a unit of its own."""

    def narrowed(self, table: str, view: object) -> Drawn:  # type: ignore[override]
        """All rows count."""
        return self

    def tally(
        self,
        resolutions: Sequence[Resolution],
        units: bool = False,
        room: tuple[int, ...] | None = None,
    ) -> Counts:
        """Count the rows of every combination of cells."""
        cells = [each for each in resolutions if isinstance(each, Cells)]
        axes = [axis_of_cells([self.codes[each.columns[0]]], each) for each in cells]
        shape = room or tuple(each.size for each in cells)
        return tally_rows(axes, shape, np.ones(ROWS, dtype=bool))


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print the wall and CPU seconds of a stage, and the peak memory so far."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{what:<28} {wall:8.2f} s wall {cpu:8.2f} s CPU {peak():7.2f} GiB peak", flush=True)


def peak() -> float:
    """Return the largest resident memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def run(size: int) -> None:
    """Plan, measure, reconstruct and answer over so many cells of each attribute; print it."""
    names = ("a", "b", "c", "d")
    kinds = ("prefix", "prefix", "identity", "identity")
    workload = Workload(dict.fromkeys(names, size), [dict(zip(names, kinds, strict=True))])
    with timed("plan"):
        strategy = select(workload, "laplace", "kron")
        cells = {name: Cells((name,), (np.arange(size),)) for name in names}
        part = Part("t", strategy, dict(cells), Fraction(1), 1)
        plan = Plan((part,), "laplace", Fraction(1), Fraction(0), None)
    vaults = Drawn(names, size)
    policy = Policy(Fraction(100), Fraction(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        ledger = Ledger.open_or_create(path / "t.ledger", path / "anchors", policy, "0" * 64)
        cost = laplace_cost(policy, Fraction(1))
        receipt = ledger.debit(cost, plan.fingerprint, vaults.versions(["t"]))
        with timed(f"measure {size**4:.3g} cells"):
            (measured,) = measure(plan, receipt, vaults)
        ledger.close()
    with timed(f"reconstruct {measured.values[0].size:.3g} rows"):
        found = part.estimate(measured.values)
    with timed("answer a two-way marginal"):
        ranges = workload.products[0].factors
        answer = found.answer(Product({"a": ranges["a"], "b": ranges["b"]}))
    with timed("forecast it"):
        error = found.forecast.variance(Product({"a": ranges["a"], "b": ranges["b"]})) ** 0.5
    exact = vaults.tally([cells["a"], cells["b"]]).cumsum(axis=0).cumsum(axis=1).ravel()
    ratio = float(np.sqrt(np.mean((answer - exact) ** 2 / error**2)))
    print(f"measured over forecast error {ratio:.3f}")
    print(f"peak {peak():.2f} GiB, to reach {TARGET} GiB")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
