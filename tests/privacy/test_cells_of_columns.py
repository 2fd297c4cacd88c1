"""Cells of many columns: where rows fall, and what memory that takes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from dpsql.privacy.vault.codes.tally import axis_of_cells, tally_rows
from dpsql.workload.cells import Cells


def places(cells: Cells, codes: list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]) -> list[int]:
    """The cell of every row, by the definition; -1 where it is in none."""
    out = []
    assert cells.labels is not None
    for row in zip(*codes, strict=True):
        classes = [
            each[code] if code < len(each) else -1
            for each, code in zip(cells.classes, row, strict=True)
        ]
        out.append(-1 if min(classes) < 0 else int(cells.labels[tuple(classes)]))
    return out


@pytest.mark.parametrize("seed", range(20))
def test_rows_fall_where_their_classes_say(seed: int) -> None:
    """Rows of columns without any class as well, and codes that are outside."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0 if seed % 4 == 0 else 1, 4, size=int(rng.integers(1, 5)))
    classes = tuple(
        np.concatenate([np.arange(n), rng.integers(-1, n, size=3)])[rng.permutation(n + 3)]
        for n in counts
    )
    labels = rng.integers(-1, 3, size=tuple(counts))
    cells = Cells(tuple(f"c{i}" for i in range(len(counts))), classes, labels)
    codes = [rng.integers(0, len(each) + 1, size=200).astype(np.uint8) for each in classes]
    found = tally_rows([axis_of_cells(codes, cells)], (3,), np.ones(200, dtype=bool))
    own = np.array(places(cells, codes))
    assert found.tolist() == [np.count_nonzero(own == cell) for cell in range(3)]


def test_memory_is_that_of_the_combinations_of_classes() -> None:
    """One more class of every column was written out: of 17 columns 3^17 numbers, a GiB."""
    columns = 13
    labels = np.zeros((2,) * columns, dtype=np.int64)
    classes = (np.arange(2),) * columns
    cells = Cells(tuple(f"c{i}" for i in range(columns)), classes, labels)
    codes = [np.zeros(10, dtype=np.uint8)] * columns
    tracemalloc.start()
    tally_rows([axis_of_cells(codes, cells)], (1,), np.ones(10, dtype=bool))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 16 * labels.nbytes
