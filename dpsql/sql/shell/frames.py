"""The frame of a window: which groups around the present one are added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from dpsql.records import dataclass

Indices = NDArray[np.int64]

FAR = 1 << 62
"""A place after all others."""


@dataclass(frozen=True, slots=True)
class WindowFrame:
    """The reach of a frame before and after the present group; None is to the end.

    In places where it is ``by_rows``, else in what the key is, with all groups of equal keys.
    """

    before: int | None = None
    after: int | None = 0
    by_rows: bool = False

    @property
    def is_measured_off(self) -> bool:
        """True if the distance of keys counts, so that they have to be numbers."""
        return not self.by_rows and bool(self.before or self.after)


TO_HERE = WindowFrame()
"""The frame of a running total: up to the present group, and all others of its key."""


def read_frame(node: exp.Window) -> WindowFrame | None:
    """Return the frame of a window; None where it is none of these or may be without a group.

    A frame around the present group always has that one at least.
    """
    spec = node.args.get("spec")
    if any(node.args.get(name) for name in ("alias", "first")):
        return None
    if spec is None:
        return TO_HERE
    kind = str(spec.args.get("kind")).upper()
    before, after = _end(spec, "start", "PRECEDING"), _end(spec, "end", "FOLLOWING")
    if spec.args.get("exclude") or kind not in ("ROWS", "RANGE") or "none" in (before, after):
        return None
    assert not isinstance(before, str)
    assert not isinstance(after, str)
    return WindowFrame(before, after, kind == "ROWS" and not before is after is None)


def _end(spec: exp.Expr, name: str, side: str) -> int | str | None:
    """Return how far a frame reaches to one side, "none" for what is no such frame."""
    end = spec.args.get(name) or "CURRENT ROW"
    if str(end).upper() == "CURRENT ROW":
        return 0
    if str(spec.args.get(f"{name}_side")).upper() != side:
        return "none"
    if isinstance(end, exp.Literal) and not end.is_string and end.name.isdigit():
        return int(end.name)
    return None if str(end).upper() == "UNBOUNDED" else "none"


def places_of(
    values: Sequence[Any], codes: Indices, frame: WindowFrame, descending: bool
) -> tuple[Indices, Indices, Indices]:
    """Return the place of every group and the first and last place in its frame.

    ``codes`` tell partitions apart. NULL comes last in ascending and in descending order, and is
    at no distance from a number.

    >>> [x.tolist() for x in places_of([3, 1, 5], np.zeros(3), WindowFrame(2, 0), False)]
    [[1, 0, 2], [0, 0, 1], [1, 0, 2]]
    """
    known = sorted({value for value in values if value is not None}, reverse=descending)
    rank = {value: place for place, value in enumerate(known)}
    ranks = np.array([len(known) if value is None else rank[value] for value in values])
    if frame.by_rows:
        places = _within(ranks, codes)
        first = places * 0 if frame.before is None else places - frame.before
        last = places * 0 + FAR if frame.after is None else places + frame.after
        return places, first, last
    first, last = ranks * 0, ranks * 0 + FAR
    if frame.before is not None:
        first = ranks if not frame.before else _near(values, ranks, known, -frame.before)
    if frame.after is not None:
        last = ranks if not frame.after else _near(values, ranks, known, frame.after)
    return ranks, first, last


def _within(ranks: Indices, codes: Indices) -> Indices:
    """Return the place of every group in the order of its own partition."""
    order = np.lexsort((ranks, codes))
    starts = np.flatnonzero(np.diff(codes[order], prepend=codes.min() - 1))
    lengths = np.diff(np.append(starts, len(order)))
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order)) - np.repeat(starts, lengths)
    return places


def _near(values: Sequence[Any], ranks: Indices, known: Sequence[Any], reach: int) -> Indices:
    """Return the rank of the furthest number within so much of each, before it or after it."""
    if not known:
        return ranks
    sign = -1 if known[-1] < known[0] else 1
    numbers = np.array([sign * value for value in known])
    own = np.array([0 if value is None else sign * value for value in values])
    if reach < 0:
        found = np.searchsorted(numbers, own + reach, side="left")
    else:
        found = np.searchsorted(numbers, own + reach, side="right") - 1
    return np.where(ranks == len(known), ranks, found)
