"""Releases survive a round trip, and damage is never mistaken for an answer."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpsql
from dpsql.answer.codec import Release
from dpsql.answer.store import Releases, Store
from dpsql.errors import LedgerError
from dpsql.plan.plan import Part, Plan
from dpsql.strategy.product import ProductStrategy
from dpsql.strategy.product_block import ProductBlock
from dpsql.strategy.queries import QueriesStrategy
from dpsql.strategy.query_block import QueryBlock
from dpsql.workload.cells import Cells, Nodes, Resolution, cells_of


def releases(folder: Path) -> Releases:
    return Store(folder / "x.toml").releases


def example() -> Release:
    rows = np.array([[1, 0, 2], [0, 1, 2], [0, 0, 3]], dtype=np.int64)
    strategy = ProductStrategy(
        {"a": 3, "b": 2},
        {"a": rows, "b": None},
        {},
        (
            ProductBlock(("a", "b"), frozenset(), Fraction(2, 3)),
            ProductBlock((), frozenset(), Fraction(1, 3)),
        ),
        "laplace",
        "example",
    )
    labels = np.array([[0, -1], [1, 0]])
    resolutions = {
        "a": cells_of("a", np.array([0, 1, 2, -1])),
        "b": Cells(("b", "c"), (np.array([0, 1]), np.array([1, 0])), labels),
    }
    part = Part("t", strategy, resolutions, Fraction(1, 2), 3)
    values = (np.array([2**62, -5, 0, 1, 2, 3]), np.array([2**80], dtype=object))
    plan = Plan((part,), "laplace", Fraction(1, 2), Fraction(0), None)
    return Release(plan, (values,), "id", 7, "head")


def test_a_release_survives_a_round_trip(tmp_path: Path) -> None:
    store = releases(tmp_path)
    assert store.find("request") is None
    store.add("request", example())
    found = releases(tmp_path).find("request")
    assert found is not None
    assert found.plan.fingerprint == example().plan.fingerprint
    assert (found.ledger_id, found.seq, found.head) == ("id", 7, "head")
    for mine, theirs in zip(example().values[0], found.values[0], strict=True):
        assert mine.tolist() == theirs.tolist()
    assert store.find("another") is None


def test_a_newer_release_replaces_an_older_one(tmp_path: Path) -> None:
    store = releases(tmp_path)
    store.add("request", example())
    first = example()
    store.add("request", Release(first.plan, first.values, "id", 8, "later"))
    found = store.find("request")
    assert found is not None
    assert found.seq == 8


@pytest.mark.parametrize("damage", ["body", "digest", "swap", "file"])
def test_damage_fails_closed(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.releases"
    store = releases(tmp_path)
    store.add("request", example())
    store.add("other", example())
    if damage == "file":
        path.write_bytes(b"not a database" * 100)
    else:
        with sqlite3.connect(path) as connection:
            if damage == "body":
                connection.execute("UPDATE release SET body = x'00' WHERE request = 'request'")
            elif damage == "digest":
                connection.execute("UPDATE release SET digest = 'x' WHERE request = 'request'")
            else:
                connection.execute("DELETE FROM release WHERE request = 'request'")
                connection.execute("UPDATE release SET request = 'request'")
        connection.close()
    for _ in range(2):
        with pytest.raises(LedgerError, match="damaged"):
            releases(tmp_path).find("request")


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="E_LEDGER_IO"):
        releases(tmp_path / "missing").add("request", example())


def newest(store: Releases, *scopes: str) -> list[str]:
    return list(store.candidates([""], [scopes]).latest)


def test_releases_are_found_by_what_they_measured(tmp_path: Path) -> None:
    store = releases(tmp_path)
    assert newest(store, "a") == []
    for seq, (name, scopes) in enumerate([("one", "a"), ("two", "ab"), ("three", "b")]):
        store.add(name, replace(example(), seq=seq, scopes=tuple(scopes)))
    assert newest(store, "a") == ["two", "one"]
    assert newest(store, "b", "a") == ["two"]
    store.add("one", replace(example(), seq=9, scopes=("a",)))
    assert newest(releases(tmp_path), "a") == ["one", "two"]


def test_a_link_leads_to_a_release_until_that_is_replaced(tmp_path: Path) -> None:
    store = releases(tmp_path)
    store.add("one", example())
    store.link("part", "one")
    assert store.candidates(["part"], [[""]])[:3] == (None, {"one": store.find("one")}, {})
    assert store.find("part") is None
    store.add("one", replace(example(), seq=9))
    assert store.candidates(["part"], [[""]])[:3] == (None, {}, {})


def test_another_data_version_is_another_request(demo: Path) -> None:
    sql = "SELECT sex, COUNT(*) FROM adult GROUP BY sex"
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        connection.execute(sql)
    source = demo / "adult.parquet"
    source.touch()
    with dpsql.connect(demo / "adult.toml", epsilon=1) as connection:
        connection.execute(sql)
        assert connection.budget.entries == 2


def test_a_release_of_before_whose_noise_is_not_told_answers_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that were paid for together had all the noise of the one to which rows add most."""
    one = np.array([[1, 0]])
    blocks = QueryBlock(("a",), (2,), (one,), 1), QueryBlock(("b",), (2,), (one,), 1)
    strategy = QueriesStrategy({"a": 2, "b": 2}, blocks, "laplace")
    for nodes, is_told in ((Nodes("b", 1, 1, 9), False), (cells_of("b", np.arange(2)), True)):
        resolutions: dict[str, Resolution] = {"a": cells_of("a", np.arange(2)), "b": nodes}
        part = Part("t", strategy, resolutions, Fraction(1, 2), 3)
        plan = Plan((part,), "laplace", Fraction(1, 2), Fraction(0), None)
        release = Release(plan, ((np.array([1]), np.array([5])),), "id", 7, "head", ("scope",))
        with monkeypatch.context() as before:
            before.setattr("dpsql.answer.codec.FORM", 1)
            releases(tmp_path).add("old", release)
        releases(tmp_path).add("new", release)
        assert releases(tmp_path).find("new") is not None
        assert (releases(tmp_path).find("old") is not None) == is_told
        candidates = releases(tmp_path).candidates(["another"], [["scope"]])
        assert ("old" in candidates.latest) == is_told
