"""A handle over counts in place of rows, its receipt, and candidates: what its tests share."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Dense, Identity, Prefix
from dpsql.algebra.operator import Operator
from dpsql.pgm.measurements import Candidate
from dpsql.privacy.budget.accounting import Policy, gaussian_cost, laplace_cost
from dpsql.privacy.budget.receipt import Receipt, issue
from dpsql.privacy.doors.look import BinSumHandle, TableHandle, open_handle, open_sums
from dpsql.privacy.doors.privacy_filter import Run
from dpsql.privacy.doors.vaults import Vaults
from dpsql.strategy.noise_law import Noise
from dpsql.workload.workload import Product

Counts = NDArray[np.int64]
POLICY = Policy(Fraction(10**5), Fraction(1, 10**9))
_numbers = itertools.count()


class Cells:
    """A vault that holds counts, and counts how often it is asked."""

    sources = ("cells",)
    data_version = "looks"

    def __init__(self, names: Sequence[str], counts: Counts) -> None:
        self.names = list(names)
        self.counts = counts
        self.asked: list[tuple[str, ...]] = []

    def count(self, attributes: Sequence[str], classes: Sequence[Counts]) -> Counts:
        """Return the marginal on some attributes, cells put together by class."""
        self.asked.append(tuple(attributes))
        others = tuple(i for i, name in enumerate(self.names) if name not in attributes)
        found = np.asarray(self.counts.sum(axis=others), dtype=np.int64)
        for axis, each in enumerate(classes):
            into = (np.arange(each.max() + 1)[:, None] == each).astype(np.int64)
            found = np.moveaxis(np.tensordot(into, found, axes=(1, axis)), 0, axis)
        return found


class World(Vaults):
    """One table of counts, t, behind the door."""

    _salt = b"a salt that is known"

    def __init__(self, domain: Mapping[str, int], counts: Any = 0) -> None:
        self.cells: Any = Cells(list(domain), np.zeros(list(domain.values()), dtype=np.int64))
        self.cells.counts += np.asarray(counts, dtype=np.int64)
        self.domain = domain

    def __getitem__(self, table: str) -> Any:
        return self.cells

    def check_unit(self, table: str, rows: int) -> None:
        """Any number of rows may be those of a unit."""

    def run(
        self, amount: Fraction, noise: Noise = "laplace", c: int = 1, settings: str = "{}"
    ) -> Run:
        """Return the public facts of a run over all attributes."""
        classes = {name: np.arange(size) for name, size in self.domain.items()}
        return Run("t", classes, noise, amount, c, settings)

    def receipt(self, run: Run, paid: Fraction | None = None) -> Receipt:
        """Return a receipt for a run; no ledger is behind it."""
        amount = run.amount if paid is None else paid
        if run.noise == "laplace":
            cost = laplace_cost(POLICY, amount)
        else:
            cost = gaussian_cost(POLICY, amount, Fraction(1))
        version = self.versions([run.table])
        return issue("looks", 1, f"looks-{next(_numbers)}", run.fingerprint, version, cost)

    def opened(
        self, amount: Fraction | int, noise: Noise = "laplace", c: int = 1, settings: str = "{}"
    ) -> TableHandle:
        """Return a handle that was paid for."""
        run = self.run(Fraction(amount), noise, c, settings)
        return open_handle(run, self.receipt(run), self)

    def sums(
        self, values: Sequence[int], amount: Fraction | int, noise: Noise = "laplace", c: int = 1
    ) -> BinSumHandle:
        """Return a handle on the bins of the only attribute that was paid for."""
        run = replace(self.run(Fraction(amount), noise, c), values=tuple(values))
        return open_sums(run, self.receipt(run), self)


def whole(domain: Mapping[str, int], *names: str) -> Candidate:
    """Return a whole marginal."""
    return (Product({name: Identity(domain[name]) for name in names}),)


def cell(domain: Mapping[str, int], **places: int) -> Candidate:
    """Return a single cell of a marginal."""
    return (Product({n: Dense(np.eye(domain[n], dtype=int)[[i]]) for n, i in places.items()}),)


def some_operator(rng: np.random.Generator, size: int, rows: int | None = None) -> Operator:
    """Return a random factor: integers, zeros and ones, prefixes or the identity."""
    kind = rng.integers(4) if rows is None else 0
    if kind == 1:
        return Identity(size)
    if kind == 2:
        return Prefix(size)
    low = -3 if kind == 0 else 0
    shape = (int(rng.integers(1, 4)) if rows is None else rows, size)
    return Dense(rng.integers(low, 4 if kind == 0 else 2, shape))


def some_candidate(rng: np.random.Generator, domain: Mapping[str, int]) -> Candidate:
    """Return a random candidate of one product, or of up to three with one row each."""
    names = [name for name in domain if rng.random() < 0.6]
    if rng.random() < 0.6:
        return (Product({name: some_operator(rng, domain[name]) for name in names}),)
    return tuple(
        Product({n: some_operator(rng, domain[n], 1) for n in domain if rng.random() < 0.6})
        for _ in range(rng.integers(1, 4))
    )


def dense(candidate: Candidate, domain: Mapping[str, int]) -> NDArray[np.int64]:
    """Return all rows of a candidate over all cells of the domain."""
    total: Any = 0
    for product in candidate:
        rows = np.ones((1, 1), dtype=np.int64)
        for name, size in domain.items():
            factor = product.factors.get(name)
            ones = np.ones((1, size), dtype=np.int64)
            rows = np.kron(rows, ones if factor is None else np.asarray(factor.dense()))
        total = total + rows
    return np.asarray(total, dtype=np.int64)
