"""Stored arrays are read by many threads, as those of a server do."""

from __future__ import annotations

import io
import sys
import threading

import numpy as np

from dpsql.answer.codec import zipped
from dpsql.files import load_arrays


class Finalised:
    """What runs Python while it is collected, as connections and files do."""

    def __del__(self) -> None:
        sum(range(50))


def test_arrays_are_read_by_several_threads() -> None:
    """Of two that read at once one failed: Python counts the depth of syntax trees for all."""
    body = zipped({f"x{number}": np.arange(number) for number in range(8)})
    faults: list[SystemError] = []
    found: list[dict[str, np.ndarray]] = []

    def read() -> None:
        for _ in range(150):
            around: list[object] = [Finalised()]
            around.append(around)
            try:
                found.append(load_arrays(io.BytesIO(body)))
            except SystemError as error:
                faults.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not faults
    assert len(found) == 8 * 150
    assert found[0]["x7"].tolist() == [0, 1, 2, 3, 4, 5, 6]
