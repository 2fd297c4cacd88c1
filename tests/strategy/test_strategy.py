"""Strategies: exact sensitivities, scales, quantisation."""

from __future__ import annotations

from fractions import Fraction
from itertools import product as cartesian

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.algebra.operator import Integers
from dpsql.strategy.base import round_up
from dpsql.strategy.noise_law import Noise
from dpsql.strategy.product import ProductStrategy, assemble, shares
from dpsql.strategy.product_block import ProductBlock, residual_rows
from dpsql.strategy.quantise import column_norm, level_l2, quantise


def example(noise: Noise) -> ProductStrategy:
    rng = np.random.default_rng(5)
    full: dict[str, Integers | None] = {
        "a": rng.integers(-900, 900, (4, 3)),
        "b": None,
        "c": rng.integers(0, 1000, (3, 2)),
    }
    blocks = (
        ProductBlock(("a", "c"), frozenset(), Fraction(1, 2)),
        ProductBlock(("a", "b"), frozenset({"b"}), Fraction(1, 3)),
        ProductBlock((), frozenset(), Fraction(1, 6)),
    )
    return ProductStrategy({"a": 3, "b": 4, "c": 2}, full, {"b": None}, blocks, noise, "test")


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_sensitivity_by_brute_force(noise: Noise) -> None:
    """Every column of every block, in Python integers."""
    strategy = example(noise)
    for block in strategy.blocks:
        matrices = [
            np.eye(strategy.domain[a], dtype=np.int64) if m is None else m
            for a, m in block.factors.items()
        ]
        worst = 0
        for cells in cartesian(*(range(m.shape[1]) for m in matrices)):
            column = [1]
            for m, cell in zip(matrices, cells, strict=True):
                column = [x * int(y) for x in column for y in m[:, cell]]
            norm = sum(abs(x) if noise == "laplace" else x * x for x in column)
            worst = max(worst, norm)
        assert strategy.sensitivity(block) == worst
        assert block.rows == int(np.prod([len(m) for m in matrices]))


@pytest.mark.parametrize("c", [1, 2, 5])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_scales_never_overspend(noise: Noise, c: int) -> None:
    strategy, amount = example(noise), Fraction(1, 3)
    scales = strategy.scales(amount, c)
    cost = Fraction(0)
    for block, scale in zip(strategy.blocks, scales, strict=True):
        delta = strategy.sensitivity(block)
        cost += c * delta / scale if noise == "laplace" else c * c * delta / (2 * scale)
        assert scale.denominator & (scale.denominator - 1) == 0
    assert amount * (1 - Fraction(1, 10**8)) <= cost <= amount


@given(st.fractions(min_value=Fraction(1, 10**12), max_value=10**12).filter(lambda f: f > 0))
def test_round_up(value: Fraction) -> None:
    rounded = round_up(value)
    assert value <= rounded <= value * (1 + Fraction(1, 1 << 28))


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20))
def test_shares_sum_to_one(weights: list[float]) -> None:
    parts = shares(weights)
    assert sum(parts) == 1
    for weight, part in zip(weights, parts, strict=True):
        assert (part > 0) == (weight > 1e-6 * max(weights))


def test_quantise_keeps_the_rank() -> None:
    A = np.array([[1.0, 1e-4], [0.0, 1e-4]])
    rows = quantise(A, 10, "laplace")
    assert rows is not None
    assert np.linalg.matrix_rank(rows) == 2
    assert quantise(np.eye(3), 10, "laplace") is None
    explicit = quantise(np.array([[1.0, 0.0], [1.0, 2.0]]), 10, "laplace")
    assert explicit is not None
    assert explicit.tolist() == [[1, 0], [1, 2]]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_rounding_keeps_the_norms(noise: Noise) -> None:
    """What is paid for is the largest column norm; rounding must not raise it noticeably."""
    rng = np.random.default_rng(4)
    A = rng.random((30, 20)) * (rng.random((30, 20)) < 0.5) + np.eye(30, 20)
    A /= A.sum(axis=0) if noise == "laplace" else np.sqrt((A**2).sum(axis=0))
    rows = quantise(A, 7, noise)
    assert rows is not None
    norm, exact = column_norm(rows, noise), 128 if noise == "laplace" else 128**2
    assert norm == exact if noise == "laplace" else abs(norm / exact - 1) < 1e-3
    assert np.abs(rows / 128 - A).max() < 8 / 128
    near = np.abs(np.square(level_l2(np.rint(128 * A).astype(int), 128 * A)).sum(axis=0))
    assert noise == "laplace" or np.ptp(near) < 20


def test_exact_beyond_64_bits() -> None:
    rows = np.array([[1 << 40], [1 << 40]])
    assert column_norm(rows, "gaussian") == 2 << 80


def test_blocks_show_their_factors() -> None:
    strategy = example("gaussian")
    factors = strategy.blocks[1].factors
    assert factors["a"] is strategy.full["a"]
    assert factors["b"] is not None
    assert factors["b"].tolist() == residual_rows(4).tolist()
    assert strategy.blocks[2].factors == {}
    assert strategy.fingerprint() == example("gaussian").fingerprint()
    assert strategy.fingerprint() != example("laplace").fingerprint()


def test_invalid() -> None:
    block = ProductBlock(("a",), frozenset(), Fraction(1, 2))
    with pytest.raises(ValueError, match="sum to 1"):
        ProductStrategy({"a": 2}, {"a": None}, {}, (block,), "laplace", "test")
    whole = ProductBlock(("b", "a"), frozenset(), Fraction(1))
    with pytest.raises(ValueError, match="domain order"):
        ProductStrategy({"a": 2, "b": 2}, {"a": None, "b": None}, {}, (whole,), "laplace", "test")
    with pytest.raises(ValueError, match="positive"):
        example("laplace").scales(Fraction(0))


def test_assemble_drops_negligible_blocks() -> None:
    theta = np.array([[1.0, 0.0, 2.0]])
    A = np.concatenate([np.eye(3), theta]) / (1 + theta[0])
    strategy = assemble(
        {"a": 2, "b": 3}, {"b": A}, {(): 1e-9, ("a",): 1.0, ("a", "b"): 3.0}, "laplace", "test"
    )
    assert [b.attributes for b in strategy.blocks] == [("a",), ("a", "b")]
    assert strategy.blocks[1].share == pytest.approx(0.75)
    assert strategy.full["a"] is None
    rows = strategy.full["b"]
    assert isinstance(rows, np.ndarray)
    assert np.abs(rows / 65536 - A).max() <= 2 / 65536
