"""What every peer is asked, in a process of its own: a first answer, a warm one, many marginals.

A peer's module calls :func:`run` with its class. ``python -m benchmarks.peer_NAME first FOLDER``
answers one statement and ends; ``rest`` prints figures as JSON and writes ``answers.npz``. Runs in
the peer's own environment: nothing but the standard library and NumPy is imported here.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

EPSILON = 1.0
WARM = 5
PATIENCE = 20.0
"""CPU seconds after which no further marginal is begun; figures are then those of the ones done."""

Counts = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Asked:
    """The columns, each with values 0..n-1, and the marginals that are asked for together."""

    sizes: dict[str, int]
    marginals: list[tuple[str, ...]]

    def shape(self, keys: Sequence[str]) -> tuple[int, ...]:
        """How many values each of some columns has."""
        return tuple(self.sizes[key] for key in keys)

    def table(self, keys: Sequence[str], rows: Sequence[Sequence[object]]) -> Counts:
        """Rows of keys and a count as an array, NaN where a peer gives none."""
        found = np.full(self.shape(keys), np.nan)
        for *cell, count in rows:
            found[tuple(int(str(each)) for each in cell)] = float(str(count))
        return found


class Peer(Protocol):
    """A system that answers counts under differential privacy, one row being the unit."""

    def __init__(self, folder: Path, asked: Asked) -> None: ...

    def one(self, keys: Sequence[str]) -> Counts:
        """Answer GROUP BY keys with EPSILON."""

    def many(self, marginals: Sequence[Sequence[str]]) -> Iterator[Counts]:
        """Answer all of them with EPSILON together."""


def read(folder: Path) -> Asked:
    """Read what the driver wrote."""
    facts = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    return Asked(facts["sizes"], [tuple(each) for each in facts["marginals"]])


def cpu() -> float:
    """CPU seconds of this process and of those it started and that ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def run(kind: type[Peer]) -> None:
    """Do what the command line says."""
    what, folder = sys.argv[1], Path(sys.argv[2])
    asked = read(folder)
    peer = kind(folder, asked)
    first = list(asked.sizes)[:1]
    if what == "first":
        peer.one(first)
        return
    peer.one(first)
    start = cpu()
    for _ in range(WARM):
        peer.one(first)
    warm = (cpu() - start) / WARM
    start, wall, done = cpu(), time.perf_counter(), []
    for table in peer.many(asked.marginals):
        done.append(table)
        if cpu() - start > PATIENCE:
            break
    figures = {"warm": warm, "cpu": cpu() - start, "wall": time.perf_counter() - wall}
    np.savez(folder / "answers.npz", *done)
    print(json.dumps(figures))
