"""Symmetric strategies among the others: when they are chosen, refused, remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsql.errors import ProgrammingError
from dpsql.plan import Workload, select
from dpsql.search import strategy_cache
from dpsql.search.select import CERTIFIED, Selection, choose
from dpsql.strategy.product import ProductStrategy
from dpsql.strategy.symmetric import SymmetricStrategy
from dpsql.workload.coarsen import coarsen
from tests.support.symmetric import UNIONS

MIXED = UNIONS["mixed"]
TABLES = Workload(
    {"a": 3, "b": 30},
    [{"a": "identity", "b": np.eye(30)[:5]}, {"a": "identity"}, {"b": [[0] * 12 + [1] * 18]}],
)


@pytest.mark.parametrize("workload", [MIXED, TABLES], ids=["mixed", "tables"])
def test_the_optimum_is_chosen_where_it_gains(workload: Workload) -> None:
    found = choose(workload, "gaussian")
    assert isinstance(found.strategy, SymmetricStrategy)
    error = found.strategy.unit_error(workload)
    assert found.lower <= error <= found.lower * 1.002
    assert error < 0.995 * select(workload, "gaussian", "joint").unit_error(workload)


def test_products_are_kept_where_they_are_as_good() -> None:
    marginals = Workload(
        {"a": 4, "b": 5, "c": 3},
        [{"a": "identity", "b": "identity"}, {"b": "identity", "c": "identity"}],
    )
    found = choose(marginals, "gaussian")
    assert isinstance(found.strategy, ProductStrategy)
    assert found.strategy.unit_error(marginals) <= found.lower * (1 + CERTIFIED)


@pytest.mark.parametrize(
    "workload",
    [
        Workload({"a": 6, "b": 5}, [({"a": "prefix", "b": "allrange"}, 2.0)]),
        Workload({"a": 6, "b": 5}, [{"a": "prefix", "b": "identity"}]),
        Workload({"a": 9}, [{"a": "prefix"}, ({"a": "identity"}, 2.0)]),
    ],
    ids=["product", "identity", "one attribute"],
)
def test_convex_optima_are_certified(workload: Workload) -> None:
    found = choose(workload, "gaussian")
    assert isinstance(found.strategy, ProductStrategy)
    error = found.strategy.unit_error(workload)
    assert found.lower <= error <= found.lower * 1.002


def test_common_filters_are_counted_in_every_block() -> None:
    """Cells outside a common filter are dropped before, so the rest is asked jointly with it."""
    products: list[dict[str, Any]] = [
        {"age": [1, 1, 0, 0], "a": "identity", "b": np.eye(30)[:5]},
        {"age": [1, 1, 0, 0], "b": [[0] * 12 + [1] * 18]},
        {"age": [1, 1, 0, 0], "a": "identity"},
    ]
    workload = coarsen(Workload({"age": 4, "a": 3, "b": 30}, products)).workload
    assert workload.pinned == {"age"}
    strategy = select(workload, "gaussian")
    assert isinstance(strategy, SymmetricStrategy)
    assert strategy.block.attributes == ("age", "a", "b")


def test_refusals_name_what_fits() -> None:
    with pytest.raises(ProgrammingError, match="needs gaussian noise") as caught:
        select(MIXED, "laplace", "symmetric")
    assert caught.value.code == "E_SETTING"
    wide = Workload({"a": 3000, "b": 2}, [{"a": "identity"}, {"b": "identity"}])
    with pytest.raises(ProgrammingError, match="does not fit") as caught:
        select(wide, "gaussian", "symmetric")
    assert caught.value.code == "E_TOO_LARGE"
    assert "'joint'" in str(caught.value)


def test_round_trip_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSQL_CACHE", str(tmp_path))
    monkeypatch.setattr(strategy_cache, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(strategy_cache, "_memory", type(strategy_cache._memory)())

    def plan() -> Selection:
        return strategy_cache.cached_choice(MIXED, "gaussian", "symmetric")

    first = plan()
    strategy_cache._memory.clear()
    monkeypatch.delattr(strategy_cache, "choose")
    again = plan()
    assert again.strategy is not first.strategy
    assert again.strategy.fingerprint() == first.strategy.fingerprint()
    assert again.lower == first.lower > 0
