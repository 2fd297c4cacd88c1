"""Lossless coarsening."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.algebra.blocks import Identity
from dpsql.algebra.operator import Permuted
from dpsql.algebra.ranges import AllRange
from dpsql.workload.coarsen import coarsen, label_rows
from dpsql.workload.workload import ProductLike, Workload


@pytest.mark.parametrize("total", [False, True])
def test_answers_survive(total: bool) -> None:
    rng = np.random.default_rng(0)
    rows = [np.repeat(rng.integers(0, 2, (2, 4)), 3, axis=1) for _ in range(5)]
    products: list[ProductLike] = []
    products += [{"a": Q} for Q in rows]
    products += [{"a": Q, "b": "prefix"} for Q in rows]
    products += [{}] if total else []
    w = Workload({"a": 12, "b": 3, "c": 5}, products)
    coarse = coarsen(w)
    assert coarse.workload.domain["a"] <= 5
    assert coarse.workload.domain["c"] == 1
    x = rng.integers(0, 9, 12)
    kept = coarse.classes["a"] >= 0
    folded = np.bincount(coarse.classes["a"][kept], x[kept], minlength=coarse.workload.domain["a"])
    for fine, small in zip(w.products, coarse.workload.products, strict=True):
        if "a" in fine.factors:
            assert fine.factors["a"].dense() @ x == pytest.approx(
                small.factors["a"].dense() @ folded
            )


def test_drops_what_no_answer_counts() -> None:
    """One common filter: the cells outside it vanish and the attribute is pinned."""
    young = np.array([[1, 1, 1, 0, 0, 0]])
    w = Workload({"age": 6, "sex": 2}, [{"age": young, "sex": "identity"}, {"age": young}])
    coarse = coarsen(w)
    assert coarse.classes["age"].tolist() == [0, 0, 0, -1, -1, -1]
    assert coarse.workload.pinned == {"age"}
    assert coarse.workload.domain == {"age": 1, "sex": 2}
    assert all("age" in p.factors for p in coarse.workload.products)


def test_keeps_the_rest_class_where_products_differ() -> None:
    w = Workload(
        {"age": 4, "sex": 2}, [{"age": [1, 0, 0, 0], "sex": "identity"}, {"age": [1, 1, 0, 0]}]
    )
    coarse = coarsen(w)
    assert coarse.classes["age"].tolist() == [0, 1, 2, 2]
    assert not coarse.workload.pinned
    total = coarsen(Workload({"age": 4}, [{"age": [1, 0, 0, 0]}, {}]))
    assert total.classes["age"].tolist() == [0, 1, 1, 1]


def test_bins_become_identity() -> None:
    bins = np.kron(np.eye(3, dtype=int), np.ones((1, 4), dtype=int))
    coarse = coarsen(Workload({"age": 12}, [{"age": bins}]))
    assert isinstance(coarse.workload.products[0].factors["age"], Identity)


def test_a_question_that_counts_nothing() -> None:
    coarse = coarsen(Workload({"age": 3, "sex": 2}, [{"age": [0, 0, 0], "sex": "identity"}]))
    assert coarse.workload.domain == {"age": 1, "sex": 2}
    assert coarse.classes["age"].tolist() == [0, 0, 0]


def test_permuted_ranges_are_never_formed() -> None:
    shuffled = Permuted(AllRange(3000), np.random.default_rng(0).permutation(3000))
    assert coarsen(Workload({"x": 3000}, [{"x": shuffled}])).workload.domain == {"x": 3000}


@pytest.mark.parametrize("kind", ["flags", "signs", "fractions", "large", "many", "booleans"])
def test_rows_are_numbered_alike_however_many_there_are(kind: str) -> None:
    rng = np.random.default_rng(3)
    columns = {
        "flags": rng.integers(0, 2, (200, 5)),
        "signs": rng.integers(-1, 2, (200, 5)) * -1.0,
        "fractions": rng.integers(0, 3, (200, 5)) * 0.1,
        "large": rng.integers(-2, 3, (200, 5)) * 10**15,
        "many": rng.integers(0, 2, (2000, 80)),
        "booleans": rng.integers(0, 2, (200, 5)).astype(bool),
    }[kind]
    known: dict[tuple[float, ...], int] = {}
    expected = [known.setdefault(tuple(row + 0), len(known)) for row in columns]
    assert label_rows(columns).tolist() == expected
