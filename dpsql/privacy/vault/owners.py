"""The privacy units of rows by number, and in which order the rows of a crowded one stay.

The order in which a unit's rows are kept is that of md5(salt | unit | content), where the content
of a row are whole numbers that the declared view shows of it. Any engine can work it out, and rows
that it leaves in a tie are equal in the view, save for differences below 2^-24 of their bounds.

Guarantee: whether a row is kept depends on the salt and on the rows of its own unit alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from dpsql.privacy.vault.data_engine import Codes, Counts, Flags, Floats

Texts = npt.NDArray[np.object_]
KEY = 16
"""Hexadecimal digits of a unit's own digest that go into the digests of its rows."""


@dataclass(frozen=True, slots=True)
class Owners:
    """The unit of every row, by number; rows without a unit are not ``owned``.

    ``names`` has one canonical text per unit: the text itself, or a whole number.
    """

    units: Codes
    owned: Flags
    names: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Queue:
    """The rows of all units that have more than they may keep, unit by unit, first come first."""

    rows: Counts
    units: Counts
    max_rows: int

    def bound(self, inside: Flags) -> Flags:
        """Return which rows stay of those ``inside`` when every unit keeps its first ones.

        >>> queue = Queue(np.array([3, 0, 1]), np.array([5, 5, 5]), 1)
        >>> queue.bound(np.array([True, True, True, False])).tolist()
        [True, False, True, False]
        """
        waiting = inside[self.rows]
        rows, units = self.rows[waiting], self.units[waiting]
        place = np.arange(len(rows))
        is_first = np.diff(units, prepend=-1) != 0
        place -= np.maximum.accumulate(np.where(is_first, place, 0))
        kept = inside.copy()
        kept[rows[place >= self.max_rows]] = False
        return kept


@dataclass(frozen=True, slots=True)
class Digest:
    """Keyed digests of rows, worked out by an engine as a pure function of each row's numbers."""

    connection: duckdb.DuckDBPyConnection
    salt: str

    def of_rows(self, keys: Codes, content: Sequence[Counts]) -> Codes:
        """Return the first 16 digits of md5(salt | key | content), as numbers."""
        columns = {"place": np.arange(len(keys)), "key": keys}
        columns |= {f"c{i}": each.astype(np.int64) for i, each in enumerate(content)}
        listed = ", ".join(["$1", "lpad(lower(to_hex(key)), 16, '0')", *list(columns)[2:]])
        digests = np.zeros(len(keys), dtype=np.uint64)
        self.connection.register("content", pd.DataFrame(columns))
        sql = f"SELECT place, md5_number_upper(concat_ws('|', {listed})) AS digest FROM content"
        found = self.connection.execute(sql, [self.salt]).fetchnumpy()
        self.connection.unregister("content")
        digests[found["place"]] = found["digest"]
        return digests.byteswap()  # DuckDB reads the digest from its last byte


def number_whole(identities: Counts, owned: Flags) -> Owners:
    """Number units that are known by whole numbers (rows,), where rows are owned."""
    names, units = np.unique(np.where(owned, identities, 0), return_inverse=True)
    return Owners(units.astype(np.uint32), owned, names)


def number_doubles(identities: Floats, owned: Flags) -> Owners:
    """Number units that are known by doubles (rows,): -0.0 is 0.0, and NaN is nobody."""
    known = owned & ~np.isnan(identities)
    bits = (np.where(known, identities, 0.0) + 0.0).view(np.int64)
    return number_whole(bits, known)


def number_texts(parts: Sequence[Texts], owned: Flags) -> Owners:
    """Number units that are known by text, byte for byte; ``parts`` are the rows in order."""
    split = [pd.factorize(part) for part in parts]
    units, names = pd.factorize(np.concatenate([names for _, names in split]))
    starts = np.cumsum([0, *(len(names) for _, names in split)])
    pairs = zip(split, starts, strict=False)
    numbers = np.concatenate([units[start + each] for (each, _), start in pairs])
    return Owners(numbers.astype(np.uint32), owned, names)


def queue_up(
    digest: Digest, owners: Owners, max_rows: int, content: Sequence[Counts], ties: Sequence[Floats]
) -> Queue:
    """Return the rows of units with more than ``max_rows``, in the order in which they are kept.

    ``content`` has whole numbers for every row, and ``ties`` what decides where they are the same.
    Each is (rows,).
    """
    crowded = np.bincount(owners.units[owners.owned], minlength=len(owners.names)) > max_rows
    rows = np.flatnonzero(owners.owned & crowded[owners.units])
    units = owners.units[rows].astype(np.int64)
    keys = keys_of(digest.salt, owners, crowded)[units]
    digests = digest.of_rows(keys, [each[rows] for each in content])
    order = np.lexsort((*(each[rows] for each in reversed(ties)), digests, units))
    return Queue(rows[order], units[order], max_rows)


def keys_of(salt: str, owners: Owners, crowded: Flags) -> Codes:
    """Return the first digits of md5(salt | name) for some units, zero for others.

    ``crowded`` and the keys have shape (units,).
    """
    keys = np.zeros(len(owners.names), dtype=np.uint64)
    for unit in np.flatnonzero(crowded):
        text = f"{salt}|{owners.names[unit]}".encode("utf-8", "surrogatepass")  # no name may raise
        keys[unit] = int(hashlib.md5(text, usedforsecurity=False).hexdigest()[:KEY], 16)
    return keys
