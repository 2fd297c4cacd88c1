"""Pieces are each worked on once, on however many cores, and nothing is at work afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest

from dpsql.algebra import cores
from dpsql.algebra.cores import run_on_cores, share_in_order
from dpsql.interrupts import Cancellation, check


@pytest.mark.parametrize("count", [1, 2, 3, 64])
@pytest.mark.parametrize("pieces", [0, 1, 2, 7, 100])
def test_every_piece_is_worked_on_once(
    count: int, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "_cores", lambda: count)
    found, threads = np.zeros(pieces, dtype=np.int64), set()

    def work(share: Sequence[int]) -> None:
        threads.add(threading.get_ident())
        for piece in share:
            found[piece] += piece + 1

    run_on_cores(work, range(pieces))
    assert found.tolist() == list(range(1, pieces + 1))
    assert len(threads) <= max(1, min(count, pieces, cores.MOST))


@pytest.mark.parametrize("failing", [0, 1, 5])
def test_what_a_piece_raises_is_raised_when_all_have_ended(
    failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "_cores", lambda: 3)
    ended: list[int] = []

    def work(share: Sequence[int]) -> None:
        for piece in share:
            if piece == failing:
                raise KeyboardInterrupt if piece == 0 else ZeroDivisionError
            ended.append(piece)

    before = threading.active_count()
    with pytest.raises((KeyboardInterrupt, ZeroDivisionError)):
        run_on_cores(work, range(9))
    assert threading.active_count() == before
    assert {1, 2, 4, 5, 7, 8} - {failing, *range(failing, 9, 3)} <= {*ended}


@pytest.mark.parametrize("count", [1, 2, 3, 64])
@pytest.mark.parametrize("pieces", [0, 1, 2, 7, 100])
def test_what_comes_of_pieces_is_in_their_order(
    count: int, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "_cores", lambda: count)
    begun: list[int] = []

    def work(piece: int) -> int:
        begun.append(piece)
        return piece * piece

    before, taken = threading.active_count(), 0
    for piece, found in enumerate(share_in_order(work, range(pieces))):
        assert found == piece * piece
        taken += 1
        assert len(begun) <= taken + min(count, cores.MOST)
    assert taken == pieces
    assert sorted(begun) == [*range(pieces)]
    assert threading.active_count() == before


@pytest.mark.parametrize("count", [1, 3])
def test_what_a_piece_raises_comes_after_those_before_it(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "_cores", lambda: count)
    before = threading.active_count()
    found = share_in_order(lambda piece: 1 // (4 - piece), range(9))
    assert [next(found) for _ in range(4)] == [0, 0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert threading.active_count() == before


def _until_ended() -> None:
    while True:
        check()
        time.sleep(0.001)


@pytest.mark.parametrize("is_in_order", [False, True])
def test_other_threads_end_at_a_look_once_their_work_is_not_wanted(
    is_in_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for them looks, too."""
    monkeypatch.setattr(cores, "_cores", lambda: 3)
    mine, before = threading.get_ident(), threading.active_count()

    def work(_: object) -> None:
        if threading.get_ident() != mine:
            _until_ended()

    asked = Cancellation()
    timer = threading.Timer(0.1, asked.ask)
    timer.start()
    begun: Callable[[], object] = partial(run_on_cores, work, range(9))
    if is_in_order:
        begun = partial(next, share_in_order(work, range(9)))
    with asked, pytest.raises(KeyboardInterrupt):
        begun()
    timer.join()
    assert threading.active_count() == before
