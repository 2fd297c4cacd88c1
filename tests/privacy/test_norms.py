"""Joint sensitivities equal brute force over every column, and are never below it."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense, Identity, Weighted
from dpsql.errors import InternalError
from dpsql.privacy.doors import sensitivity
from dpsql.privacy.doors.sensitivity import Reader, are_disjoint, joint_norm, largest_column
from dpsql.strategy.noise_law import Norm
from dpsql.workload.workload import Product
from tests.privacy.looks import cell, dense, some_candidate, whole

DOMAIN = {"a": 3, "b": 4, "c": 2}


def brute_force(rows: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]], norm: Norm) -> int:
    return int(sum((np.abs(each) ** norm).sum(axis=0) for each in rows).max())


@pytest.mark.parametrize("norm", [1, 2])
def test_brute_force_over_every_column(norm: Norm, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    exact = 0
    for _ in range(150):
        candidates = [some_candidate(rng, DOMAIN) for _ in range(rng.integers(1, 6))]
        pieces = [Reader(DOMAIN).read(candidate) for candidate in candidates]
        truth = max(1, brute_force([dense(each, DOMAIN) for each in candidates], norm))
        found = joint_norm(pieces, DOMAIN, norm)
        assert found >= truth
        if all(len(each) == 1 for each in candidates):
            assert found == truth
            exact += 1
        with monkeypatch.context() as patch:
            patch.setattr(sensitivity, "LISTED", 5)
            assert joint_norm(pieces, DOMAIN, norm) >= found
        for candidate, each in zip(candidates, pieces, strict=True):
            assert largest_column(each, DOMAIN) >= brute_force([dense(candidate, DOMAIN)], 1)
    assert exact > 10


def test_products_that_touch_different_cells_are_exact() -> None:
    some = Dense(np.array([[2, 0, -1]])), Dense(np.array([[0, 3, 0]]))
    other = Dense(np.array([[1, 0, 5, 0]]))
    candidate = (Product({"a": some[0], "b": other}), Product({"a": some[1]}))
    (pieces,) = [Reader(DOMAIN).read(candidate)]
    assert are_disjoint(pieces)
    cases: tuple[tuple[Norm, int], ...] = ((1, 10), (2, 100))
    for norm, found in cases:
        assert joint_norm([pieces], DOMAIN, norm) == found
    assert not are_disjoint(pieces + pieces[:1])


def test_marginals_and_cells() -> None:
    read = Reader(DOMAIN).read
    marginals = [read(whole(DOMAIN, *names)) for names in ("", "a", "ab", "bc")]
    assert joint_norm(marginals, DOMAIN, 1) == 4
    assert joint_norm(marginals, DOMAIN, 2) == 4
    cells = [read(cell(DOMAIN, a=i, b=j)) for i in range(3) for j in range(4)]
    assert joint_norm(cells, DOMAIN, 1) == 1
    assert joint_norm([*cells, *cells, *marginals], DOMAIN, 2) == 6


def test_many_attributes_need_no_list_of_all_cells() -> None:
    domain = {f"x{i}": 50 for i in range(20)}
    read = Reader(domain).read
    cells = [read(cell(domain, **{f"x{i}": 1, f"x{i + 1}": 2})) for i in range(19)]
    assert 10 <= joint_norm(cells * 3, domain, 1) <= 57


def test_entries_of_any_size_are_exact() -> None:
    large = Dense(np.array([[2**40, 1], [-(2**40), 3]]))
    domain = {"a": 2, "b": 2}
    pieces = Reader(domain).read((Product({"a": large, "b": large}),))
    assert joint_norm([pieces], domain, 2) == 2**162
    assert joint_norm([pieces], domain, 1) == 2**82


@pytest.mark.parametrize(
    "candidate",
    [
        (),
        (Product({"z": Identity(3)}),),
        (Product({"a": Identity(4)}),),
        (Product({"a": Dense(np.array([[0.5, 1.0, 0.0]]))}),),
        (Product({"a": Weighted(Identity(3), 0.5)}),),
        (Product({"a": Identity(3)}), Product({"b": Identity(4)})),
    ],
)
def test_candidates_that_do_not_fit(candidate: tuple[Product, ...]) -> None:
    with pytest.raises(InternalError, match="E_INTERNAL"):
        Reader(DOMAIN).read(candidate)
