"""The units of several tables under one numbering, and the order in which their rows are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.privacy.vault.codes.byte_texts import ByteTexts
from dpsql.privacy.vault.codes.distinct_integers import blocks, concatenated, find_distinct
from dpsql.privacy.vault.data_engine import Counts, Flags
from dpsql.privacy.vault.unit.relation_frame import Frame
from dpsql.privacy.vault.unit.unit_numbers import BATCH, Digest, Units, keys_of
from dpsql.records import dataclass, replace

NOBODY = -1
"""The unit of a row that has none."""


@dataclass(frozen=True, slots=True)
class SharedUnits:
    """The units of some tables: one canonical name each, and what draws lots among their rows."""

    names: npt.NDArray[Any] | ByteTexts
    digest: Digest

    @property
    def count(self) -> int:
        """The number of units."""
        return len(self.names)

    def some(self, first: int, last: int) -> SharedUnits:
        """Return the units of these numbers; the first of them is number 0."""
        some = slice(first, last)
        names = self.names.take(some) if isinstance(self.names, ByteTexts) else self.names[some]
        return replace(self, names=names)

    def line_up(self, frame: Frame, rows: Counts, groups: Counts) -> Counts:
        """Return rows group by group, each group in an order that is drawn by lot.

        ``groups`` are those of ``rows``; rows of one group belong to one unit.

        Guarantee: the order within a group depends on the salt and on that group's rows alone.
        """
        units = frame.units[rows]
        crowded = np.zeros(self.count, dtype=np.bool_)
        crowded[units] = True
        keys = np.zeros(self.count, dtype=np.uint64)
        keys[crowded] = keys_of(self.digest.salt, self.names, np.flatnonzero(crowded))
        content = frame.content(rows)
        digests = self.digest.of_rows(keys[units], content)
        return rows[np.lexsort((*reversed(content), digests, groups))]


def number_together(owners: Sequence[Units], digest: Digest) -> tuple[SharedUnits, list[Counts]]:
    """Number the units of several tables: one of the same name is the same unit in all of them.

    Also returns the unit of every row of each table, NOBODY for rows without one.
    """
    known, numbers = _numbered([each.names for each in owners])
    found = [_units(own, each) for own, each in zip(numbers, owners, strict=True)]
    return SharedUnits(known, digest), found


def _numbered(
    names: Sequence[npt.NDArray[Any] | ByteTexts],
) -> tuple[npt.NDArray[Any] | ByteTexts, list[Counts]]:
    """Number the names of units of several tables, the same for the same ones, and list them."""
    whole = [each for each in names if not isinstance(each, ByteTexts)]
    if len(whole) == len(names):
        every = np.concatenate([*whole, np.zeros(0, dtype=np.int64)])
        rows, numbers = find_distinct(every)
        return every[rows], np.split(numbers, np.cumsum([*map(len, whole)])[:-1])
    from dpsql.privacy.vault.codes.text_dictionary import TextNames  # most units are numbers

    known, found = TextNames(sum(map(len, names))), []
    for each in names:
        texts = each if isinstance(each, ByteTexts) else ByteTexts.of(each.tolist())
        some = (texts.take(slice(at, at + BATCH)) for at in range(0, len(texts), BATCH))
        found.append(np.concatenate([np.zeros(0, np.int64), *map(known.add, some)]))
    return known.names(), found


def _units(renumbered: Counts, owners: Units) -> Counts:
    if not len(renumbered):
        return np.full(len(owners.units), NOBODY)
    found, owned = owners.units, owners.owned
    rows = blocks(len(found))
    return concatenated(np.where(owned[some], renumbered[found[some]], NOBODY) for some in rows)


def together(*columns: Sequence[tuple[Counts, Flags]]) -> tuple[list[Counts], int]:
    """Number the rows of several tables by the values of their keys: the same for the same values.

    Each argument is a table's keys, in one order. Rows that lack one have number -1. Also returns
    one more than the largest number; one below it may be nobody's.

    >>> some, all_ = np.array([3, 5, 3]), np.ones(3, dtype=bool)
    >>> (one, other), _ = together([(some, all_)], [(some[1:], np.array([False, True]))])
    >>> bool(one[0] == one[2] == other[1] != one[1]), int(other[0])
    (True, -1)
    """
    flags = [np.logical_and.reduce([flag for _, flag in each]) for each in columns]
    known, ends = concatenated(flags), np.cumsum(list(map(len, flags)))[:-1]
    keys = [
        concatenated(one) for one in zip(*([n for n, _ in each] for each in columns), strict=True)
    ]
    for some in blocks(len(known)):
        for each in keys:
            each[some][~known[some]] = 0
    different, ids = find_distinct(*keys)
    for some in blocks(len(known)):
        ids[some][~known[some]] = -1
    return np.split(ids, ends), len(different)
