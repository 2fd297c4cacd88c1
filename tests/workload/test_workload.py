"""Workloads: what is accepted, how products merge, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.algebra.blocks import Dense, Identity, Prefix
from dpsql.errors import ProgrammingError
from dpsql.workload.workload import Product, Workload


def test_reads_every_kind_of_factor() -> None:
    w = Workload(
        {"a": 3, "b": 2},
        [
            {"a": "identity", "b": "total"},
            {"a": np.eye(3)},
            {"b": [1, 0]},
            Product({"b": Identity(2), "a": Prefix(3)}, 2.0),
            ({"a": "allrange"}, 0.5),
            {},
        ],
    )
    assert w.rows == 3 + 3 + 1 + 6 + 6 + 1
    assert [list(p.factors) for p in w.products] == [["a"], ["a"], ["b"], ["a", "b"], ["a"], []]
    assert w.index.tolist() == [[0, -1], [-1, 0], [1, 1], [2, -1], [-1, -1]]
    assert w.weights2.tolist() == [2.0, 1.0, 4.0, 0.25, 1.0]
    assert [len(f) for f in w.factors] == [3, 2]


def test_all_ones_is_total_unless_pinned() -> None:
    ones = np.ones((1, 3))
    assert not Workload({"a": 3}, [{"a": ones}]).products[0].factors
    assert not Workload({"a": 1}, [{"a": "identity"}]).products[0].factors
    kept = Workload({"a": 3}, [{"a": ones}], pinned=["a"])
    assert isinstance(kept.products[0].factors["a"], Dense)
    with pytest.raises(ProgrammingError, match="pinned"):
        Workload({"a": 3}, [{}], pinned=["a"])


@pytest.mark.parametrize(
    ("domain", "products", "text"),
    [
        ({"a": 2}, [], "empty"),
        ({"a": 0}, [{}], "0 cells"),
        ({"a": 2}, [({"a": "identity"}, 0.0)], "not positive"),
        ({"a": 2}, [({"a": "identity"}, float("nan"))], "not positive"),
        ({"a": 2}, [{"b": "identity"}], "not an attribute"),
        ({"a": 2}, [{"a": "median"}], "not a factor"),
        ({"a": 2}, [{"a": [[1, 2, 3]]}], "has shape|have shape"),
        ({"a": 2}, [{"a": [[1, float("nan")]]}], "not all finite"),
        ({"a": 2}, [{"a": ["x", "y"]}], "not numbers"),
        ({"a": 2}, [{"a": Identity(3)}], "has shape"),
        ({"a": 2}, [17], "not a product"),
    ],
)
def test_refuses(domain: dict[str, int], products: list[object], text: str) -> None:
    with pytest.raises(ProgrammingError, match=text) as caught:
        Workload(domain, products)  # type: ignore[arg-type]
    assert caught.value.code == "E_WORKLOAD"


def test_fingerprint_is_canonical() -> None:
    one = Workload({"a": 2, "b": 3}, [{"a": "identity"}, {"b": "prefix"}, {"a": "identity"}])
    two = Workload({"a": 2, "b": 3}, [{"b": np.tri(3)}, ({"a": np.eye(2)}, 2**0.5)])
    assert one.fingerprint() == Workload(one.domain, reversed(one.products)).fingerprint()
    assert one.weights2.sum() == pytest.approx(two.weights2.sum())
    other = Workload({"a": 2, "b": 3}, [{"a": "identity"}, {"b": "identity"}])
    assert one.fingerprint() != other.fingerprint()


def test_one_operator_on_two_attributes() -> None:
    shared = Identity(4)
    w = Workload({"a": 4, "b": 4}, [Product({"b": shared}), Product({"a": shared})])
    assert w.index.tolist() == [[-1, 0], [0, -1]]
