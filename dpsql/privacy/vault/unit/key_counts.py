"""Numbers of privacy units with each key of a column that nobody listed.

What a unit adds follows from its own rows alone: its different keys, of which the first few in a
salted order count. Texts that cannot be printed in one short line are no keys.
"""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Column
from dpsql.catalog.composite_keys import join_key
from dpsql.catalog.discovery import LONGEST_KEY, Key, Sought
from dpsql.catalog.domain import floor_period
from dpsql.catalog.read_place import MAX_BOUND
from dpsql.interrupts import check
from dpsql.privacy.vault.codes.combinations import join_codes, split_codes
from dpsql.privacy.vault.codes.distinct_integers import (
    BLOCK,
    blocks,
    concatenated,
    find_distinct,
    in_groups,
    taken,
)
from dpsql.privacy.vault.codes.encode import EPOCH
from dpsql.privacy.vault.codes.spill import SpillRoom
from dpsql.privacy.vault.data_engine import (
    Counts,
    Flags,
    Form,
    RequestedColumn,
    StoredTable,
    Values64,
)
from dpsql.privacy.vault.unit.unit_numbers import (
    Digest,
    UnitNumbers,
    Units,
    in_order,
    keys_of,
    ranges_of_units,
)
from dpsql.records import dataclass, field

NO_KEY, NO_VALUE = -1, -2
"""Codes of rows whose value is no key, and of rows without one."""
FIRST, LAST = (
    each.toordinal() - EPOCH.toordinal() for each in (dt.date(1, 1, 7), dt.date(9998, 12, 31))
)
"""Days that are in the calendar with the whole of their periods."""


Part = tuple[npt.NDArray[Any], Flags, Flags]
"""Values of some rows, which of them are there, and which are missing: (rows,) each."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Every unit with every key of it that counts, by number: the place of the key in ``keys``.

    ``units`` and ``places`` have shape (pairs,), and no pair is there twice; every key counts for
    a unit. ``every`` has units and codes of all rows of units, (different,) each: the place of a
    key, whether it counts for that unit or not, NO_KEY or NO_VALUE.
    """

    keys: tuple[Key, ...]
    units: Counts
    places: Counts
    every: tuple[Counts, Counts] = field(default_factory=lambda: (_no_rows(), _no_rows()))


def _no_rows() -> Counts:
    return np.zeros(0, dtype=np.int64)


def is_key(text: object) -> bool:
    """Say whether a text may be printed as a key: one line, no controls, valid, not too long.

    >>> is_key("tea"), is_key("a\\nb"), is_key("x" * 1001), is_key("\\ud800"), is_key("")
    (True, False, False, False, True)
    """
    if not isinstance(text, str) or len(text) > LONGEST_KEY:
        return False
    if any(unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp") for each in text):
        return False
    return len(text.encode()) <= LONGEST_KEY


def find_pairs(
    stored: StoredTable,
    sought: Sought,
    columns: Sequence[tuple[Column, str]],
    owners: Units | None,
    rows: int,
    digest: Digest,
) -> Pairs:
    """Return the keys of all units in a column, or in several together; rows are units by default.

    Each of ``columns`` comes with its name in the source.

    Guarantee: the pairs of a unit are a function of the salt and of its own rows, and it has at
    most ``max_keys``; ties in the order are as rare as equal 64-bit digests.
    """
    parts = [_number(column, _values(stored, column, name)) for column, name in columns]
    if any(len(codes) != rows for codes, _ in parts):
        raise ValueError("the rows are not those that were loaded")
    codes, keys = parts[0] if len(parts) == 1 else _combined(parts)
    return _pairs(sought, codes, keys, owners, digest)


def read_pairs(
    stored: StoredTable, column: Column, name: str, unit: str | None, digest: Digest
) -> Pairs:
    """Return what :func:`find_pairs` does, of a server: whose each key is, is read with the key.

    Rows of a server have no order in which two readings of them would agree.
    """
    form: Form = {"text": "key", "date": "day"}.get(column.type, "whole")  # type: ignore[assignment]
    units, found = UnitNumbers(SpillRoom()), []
    for batch in stored.read([RequestedColumn(name, form)], unit):
        batch.check([RequestedColumn(name, form)], unit is not None)
        if batch.units is not None and batch.owned is not None:
            units.add(batch.units, batch.owned)
        found += [(values, known, ~known) for values, known in batch.keys]
        found += [_with_flags(each) for each in batch.columns]
    assert column.sought is not None
    codes, keys = _number(column, found)
    return _pairs(column.sought, codes, keys, None if unit is None else units.owners(), digest)


def _combined(parts: Sequence[tuple[Counts, tuple[Key, ...]]]) -> tuple[Counts, tuple[Key, ...]]:
    """Number the combinations that rows have of keys of several columns; a part missing is none."""
    sizes = [len(keys) for _, keys in parts]
    apart = [codes for codes, _ in parts]
    some_rows = blocks(len(apart[0]))
    found = concatenated(_joined([codes[some] for codes in apart], sizes) for some in some_rows)
    first, numbers = find_distinct(found)
    different = np.sort(found[first])  # in the order of which nothing of the rows shows
    ranks = np.searchsorted(different, found[first])
    different = different[different != NO_KEY]
    ranks -= len(first) - len(different)
    for some in blocks(len(found)):
        found[some] = ranks[numbers[some]]
    columns = split_codes(different, sizes)
    names = [[parts[i][1][each] for each in column] for i, column in enumerate(columns)]
    return found, tuple(join_key(each) for each in zip(*names, strict=True))


def _joined(codes: Sequence[Counts], sizes: Sequence[int]) -> Counts:
    """Number the combinations that some rows have, with NO_KEY where a part is missing."""
    places, known = join_codes(codes, sizes)
    return np.where(known, places, NO_KEY)


def _pairs(
    sought: Sought, codes: Counts, keys: tuple[Key, ...], owners: Units | None, digest: Digest
) -> Pairs:
    """Return the pairs of units and keys, of rows that have a key each or none."""
    count, kept = len(codes), [np.zeros((0, 2), dtype=np.int64)]
    if owners is None:
        units = concatenated(np.arange(some.start, some.stop) for some in blocks(count))
        for some in blocks(count):
            kept.append(_with_keys(units[some], codes[some]))
        return _that_count(keys, kept, (units, codes))
    owned, of_rows = owners.owned, owners.units
    units = concatenated(of_rows[some][owned[some]].astype(np.int64) for some in blocks(count))
    theirs = concatenated(codes[some][owned[some]] for some in blocks(count))
    rows = find_distinct(units, theirs)[0]
    rows = taken(rows, in_groups(taken(units, rows)))
    units, theirs = taken(units, rows), taken(theirs, rows)
    for some in ranges_of_units(units, BLOCK):
        own = _with_keys(units[some], theirs[some])
        kept.append(_bounded(own, keys, owners, sought.max_keys, digest))
    return _that_count(keys, kept, (units, theirs))


def _with_keys(units: Counts, codes: Counts) -> Counts:
    """Return units and keys of rows that have one, (pairs, 2)."""
    return np.stack([units, codes], axis=1)[codes >= 0]


def _that_count(
    keys: tuple[Key, ...], kept: Sequence[Counts], every: tuple[Counts, Counts]
) -> Pairs:
    """Leave out keys that count for no unit: that they are there is a matter of who is cut."""
    is_used = np.zeros(len(keys), dtype=np.bool_)
    for some_pairs in kept:
        check()
        is_used[some_pairs[:, 1]] = True
    used = np.flatnonzero(is_used)
    places = np.full(len(keys) + 2, NO_KEY)  # the last two are those of no key and no value
    places[used] = np.arange(len(used))
    places[NO_VALUE] = NO_VALUE
    units, of_key = (concatenated(each[:, i] for each in kept) for i in (0, 1))
    for numbers in (of_key, every[1]):
        for some in blocks(len(numbers)):
            numbers[some] = places[numbers[some]]
    return Pairs(tuple(keys[each] for each in used.tolist()), units, of_key, every)


def _bounded(
    pairs: Counts, keys: tuple[Key, ...], owners: Units, most: int, digest: Digest
) -> Counts:
    """Return the pairs that stay when every unit keeps its first keys, in a salted order.

    ``pairs`` (pairs, 2) are all those of some units, and sorted by unit.
    """
    units, counts = np.unique(pairs[:, 0], return_counts=True)
    is_crowded = counts > most
    crowded = np.repeat(is_crowded, counts)
    queue, sizes = pairs[crowded], counts[is_crowded]
    theirs = np.repeat(keys_of(digest.salt, owners.names, units[is_crowded]), sizes)
    named, places = np.unique(queue[:, 1], return_inverse=True)
    content = keys_of(digest.salt, np.array(keys, dtype=object), named).view(np.int64)[places]
    numbers = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
    digests = digest.of_rows(theirs, [content])
    queue = queue[in_order(queue, numbers, digests, lambda _: [])]
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.concatenate([pairs[~crowded], queue[np.arange(len(queue)) - starts < most]])


def _number(column: Column, parts: Iterable[Part]) -> tuple[Counts, tuple[Key, ...]]:
    """Number the keys of all rows: their places among the sorted keys, and two for none."""
    import pandas as pd  # takes longer than a first answer about rows

    known: dict[Key | None, int] = {}
    codes = [np.zeros(0, dtype=np.int64)]
    for values, is_known, is_missing in parts:
        check()
        local, names = pd.factorize(values[is_known])
        found = [_read_key(column, each) for each in names.tolist()]
        numbers = np.array([known.setdefault(each, len(known)) for each in found], dtype=np.int64)
        codes.append(np.where(is_missing, NO_VALUE, NO_KEY))
        codes[-1][is_known] = numbers[local]
    return _in_order(concatenated(codes), known)


def _in_order(codes: Counts, known: dict[Key | None, int]) -> tuple[Counts, tuple[Key, ...]]:
    """Replace numbers in the order of rows, of which nothing may show, by places in sorted keys."""
    keys = sorted((key for key in known if key is not None), key=lambda key: (key,))
    places = np.full(len(known) + 2, NO_KEY)  # the last two are those of no number
    places[NO_VALUE] = NO_VALUE
    places[[known[key] for key in keys]] = np.arange(len(keys))
    for some in blocks(len(codes)):
        codes[some] = places[codes[some]]
    return codes, tuple(keys)


def _read_key(column: Column, value: Any) -> Key | None:
    """Return the key that a stored value is, None for one that is no key."""
    if column.type == "text":
        return value if is_key(value) else None
    if column.type == "integer":
        return int(value) if abs(value) <= MAX_BOUND else None
    assert column.sought is not None
    if not FIRST <= value <= LAST:
        return None
    return floor_period(EPOCH + dt.timedelta(days=int(value)), column.sought.by)


def _values(stored: StoredTable, column: Column, name: str) -> Iterator[Part]:
    """Yield the values of a column in the order of the rows."""
    if column.type == "text":
        for texts in stored.texts(name):
            plain: npt.NDArray[Any] = np.asarray(np.ma.getdata(texts), dtype=object)
            is_text = np.array([isinstance(each, str) for each in plain], dtype=np.bool_)
            is_missing = np.ma.getmaskarray(texts)
            yield plain, is_text & ~is_missing, is_missing
        return
    form: Form = "day" if column.type == "date" else "whole"
    for batch in stored.read([RequestedColumn(name, form)], None):
        batch.check([RequestedColumn(name, form)], False)
        (values,) = batch.columns
        yield _with_flags(values)


def _with_flags(values: Values64) -> Part:
    return values.numbers, ~(values.missing | values.unknown), values.missing
