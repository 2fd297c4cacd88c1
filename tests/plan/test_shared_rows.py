"""Parts that measured the same rows are estimated together: against dense least squares."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense
from dpsql.answer.codec import Release, decode, encode, unpacked, zipped
from dpsql.plan import shared_rows
from dpsql.plan.plan import Part, Plan
from dpsql.strategy.product import assemble
from dpsql.strategy.queries import QueriesStrategy
from dpsql.strategy.query_block import QueryBlock
from dpsql.workload.cells import Cells
from dpsql.workload.workload import Product
from tests.support.effort import effort

Array = np.ndarray[Any, Any]
SIZES = {"a": 4, "b": 3, "c": 2}


def some_classes(rng: np.random.Generator, n: int) -> Array:
    """Classes of the cells of a column, in order of appearance; now and then some are in none."""
    count = int(rng.integers(1, n + 1))
    labels = np.concatenate([np.arange(count), rng.integers(0, count, n - count)])
    labels = rng.permutation(labels)
    if rng.random() < 0.3 and count > 1:
        labels[labels == count - 1] = -1
    kept = labels >= 0
    _, labels[kept] = np.unique(labels[kept], return_inverse=True)
    return labels


def some_part(rng: np.random.Generator) -> Part:
    """A part on some of the columns, each by itself or two together, of one of three kinds."""
    names = [name for name in SIZES if rng.random() < 0.8] or ["a"]
    resolutions = {}
    if len(names) > 1 and rng.random() < 0.3:
        pair = names[:2]
        shape = [SIZES[name] for name in pair]
        labels = some_classes(rng, math.prod(shape))
        if (labels >= 0).all():
            axes = tuple(np.arange(n) for n in shape)
            resolutions["both"] = Cells(tuple(pair), axes, labels.reshape(shape))
            names = names[2:]
    for name in names:
        resolutions[name] = Cells((name,), (some_classes(rng, SIZES[name]),))
    domain = {name: each.size for name, each in resolutions.items()}
    sets = [tuple(domain)]
    if not any(each.leaves_out for each in resolutions.values()) and rng.random() < 0.6:
        sets = [(name,) for name in domain]
    kind = int(rng.integers(3))
    if kind == 2 and len(sets) == 1:
        rows = tuple(rng.integers(-1, 3, (2, n)).astype(np.int64) for n in domain.values())
        blocks = (QueryBlock(tuple(domain), tuple(domain.values()), rows, 1),)
        strategy: Any = QueriesStrategy(domain, blocks, "gaussian", "few queries")
    else:
        factors = {n: None if kind else np.eye(size) + 1 for n, size in domain.items()}
        strategy = assemble(domain, factors, dict.fromkeys(sets, 1.0), "gaussian", "some")
    amount = Fraction(int(rng.integers(1, 20)), 20)
    return Part("t", strategy, resolutions, amount, 1)


def by_cell(part: Part, name: str) -> Array:
    """The rows of an attribute's cells over all cells of the table, as 0 and 1."""
    cells = part.resolutions[name]
    assert isinstance(cells, Cells)
    grid = np.meshgrid(*(np.arange(n) for n in SIZES.values()), indexing="ij")
    at = dict(zip(SIZES, grid, strict=True))
    if cells.labels is None:
        labels = cells.classes[0][at[cells.columns[0]]]
    else:
        labels = cells.labels[tuple(at[column] for column in cells.columns)]
    return np.asarray(np.arange(cells.size)[:, np.newaxis] == labels.ravel(), dtype=float)


def lifted(part: Part, factors: Sequence[tuple[str, Array]]) -> Array:
    """The rows of a product over all cells of the table."""
    count = math.prod(SIZES.values())
    rows = [matrix @ by_cell(part, name) for name, matrix in factors]

    def both(left: Array, right: Array) -> Array:
        return (left[:, np.newaxis] * right).reshape(-1, count)

    return reduce(both, rows, np.ones((1, count)))


def measured(part: Part) -> tuple[Array, Array]:
    """Rows that a part measures of all cells, and the variance of the noise of each number."""
    rows, noise = [], []
    for block, variance in zip(part.blocks, part.forecast.noise, strict=True):
        pairs = block.factors.items()
        dense = [(n, np.eye(by_cell(part, n).shape[0]) if m is None else m) for n, m in pairs]
        rows.append(lifted(part, dense))
        noise.append(np.full(len(rows[-1]), variance))
    return np.concatenate(rows), np.concatenate(noise)


def some_product(rng: np.random.Generator, part: Part) -> tuple[Product, Array]:
    """A product that a part answers, and its rows over all cells of the table."""
    while True:
        names = [
            name for name, each in part.resolutions.items() if each.leaves_out or rng.random() < 0.6
        ]
        factors = {n: Dense(rng.integers(-1, 3, (2, part.strategy.domain[n]))) for n in names}
        if part.strategy.method != "some":
            (block,) = part.blocks
            factors = {name: Dense(matrix) for name, matrix in block.factors.items()}
        product = Product(factors)
        if part.forecast.supports(product):
            return product, lifted(part, [(n, f.dense()) for n, f in factors.items()])


@pytest.mark.parametrize("seed", range(effort(40)))
def test_what_several_parts_know_is_estimated_once(seed: int) -> None:
    """Against dense least squares over all cells, which of two parts of tables is the same."""
    rng = np.random.default_rng([seed, 4421])
    parts = tuple(some_part(rng) for _ in range(int(rng.integers(2, 5))))
    plan = Plan(parts, "gaussian", Fraction(1), Fraction(1, 10**9), Fraction(4))
    known = [measured(part) for part in parts]
    A, noise = (np.concatenate(each) for each in zip(*known, strict=True))
    whole = np.linalg.pinv(A.T @ (A / noise[:, np.newaxis]), rcond=1e-10)
    x = rng.integers(0, 50, A.shape[1])
    values = [rows @ x + rng.normal(size=len(rows)) * np.sqrt(v) for rows, v in known]
    sizes = [[block.rows for block in part.blocks] for part in parts]
    split = [np.split(v, np.cumsum(s)[:-1]) for v, s in zip(values, sizes, strict=True)]
    estimates, forecasts = plan.estimates(split), plan.forecasts
    fitted = whole @ (A.T @ (np.concatenate(values) / noise))
    are_tables = all(part.strategy.method == "some" and len(part.blocks) == 1 for part in parts)
    is_single = all("both" not in part.resolutions for part in parts)
    for place, part in enumerate(parts):
        for _ in range(3):
            product, rows = some_product(rng, part)
            least = np.einsum("ij,jk,ik->i", rows, whole, rows)
            found, alone = forecasts[place].variance(product), part.forecast.variance(product)
            assert (found <= alone * (1 + 1e-9) + 1e-9).all()
            assert (found >= least * (1 - 1e-6) - 1e-6).all()
            assert forecasts[place].total(product) == pytest.approx(found.sum(), abs=1e-6)
            answer = estimates[place].answer(product)
            if len(parts) == 2 and are_tables and is_single:
                np.testing.assert_allclose(found, least, rtol=1e-6, atol=1e-6)
                np.testing.assert_allclose(answer, rows @ fitted, rtol=1e-6, atol=1e-6)
            pairs = {n: Dense(f.dense()[[0, 1, 1]]) for n, f in product.factors.items()}
            paired = forecasts[place].paired(Product(pairs), Product(pairs))
            at = [r * (product.rows - 1) for r in ([0, 1, 1] if pairs else [0])]
            np.testing.assert_allclose(paired, found[at], rtol=1e-6, atol=1e-6)
    _check_covariances(plan, [some_product(rng, part)[0] for part in parts], split)


def _check_covariances(plan: Plan, asked: Sequence[Product], split: Any) -> None:
    """Forecasts are those of the linear map from all that is measured to the answers."""
    start = plan.estimates(split)
    before = [each.answer(product) for each, product in zip(start, asked, strict=True)]
    moves: list[list[Array]] = [[] for _ in asked]
    for at, part in enumerate(plan.parts):
        for b, variance in enumerate(part.forecast.noise):
            for k in range(len(split[at][b])):
                moved = [[each.copy() for each in values] for values in split]
                moved[at][b][k] += variance**0.5
                found = plan.estimates(moved)
                for place, product in enumerate(asked):
                    moves[place].append(found[place].answer(product) - before[place])
    sides = [np.array(each).T for each in moves]
    for i, one in enumerate(sides):
        forecast = plan.forecasts[i].variance(asked[i])
        np.testing.assert_allclose(np.square(one).sum(axis=1), forecast, rtol=1e-5, atol=1e-5)
        for j, two in enumerate(sides[:i]):
            beside = [f.beside(p) for f, p in ((plan.forecasts[k], asked[k]) for k in (i, j))]
            if all(each.shape[1] for each in beside):
                np.testing.assert_allclose(one @ two.T, -beside[0] @ beside[1].T, atol=1e-4)
            else:
                np.testing.assert_allclose(one @ two.T, 0, atol=1e-5)


@pytest.mark.parametrize("seed", range(effort(20)))
def test_totals_of_all_parts_are_the_same(seed: int) -> None:
    """Also where they have nothing else in common, as counts by sex and by race."""
    rng = np.random.default_rng([seed, 4422])
    parts: list[Part] = []
    while len(parts) < 3:
        part = some_part(rng)
        if part.forecast.supports(Product({})) and not any(
            each.leaves_out for each in part.resolutions.values()
        ):
            parts.append(part)
    plan = Plan(tuple(parts), "gaussian", Fraction(1), Fraction(1, 10**9), Fraction(4))
    values = [[rng.normal(size=block.rows) * 100 for block in part.blocks] for part in parts]
    totals = [float(each.answer(Product({}))[0]) for each in plan.estimates(values)]
    assert totals == pytest.approx(totals[:1] * 3)
    apart = [
        float(p.estimate(v).answer(Product({}))[0]) for p, v in zip(parts, values, strict=True)
    ]
    assert max(apart) - min(apart) > 1e-3


@pytest.mark.parametrize("seed", range(effort(60)))
def test_what_is_left_apart_is_told(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are those of all that parts have in common, or parts are named."""
    rng = np.random.default_rng([seed, 4424])
    parts = tuple(some_part(rng) for _ in range(int(rng.integers(2, 4))))
    values = [[rng.normal(size=block.rows) * 100 for block in part.blocks] for part in parts]
    asked = [some_product(rng, part)[0] for part in parts]

    def answers(**limits: int) -> tuple[Array, frozenset[int]]:
        for name, most in limits.items():
            monkeypatch.setattr(shared_rows, name, most)
        plan = Plan(parts, "gaussian", Fraction(1), Fraction(1, 10**9), Fraction(4))
        pairs = zip(plan.estimates(values), asked, strict=True)
        return np.concatenate([each.answer(product) for each, product in pairs]), plan.unagreed

    whole, apart = answers()
    assert not apart
    few = {"MOST_AGREED": int(rng.integers(0, 6))}
    some, apart = answers(**(few if rng.random() < 0.7 else {"MOST_CELLS": 9}))
    assert apart or np.allclose(some, whole)


def test_a_stored_release_is_read_as_it_was_published() -> None:
    """Releases of before, of which each part is by itself, as well."""
    rng = np.random.default_rng(4423)
    parts = tuple(some_part(rng) for _ in range(3))
    values = tuple(
        tuple(rng.integers(0, 99, block.rows) for block in part.blocks) for part in parts
    )
    for is_joined in (True, False):
        plan = Plan(
            parts, "gaussian", Fraction(1), Fraction(1, 10**9), Fraction(4), joined=is_joined
        )
        body = encode(Release(plan, values, "ledger", 1, "head"))
        found = decode(body)
        assert found.plan.joined == is_joined
        asked = [some_product(rng, part)[0] for part in parts]
        pairs = zip(parts, values, asked, strict=True)
        own = np.concatenate([part.estimate(v).answer(product) for part, v, product in pairs])
        for one in (plan, found.plan):
            told = zip(one.estimates(found.values), asked, strict=True)
            answers = np.concatenate([each.answer(product) for each, product in told])
            assert np.allclose(own, answers) == (not is_joined)
    facts, arrays = unpacked(body)
    del facts["joined"]
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    assert not decode(zipped(arrays)).plan.joined
