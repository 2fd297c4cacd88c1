"""Memory that a request will need, from public facts: refused in time rather than run out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from dpsql.errors import ProgrammingError
from dpsql.strategy.base import Strategy

NUMBER = 8
"""Bytes of a number in an array."""

COPIES = 3
"""Arrays of the size of one block that are alive at once while it is measured or solved."""

ROW, FIELD = 64, 20
"""Bytes of a result row, and of each of its fields."""

PART = 0.75
"""Part of the machine's memory that a request may need."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: noisy integers, estimated components, working space, and rows of results."""

    measured: int
    estimated: int
    working: int
    results: int

    @property
    def total(self) -> int:
        """Return the bytes needed at once, at most."""
        return self.measured + self.estimated + self.working + self.results


def forecast_memory(rows: int, fields: int, strategies: Iterable[Strategy] = ()) -> Memory:
    """Return the memory for strategies, and for result rows with so many fields in all."""
    measured, estimated, largest = 0, 0, 0
    for strategy in strategies:
        sizes = [(block.rows, block.estimated) for block in strategy.blocks]
        measured += sum(measures for measures, _ in sizes)
        estimated += sum(cells for _, cells in sizes)
        largest = max([largest, *(max(size) for size in sizes)])
    return Memory(
        2 * NUMBER * measured,
        NUMBER * estimated,
        COPIES * NUMBER * largest,
        ROW * rows + FIELD * fields,
    )


def check_memory(needed: Memory, rows: int, limit: int | None = None) -> None:
    """Refuse what needs more than the limit, by default most of the machine's memory.

    Raises ProgrammingError E_TOO_LARGE, naming what fits.
    """
    limit = limit or memory_limit()
    if needed.total <= limit:
        return
    rest = needed.total - needed.results
    if rest > limit:
        hint = "ask for fewer columns at once, or group their values into bins"
    else:
        fits = rows * (limit - rest) // needed.results
        hint = f"about {fits:,} rows fit: ask for fewer statements at once"
    raise ProgrammingError(
        "E_TOO_LARGE",
        f"the answers need about {_gib(needed.total)} GiB of memory, {_gib(needed.results)} of it"
        f" for {rows:,} result rows; the limit is {_gib(limit)} GiB",
        hint=hint,
    )


def memory_limit() -> int:
    """Return how many bytes a request may need on this machine."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        physical = 1 << 33
    return int(PART * physical)


def _gib(count: int) -> str:
    return f"{count / 2**30:,.1f}"
