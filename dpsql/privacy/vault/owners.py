"""The privacy units of rows by number, and in which order the rows of a crowded one stay.

The order in which a unit's rows are kept is that of md5(salt | unit | content), where the content
of a row are whole numbers that the declared view shows of it. Any engine can work it out, and rows
that it leaves in a tie are equal in the view, save for differences below 2^-24 of their bounds.

Guarantee: whether a row is kept depends on the salt and on the rows of its own unit alone.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpsql.algebra.cores import share_out
from dpsql.privacy.vault.byte_texts import ByteTexts
from dpsql.privacy.vault.data_engine import Codes, Counts, Flags, Floats
from dpsql.privacy.vault.pile import Pile, PileRoom
from dpsql.privacy.vault.whole_numbers import find_distinct, lie_close
from dpsql.records import dataclass

if TYPE_CHECKING:
    from dpsql.privacy.vault.text_names import TextNames

Content = Callable[[Counts], Sequence[Codes | Counts]]
"""For some rows, whole numbers that decide their order."""
Ties = Callable[[Counts], Sequence[Floats]]
"""For some rows, what decides their order where those numbers are the same."""

BATCH = 1 << 16
"""Whole numbers that are looked up together."""
STRIDE = 1 << 20
"""Rows that are numbered, sorted and counted together; a unit with more stays together."""


@dataclass(frozen=True, slots=True)
class Owners:
    """The unit of every row, by number; rows without a unit are not ``owned``.

    ``names`` has one canonical text per unit: the text itself, or a whole number.
    """

    units: Codes
    owned: Flags
    names: npt.NDArray[Any] | ByteTexts

    @property
    def listed(self) -> npt.NDArray[Any]:
        """The names as an array, of Python's texts where they are texts."""
        return self.names.objects() if isinstance(self.names, ByteTexts) else self.names


class UnitNumbers:
    """The numbers of units, as batches come; different names have different ones."""

    def __init__(self, room: PileRoom) -> None:
        self._room = room
        self._names: TextNames | None = None
        self._owned: Pile = room.pile()
        self._owned.add(np.zeros(0, dtype=np.bool_))
        self._numbers: Pile | None = None

    def add(self, units: npt.NDArray[Any] | ByteTexts, owned: Flags) -> None:
        """Number the units of some rows; ``units`` and ``owned`` have shape (rows,).

        Of doubles -0.0 is 0.0, and NaN is nobody; texts are compared byte by byte.
        """
        if not isinstance(units, ByteTexts) and units.dtype == np.object_:
            owned = owned & np.array([each is not None and each == each for each in units], bool)
            units = ByteTexts.of(np.where(owned, units, ""))
        if isinstance(units, ByteTexts):
            from dpsql.privacy.vault.text_names import TextNames  # most units are numbers

            self._names = self._names or TextNames()
            self._pile_up(self._names.add(units))
        else:
            whole, owned = (units, owned) if units.dtype == np.int64 else _bits(units, owned)
            self._pile_up(np.where(owned, whole, 0))
        self._owned.add(owned)

    def _pile_up(self, numbers: npt.NDArray[Any]) -> None:
        self._numbers = self._numbers or self._room.pile()
        self._numbers.add(numbers)

    def owners(self) -> Owners:
        """Return the units of all rows; a table without rows has none."""
        owned = self._owned.array()
        if self._numbers is None:
            return Owners(np.zeros(0, dtype=np.uint32), owned, np.zeros(0, dtype=np.int64))
        numbers = self._numbers.array()
        if self._names is not None:
            return Owners(numbers, owned, self._names.names())
        return _number_whole(self._room, numbers, owned)


def _bits(doubles: Floats, owned: Flags) -> tuple[Counts, Flags]:
    known = owned & ~np.isnan(doubles)
    return (np.where(known, doubles, 0.0) + 0.0).view(np.int64), known


def _number_whole(room: PileRoom, identities: Counts, owned: Flags) -> Owners:
    """Number units that are known by whole numbers, which are looked up as texts of eight bytes."""
    if room.folder is None and lie_close(identities):
        names, units = find_distinct(identities)
        return Owners(units.astype(np.uint32), owned, names)
    from dpsql.privacy.vault.text_names import TextNames  # most lie close

    known, pile = TextNames(), room.pile(len(identities))
    pile.add(np.zeros(0, dtype=np.uint32))
    for start in range(0, len(identities), BATCH):
        some = identities[start : start + BATCH]
        sizes = np.full(len(some), some.itemsize)
        pile.add(known.add(ByteTexts(some.view(np.uint8), np.cumsum(sizes) - sizes, sizes)))
    words = [each for _, each in known.names().words()] or [np.zeros(0, dtype=np.uint64)]
    return Owners(pile.array(), owned, words[0].view(np.int64))


def strides(rows: int) -> Iterator[slice]:
    """Yield ranges of rows, a few million at a time.

    >>> [*strides(3)], [*strides(0)]
    ([slice(0, 3, None)], [])
    """
    for start in range(0, rows, STRIDE):
        yield slice(start, min(start + STRIDE, rows))


def count_rows(units: Codes, chosen: Flags, size: int) -> Counts:
    """Count the chosen rows (rows,) of each of ``size`` units."""
    found = np.zeros(size, dtype=np.int64)
    for some in strides(len(units)):
        found += np.bincount(units[some][chosen[some]], minlength=size)
    return found


def gather_units(counts: Counts) -> list[tuple[int, int]]:
    """Return ranges of units that have some STRIDE rows, or that are one unit with more.

    ``counts`` (units,) are their rows.
    """
    ends, edges = np.cumsum(counts), [0]
    while edges[-1] < len(ends):
        first = edges[-1]
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + STRIDE, side="right"))
        edges.append(max(first + 1, last))
    return [*itertools.pairwise(edges)]


def unit_by_unit(
    units: Codes, chosen: Flags, ranges: Sequence[tuple[int, int]]
) -> Iterator[Counts]:
    """Yield the chosen rows of every range of units, in the order of the rows."""
    for first, last in ranges:
        if len(ranges) == 1:
            yield np.flatnonzero(chosen)
            return
        found = [_within(units[some], chosen[some], first, last) for some in strides(len(units))]
        starts = (some.start for some in strides(len(units)))
        yield np.concatenate([each + start for each, start in zip(found, starts, strict=True)])


def _within(units: Codes, chosen: Flags, first: int, last: int) -> Counts:
    return np.flatnonzero(chosen & (units >= first) & (units < last))


KEY = 16
"""Hexadecimal digits of a unit's own digest that go into the digests of its rows."""
CONTENTS = 1 << 16
"""Rows whose contents are held together."""
FEW = 1 << 13
"""Rows whose digests are worked out one by one, in 15 ms: tables of digits take as long."""


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

        for some in self._ranges():
            waiting = inside[self.rows[some]]
            rows, units = self.rows[some][waiting], self.units[some][waiting]
            place = np.arange(len(rows))
            is_first = np.append(True, units[1:] != units[:-1])[: len(units)]
            place -= np.maximum.accumulate(np.where(is_first, place, 0))
            inside[rows[place >= self.max_rows]] = False
        return inside

    def _ranges(self) -> Iterator[slice]:
        """Ranges of the queue that have whole units."""
        start = 0
        while start < len(self.units):
            last = min(start + STRIDE, len(self.units)) - 1
            stop = int(np.searchsorted(self.units, self.units[last], side="right"))
            yield slice(start, stop)
            start = stop


@dataclass(frozen=True, slots=True)
class Digest:
    """Keyed digests of rows, each a pure function of the row's numbers."""

    salt: str

    def of_rows(self, keys: Codes, content: Sequence[Codes | Counts]) -> Codes:
        """Return the first 16 digits of md5(salt | key | content), as numbers."""
        if len(keys) <= FEW:
            return self._one_by_one(keys, content)
        return self._together(keys, content)

    def _one_by_one(self, keys: Codes, content: Sequence[Codes | Counts]) -> Codes:
        rows = zip(*(each.tolist() for each in (keys, *content)), strict=True)
        texts = ("|".join([self.salt, f"{key:016x}", *map(str, of)]) for key, *of in rows)
        digests = (hashlib.md5(text.encode(), usedforsecurity=False).digest() for text in texts)
        return np.frombuffer(b"".join(each[:8] for each in digests), ">u8").astype(np.uint64)

    def _together(self, keys: Codes, content: Sequence[Codes | Counts]) -> Codes:
        from dpsql.privacy.vault.digests import digits_of_rows  # of units of several rows
        from dpsql.privacy.vault.row_texts import write_rows

        written = write_rows(f"{self.salt}|".encode(), keys, content)
        return np.concatenate([digits_of_rows(each) for each in written])


def queue_up(
    digest: Digest,
    owners: Owners,
    max_rows: int,
    content: Content,
    ties: Ties,
    room: PileRoom,
) -> Queue:
    """Return the rows of units with more than ``max_rows``, in the order in which they are kept.

    ``content`` and ``ties`` are as long as the rows that they are given.
    """
    size = len(owners.names)
    counts = count_rows(owners.units, owners.owned, size)
    crowded = counts > max_rows
    keys, ranges = keys_of(digest.salt, owners, crowded), gather_units(counts * crowded)
    del counts
    waiting = owners.owned & crowded[owners.units] if size else owners.owned
    count = int(np.count_nonzero(waiting))
    piles = room.pile(count), room.pile(count)
    places = np.uint32 if len(owners.units) <= 1 << 32 else np.int64
    piles[0].add(np.zeros(0, dtype=places))
    piles[1].add(np.zeros(0, dtype=owners.units.dtype))
    for rows in unit_by_unit(owners.units, waiting, ranges):
        units = owners.units[rows]
        digests = _digests_of(digest, rows, keys[units], content)
        order = in_order(rows, units, digests, ties)
        piles[0].add(rows[order].astype(places))
        piles[1].add(units[order])
    ordered, theirs = (pile.array() for pile in piles)
    return Queue(ordered, theirs, max_rows)


def _digests_of(digest: Digest, rows: Counts, keys: Codes, content: Content) -> Codes:
    """Return the digests of some rows; those of one core depend on nothing of another's."""
    found = np.empty(len(rows), dtype=np.uint64)

    def put(starts: Sequence[int]) -> None:
        for start in starts:
            some = slice(start, start + CONTENTS)
            found[some] = digest.of_rows(keys[some], content(rows[some]))

    share_out(put, range(0, len(rows), CONTENTS))
    return found


def in_order(rows: Counts, units: Codes, digests: Codes, ties: Ties) -> Counts:
    """Return the order of some rows by unit, by digest, by what decides ties, and then by place.

    Units and the first bits of digests are sorted as one number, which takes a fifth of the time;
    rows whose numbers are the same are then sorted by all that there is.

    >>> digests = np.array([9, 3, 9, 3], dtype=np.uint64)
    >>> units = np.array([1, 0, 0, 0], dtype=np.uint32)
    >>> values = np.array([0.0, 2.0, 0.0, 1.0])
    >>> in_order(np.arange(4), units, digests, lambda rows: [values[rows]]).tolist()
    [3, 1, 2, 0]
    """
    if not len(units):
        return np.zeros(0, dtype=np.int64)
    numbers = (units - units.min()).astype(np.uint64)
    bits = np.uint64(int(numbers.max()).bit_length())
    numbers <<= np.uint64(64) - bits
    numbers |= digests >> bits
    order = np.argsort(numbers)
    same = np.diff(numbers[order]) == 0
    places = np.flatnonzero(np.append(same, False) | np.append(False, same))
    some = np.sort(order[places])
    order[places] = some[np.lexsort([*reversed(ties(rows[some])), digests[some], numbers[some]])]
    return order


def keys_of(salt: str, owners: Owners, crowded: Flags) -> Codes:
    """Return the first digits of md5(salt | name) for some units, zero for others.

    ``crowded`` and the keys have shape (units,).
    """
    from dpsql.privacy.vault.digests import first_digits  # of units of several rows

    keys = np.zeros(len(owners.names), dtype=np.uint64)
    names = owners.names
    if not isinstance(names, ByteTexts):
        some = ByteTexts.of(names[crowded].tolist())
    else:
        some = names.take(crowded)
    keys[crowded] = first_digits(f"{salt}|".encode(), some)
    return keys
