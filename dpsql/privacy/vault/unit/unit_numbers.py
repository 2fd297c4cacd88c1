"""The privacy units of rows by number, and in which order the rows of a crowded one stay.

The order in which a unit's rows are kept is that of md5(salt | unit | content), where the content
of a row are whole numbers that the declared view shows of it. Any engine can work it out, and rows
that it leaves in a tie are equal in the view, save for differences below 2^-24 of their bounds.

Guarantee: whether a row is kept depends on the salt and on the rows of its own unit alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpsql.algebra.cores import share_in_order
from dpsql.interrupts import check
from dpsql.privacy.vault.codes.byte_texts import ByteTexts
from dpsql.privacy.vault.codes.distinct_integers import find_distinct, in_groups
from dpsql.privacy.vault.codes.spill import Spill, SpillRoom
from dpsql.privacy.vault.data_engine import Codes, Counts, Flags, Floats
from dpsql.records import dataclass

if TYPE_CHECKING:
    from dpsql.privacy.vault.codes.text_dictionary import TextNames

Content = Callable[[Counts], Sequence[Codes | Counts]]
"""For some rows, whole numbers that decide their order."""
Ties = Callable[[Counts], Sequence[Floats]]
"""For some rows, what decides their order where those numbers are the same."""

BATCH = 1 << 16
"""Whole numbers that are looked up together."""
STRIDE = 1 << 20
"""Rows that are numbered and counted together."""
GATHERED = 1 << 16
"""Rows of units that are lined up together; a unit with more stays together."""


@dataclass(frozen=True, slots=True)
class Units:
    """The unit of every row, by number; rows without a unit are not ``owned``.

    ``names`` has one canonical text per unit: the text itself, or a whole number.
    """

    units: Codes
    owned: Flags
    names: npt.NDArray[Any] | ByteTexts


class UnitNumbers:
    """The numbers of units, as batches come; different names have different ones."""

    def __init__(self, room: SpillRoom) -> None:
        self._room = room
        self._names: TextNames | None = None
        self._owned: Spill = room.spill()
        self._owned.add(np.zeros(0, dtype=np.bool_))
        self._numbers: Spill | None = None

    def add(self, units: npt.NDArray[Any] | ByteTexts, owned: Flags) -> None:
        """Number the units of some rows; ``units`` and ``owned`` have shape (rows,).

        Of doubles -0.0 is 0.0, and NaN is nobody; texts are compared byte by byte.
        """
        if not isinstance(units, ByteTexts) and units.dtype == np.object_:
            owned = owned & np.array([each is not None and each == each for each in units], bool)
            units = ByteTexts.of(np.where(owned, units, ""))
        if isinstance(units, ByteTexts):
            from dpsql.privacy.vault.codes.text_dictionary import (
                TextNames,  # most units are numbers
            )

            self._names = self._names or TextNames(self._room.names)
            self._pile_up(self._names.add(units))
        else:
            whole, owned = (units, owned) if units.dtype == np.int64 else _bits(units, owned)
            self._pile_up(np.where(owned, whole, 0))
        self._owned.add(owned)

    def _pile_up(self, numbers: npt.NDArray[Any]) -> None:
        self._numbers = self._numbers or self._room.spill()
        self._numbers.add(numbers)

    def owners(self) -> Units:
        """Return the units of all rows; a table without rows has none."""
        owned = self._owned.array()
        if self._numbers is None:
            return Units(np.zeros(0, dtype=np.uint32), owned, np.zeros(0, dtype=np.int64))
        numbers = self._numbers.array()
        if self._names is not None:
            return Units(numbers, owned, self._names.names())
        return _number_whole(self._room, numbers, owned)


def _bits(doubles: Floats, owned: Flags) -> tuple[Counts, Flags]:
    known = owned & ~np.isnan(doubles)
    return (np.where(known, doubles, 0.0) + 0.0).view(np.int64), known


def _number_whole(room: SpillRoom, identities: Counts, owned: Flags) -> Units:
    """Number units that are known by whole numbers; in files, as texts of eight bytes."""
    if room.folder is None:
        rows, units = find_distinct(identities)
        return Units(units.astype(np.uint32), owned, identities[rows])
    from dpsql.privacy.vault.codes.text_dictionary import TextNames  # most are in memory

    known, spill = TextNames(room.names), room.spill(len(identities))
    spill.add(np.zeros(0, dtype=np.uint32))
    for start in range(0, len(identities), BATCH):
        some = identities[start : start + BATCH]
        sizes = np.full(len(some), some.itemsize)
        spill.add(known.add(ByteTexts(some.view(np.uint8), np.cumsum(sizes) - sizes, sizes)))
    words = [each for _, each in known.names().words()] or [np.zeros(0, dtype=np.uint64)]
    return Units(spill.array(), owned, words[0].view(np.int64))


def strides(rows: int) -> Iterator[slice]:
    """Yield ranges of rows, STRIDE at a time; an empty one where there is none.

    Raises: KeyboardInterrupt, between two of them, where it was asked for.

    >>> [*strides(3)], [*strides(0)]
    ([slice(0, 3, None)], [slice(0, 0, None)])
    """
    for start in range(0, max(1, rows), STRIDE):
        check()
        yield slice(start, min(start + STRIDE, rows))


def count_rows(units: Codes | Counts, chosen: Flags, size: int) -> Counts:
    """Count the chosen rows (rows,) of each of ``size`` units."""
    found = np.zeros(size, dtype=np.int64)
    for some in strides(len(units)):
        found += np.bincount(units[some][chosen[some]], minlength=size)
    return found


@dataclass(frozen=True, slots=True)
class UnitShares:
    """Rows in shares of whole units: some GATHERED rows each, or one unit with more.

    ``ordered`` (chosen,) are rows of every stride by share; ``ends`` (strides, shares + 1) is where
    each share of a stride begins and ends there.
    """

    ordered: Codes | Counts
    ends: Counts

    def __len__(self) -> int:
        return int(self.ends.shape[1]) - 1

    def rows(self, share: int) -> Counts:
        """Return the rows of a share (rows,), in their order."""
        pairs = self.ends[:, share : share + 2].tolist()
        found = [self.ordered[first:last] for first, last in pairs]
        return np.concatenate([np.zeros(0, dtype=np.int64), *found])


def edges_of(amounts: Counts) -> list[int]:
    """Return where shares of units begin and end: of ``amounts`` (units,) GATHERED at most in each.

    A unit with more is a share by itself; there is one share at least.

    >>> edges_of(np.array([GATHERED, 1, GATHERED - 1, 2])), edges_of(np.zeros(0, np.int64))
    ([0, 1, 3, 4], [0, 0])
    """
    reached, edges = np.cumsum(amounts), [0]
    while edges[-1] < len(reached):
        first = edges[-1]
        before = int(reached[first - 1]) if first else 0
        last = int(np.searchsorted(reached, before + GATHERED, side="right"))
        edges.append(max(first + 1, last))
    return edges if len(edges) > 1 else [0, 0]


def share_units(
    units: Codes | Counts, chosen: Flags, edges: Sequence[int], room: SpillRoom
) -> UnitShares:
    """Share out the chosen rows (rows,) by their units; see :func:`edges_of`.

    What is worked out for every row is in ``room``. Guarantee:
    every chosen row is in one share, together with all others of its unit.
    Raises: MemoryError; OSError for a disk that is full.

    >>> units, every = np.array([0, 1, 0, 1], np.uint32), np.ones(4, dtype=bool)
    >>> share_units(units, every, [0, 1, 2], SpillRoom()).rows(1).tolist()
    [1, 3]
    """
    count, ends = len(edges) - 1, [np.zeros(0, dtype=np.int64)]
    share_of = np.repeat(np.arange(count, dtype=np.min_scalar_type(count)), np.diff(edges))
    spill, done = room.spill(int(np.count_nonzero(chosen))), 0
    spill.add(np.zeros(0, dtype=_places_of(units)))
    for some in strides(len(units)):
        rows = np.flatnonzero(chosen[some])
        shares = share_of[units[some][rows]]
        spill.add((rows[np.argsort(shares, kind="stable")] + some.start).astype(_places_of(units)))
        sizes = np.bincount(shares, minlength=count)
        ends.append(done + np.append(0, np.cumsum(sizes)))
        done += len(rows)
    return UnitShares(spill.array(), np.concatenate(ends).reshape(-1, count + 1))


def _places_of(units: Codes | Counts) -> type[np.uint32] | type[np.int64]:
    """The type of the places of rows, of which these are the units."""
    # Half the bytes, for tables of up to four thousand million rows.
    return np.uint32 if len(units) <= 1 << 32 else np.int64


KEY = 16
"""Hexadecimal digits of a unit's own digest that go into the digests of its rows."""
UNIT = np.uint64(32)
"""Bits of a unit's number, and of half of a digest: rows are sorted by as many at a time."""
LOW = np.uint64((1 << 32) - 1)
"""The lower half of a digest."""
SIGN = np.uint64(1 << 63)
"""The sign of a double."""
CONTENTS = 1 << 16
"""Rows whose contents are held together."""


def ranges_of_units(units: Codes | Counts, rows: int) -> Iterator[slice]:
    """Yield ranges of so many rows (rows,), which are sorted by unit; more to have whole units.

    Raises: KeyboardInterrupt, between two of them, where it was asked for.
    """
    start = 0
    while start < len(units):
        check()
        last = min(start + rows, len(units)) - 1
        stop = int(np.searchsorted(units, units[last], side="right"))
        yield slice(start, stop)
        start = stop


@dataclass(frozen=True, slots=True)
class Queue:
    """The rows of all units that have more than they may keep, unit by unit, first come first."""

    rows: Codes | Counts
    units: Codes | Counts
    max_rows: int

    def bound(self, inside: Flags) -> Flags:
        """Clear the rows ``inside`` (rows,) that do not stay when every unit keeps its first ones.

        >>> queue = Queue(np.array([3, 0, 1]), np.array([5, 5, 5]), 1)
        >>> queue.bound(np.array([True, True, True, False])).tolist()
        [True, False, True, False]
        """

        for some in ranges_of_units(self.units, STRIDE):
            rows, units = self.rows[some], self.units[some]
            waiting = inside[rows]
            before: Counts = np.cumsum(waiting, dtype=np.int64) - waiting
            is_first = np.append(True, units[1:] != units[:-1])
            before -= np.maximum.accumulate(np.where(is_first, before, 0))
            inside[rows] = waiting & (before < self.max_rows)
        return inside


@dataclass(frozen=True, slots=True)
class Digest:
    """Keyed digests of rows, each a pure function of the row's numbers."""

    salt: str

    def of_rows(
        self, keys: Codes, content: Sequence[Codes | Counts], tops: Sequence[int] = ()
    ) -> Codes:
        """Return the first 16 digits of md5(salt | key | content), as numbers.

        No number of a column is larger than its ``tops``, or what its type holds where none are
        given, nor is what it is below zero.
        """
        from dpsql.privacy.vault.codes.digests import digits_of_rows  # of units of several rows
        from dpsql.privacy.vault.codes.row_texts import write_rows

        found = [np.zeros(0, np.uint64)]
        for texts in write_rows(f"{self.salt}|".encode(), keys, content, tops):
            check()
            found.append(digits_of_rows(texts))
        return np.concatenate(found)


def queue_up(
    digest: Digest,
    owners: Units,
    max_rows: int,
    content: Content,
    ties: Ties,
    room: SpillRoom,
    tops: Sequence[int] = (),
) -> Queue:
    """Return the rows of units with more than ``max_rows``, in the order in which they are kept.

    ``content`` and ``ties`` are as long as the rows that they are given; see :class:`Digest`.
    """
    size = len(owners.names)
    counts = count_rows(owners.units, owners.owned, size)
    crowded = counts > max_rows
    keys = np.zeros(size, dtype=np.uint64)
    keys[crowded] = keys_of(digest.salt, owners.names, np.flatnonzero(crowded))
    waiting = owners.owned & crowded[owners.units] if size else owners.owned
    shares = share_units(owners.units, waiting, edges_of(counts * crowded), room)
    count = int(np.count_nonzero(waiting))
    del counts, waiting

    def queued(share: int) -> tuple[Counts, Codes]:
        rows = shares.rows(share)
        units = owners.units[rows]
        order = in_order(rows, units, _digests_of(digest, rows, keys[units], content, tops), ties)
        return rows[order], units[order]

    spills = room.spill(count), room.spill(count)
    places = _places_of(owners.units)
    spills[0].add(np.zeros(0, dtype=places))
    spills[1].add(np.zeros(0, dtype=owners.units.dtype))
    for rows, units in share_in_order(queued, range(len(shares))):
        check()
        spills[0].add(rows.astype(places))
        spills[1].add(units)
    ordered, theirs = (spill.array() for spill in spills)
    return Queue(ordered, theirs, max_rows)


def _digests_of(
    digest: Digest, rows: Counts, keys: Codes, content: Content, tops: Sequence[int]
) -> Codes:
    """Return the digests of some rows."""
    some = [slice(start, start + CONTENTS) for start in range(0, len(rows), CONTENTS)]
    found = [digest.of_rows(keys[each], content(rows[each]), tops) for each in some]
    return np.concatenate([np.zeros(0, dtype=np.uint64), *found])


def in_order(rows: Counts, units: Codes, digests: Codes, ties: Ties) -> Counts:
    """Return the order of some rows by unit, by digest, by what decides ties, and then by place.

    All are sorted by halves of these in turn, the last first, with their places, so that no two
    are the same: rows that are alike take the steps of those that are not, and no more time.

    >>> digests = np.array([9, 3, 9, 3], dtype=np.uint64)
    >>> units = np.array([1, 0, 0, 0], dtype=np.uint32)
    >>> values = np.array([0.0, 2.0, 0.0, 1.0])
    >>> in_order(np.arange(4), units, digests, lambda rows: [values[rows]]).tolist()
    [3, 1, 2, 0]
    """
    order = np.arange(len(rows))
    for words in [*reversed([_in_turn(each) for each in ties(rows)]), digests]:
        for half in (words & LOW, words >> UNIT):
            order = order[in_groups(half[order])]
    return order[in_groups(units[order])]


def _in_turn(values: Floats) -> Codes:
    """Return whole numbers (rows,) that are in the order of values; missing ones come last."""
    words = (values + 0.0).view(np.uint64)
    found = np.where(words & SIGN, ~words, words | SIGN)
    return np.where(np.isnan(values), ~np.uint64(0), found)


def keys_of(salt: str, names: npt.NDArray[Any] | ByteTexts, chosen: Counts) -> Codes:
    """Return the first digits of md5(salt | name) for the names at some places, (chosen,).

    Args:
        salt: of the draw; secret.
        names: (units,) canonical names.
        chosen: (chosen,) places of units.

    Raises: KeyboardInterrupt, where it was asked for.
    """
    from dpsql.privacy.vault.codes.digests import first_digits  # of units of several rows

    found = [np.zeros(0, dtype=np.uint64)]
    for start in range(0, max(1, len(chosen)), CONTENTS):
        check()
        some = chosen[start : start + CONTENTS]
        named = names.take(some) if isinstance(names, ByteTexts) else names[some].tolist()
        texts = named if isinstance(named, ByteTexts) else ByteTexts.of(named)
        found.append(first_digits(f"{salt}|".encode(), texts))
    return np.concatenate(found)
