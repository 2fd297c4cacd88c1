"""Threads of linear algebra in searches: one for small columns, and afterwards what there was."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dpsql.plan import Workload, request
from dpsql.search.work_limit import LARGE, MOST, SMALL, one_thread, threads_for


@pytest.fixture
def several() -> Iterator[None]:
    with threadpool_limits(limits=2, user_api="blas"):
        yield


def set_by_nobody(count: int) -> None:
    """Set the number by a thread that ends: while one that did so lives, it alone may set it."""
    setting = threading.Thread(target=lambda: threadpool_limits(limits=count, user_api="blas"))
    setting.start()
    setting.join()


@pytest.fixture
def several_of_nobody() -> Iterator[None]:
    before = max(threads())
    set_by_nobody(2)
    yield
    set_by_nobody(before)


def threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


@pytest.mark.parametrize(
    ("domain", "found"),
    [
        ({"a": 2, "b": LARGE - 1}, {1}),
        ({"a": LARGE}, {2}),
        ({"a": MOST}, {2}),
        ({"a": LARGE, "b": 2}, {1}),
        ({"a": 10**6}, {1}),
        ({"a": SMALL // 4, "b": 4}, {2}),
        ({"a": SMALL // 4, "b": 5}, {1}),
    ],
)
def test_small_columns_have_one_thread(
    several: None, domain: Mapping[str, int], found: set[int]
) -> None:
    with one_thread([domain, {"c": 3}]):
        assert threads() == found
        with one_thread([{"a": SMALL + 1}]):
            assert threads() == {1}
    assert threads() == {2}


def test_large_matrices_beside_small_ones_have_all_threads(several: None) -> None:
    with threads_for(LARGE):
        assert threads() == {2}
    with one_thread([{"a": LARGE, "b": 2}]):
        with threads_for(LARGE):
            assert threads() == {2}
        with threads_for(LARGE - 1):
            assert threads() == {1}
        with one_thread([{"a": 40}]), threads_for(LARGE):
            assert threads() == {2}
        assert threads() == {1}
    assert threads() == {2}


def test_searches_at_once_give_threads_back(several_of_nobody: None) -> None:
    inside = threading.Barrier(3)

    def search() -> None:
        with suppress(ZeroDivisionError), one_thread([{"a": SMALL + 1}]):
            inside.wait(60)
            raise ZeroDivisionError

    before = threads()
    searches = [threading.Thread(target=search) for _ in range(3)]
    for each in searches:
        each.start()
    for each in searches:
        each.join()
    assert threads() == before


@pytest.mark.parametrize("size", [0, LARGE - 1, LARGE])
def test_a_search_that_ends_last_gives_no_threads_back_that_it_did_not_take(
    several_of_nobody: None, size: int
) -> None:
    begun, over = threading.Event(), threading.Event()

    def search() -> None:
        with one_thread([{"a": SMALL + 1}]), threads_for(size):
            begun.set()
            over.wait(60)

    last = threading.Thread(target=search)
    with one_thread([{"a": SMALL + 1}]):
        last.start()
        begun.wait(60)
        assert threads() == {1}
    assert threads() == {2}
    over.set()
    last.join()
    assert threads() == {2}
    with one_thread([{"a": SMALL + 1}]):
        assert threads() == {1}
    assert threads() == {2}


def test_a_plan_is_made_with_one_thread(several: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def choose(*_: object) -> None:
        seen.append(threads())
        raise ZeroDivisionError

    monkeypatch.setattr(request, "_checked_plan", choose)
    for n in (40, LARGE):
        layout = SimpleNamespace(workload=Workload({"a": n}, [{"a": "identity"}]))
        target = SimpleNamespace(layouts=[layout])
        asked: Any = SimpleNamespace(targets=[target], effort=1, noises=("laplace",))
        with pytest.raises(ZeroDivisionError):
            request.make_plan(asked)
    assert seen == [{1}, {2}]
    assert threads() == {2}
