"""Rows in PostgreSQL's binary copy format, as arrays: fixed widths first, texts last.

Every whole number is sent with two of its type's least values for "missing" and "unknown", so that
a row has one width but for its texts. Source: PostgreSQL documentation, COPY, binary format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.privacy.vault.data_engine import Counts, Values64

SIGNATURE = b"PGCOPY\n\xff\r\n\0"
HEADER = len(SIGNATURE) + 8
SENT_AS = {"int4": ">i4", "int8": ">i8", "float8": ">f8", "bool": ">i1"}


@dataclass(frozen=True, slots=True)
class CopyLayout:
    """The types of the columns of fixed width, and how many texts follow."""

    fixed: Sequence[str]
    texts: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """One row up to its texts: the number of columns, then each with its length before it."""
        fields: list[tuple[str, str]] = [("columns", ">i2")]
        for i, kind in enumerate(self.fixed):
            fields += [(f"length{i}", ">i4"), (f"v{i}", SENT_AS[kind])]
        return np.dtype(fields)

    def read(
        self, sent: Iterable[Sequence[bytes | bytearray | memoryview]]
    ) -> Iterator[tuple[Any, list[list[str]]]]:
        """Yield rows as arrays with a field per column, and the texts of every text column.

        ``sent`` are blocks of bytes, those that become arrays together.
        Raises: ValueError for anything but the declared layout; UnicodeDecodeError.
        """
        rest, is_first = b"", True
        for blocks in sent:
            starts = np.cumsum([len(rest), *map(len, blocks)])
            rest += b"".join(blocks)
            if is_first:
                if len(rest) < HEADER:
                    continue
                if not rest.startswith(SIGNATURE) or rest[len(SIGNATURE) : HEADER] != bytes(8):
                    raise ValueError("not a binary copy")
                rest, is_first = rest[HEADER:], False
                starts = np.maximum(starts - HEADER, 0)
            fixed, texts, used = self._split(rest, starts)
            rest = rest[used:]
            if len(fixed):
                yield fixed, texts
        if is_first or rest != b"\xff\xff":
            raise ValueError("a copy that breaks off")

    def _split(self, data: bytes, blocks: Counts) -> tuple[Any, list[list[str]], int]:
        """Return the whole rows at the start of some bytes, and how many bytes they take.

        ``blocks`` is where blocks start, and the end: servers send each row in one of its own.
        """
        dtype = self.dtype
        texts: list[list[str]] = [[] for _ in range(self.texts)]
        if not self.texts:
            rows = np.frombuffer(data, dtype, len(data) // dtype.itemsize)
            return self._checked(rows), texts, rows.nbytes
        ends = self._ends(data, blocks)
        if ends is not None:
            return self._cut(data, blocks[:-1], ends)
        starts, position, width = [], 0, dtype.itemsize
        while (end := self._take(data, position + width, texts)) is not None:
            starts.append(position)
            position = end
        for each in texts:
            del each[len(starts) :]
        return self._fixed(data, np.array(starts, dtype=np.int64)), texts, position

    def _fixed(self, data: bytes, starts: Counts) -> Any:
        """Return what rows that start there have before their texts."""
        places = starts[:, np.newaxis] + np.arange(self.dtype.itemsize)
        return self._checked(np.frombuffer(data, np.uint8)[places].view(self.dtype).reshape(-1))

    def _ends(self, data: bytes, blocks: Counts) -> list[Counts] | None:
        """Return where the texts of all rows end, column by column; None if blocks are no rows."""
        at, ends = blocks[:-1] + self.dtype.itemsize, []
        bytes_of = np.frombuffer(data, np.uint8)
        for _ in range(self.texts):
            if not len(at) or (at < blocks[:-1]).any() or (at + 4 > blocks[1:]).any():
                return None
            size = bytes_of[at[:, np.newaxis] + np.arange(4)].view(">i4").reshape(-1)
            at = at + 4 + size
            ends.append(at)
        return ends if blocks[0] == 0 and np.array_equal(at, blocks[1:]) else None

    def _cut(
        self, data: bytes, starts: Counts, ends: Sequence[Counts]
    ) -> tuple[Any, list[list[str]], int]:
        """Return rows whose ends are known; a text of PostgreSQL has no NUL."""
        texts, first = [], starts + self.dtype.itemsize + 4
        for each in ends:
            pairs = zip(first.tolist(), each.tolist(), strict=True)
            texts.append(b"\0".join([data[one:two] for one, two in pairs]).decode().split("\0"))
            first = each + 4
        return self._fixed(data, starts), texts, len(data)

    def _take(self, data: bytes, position: int, texts: list[list[str]]) -> int | None:
        """Take the texts of one row; None where the bytes end before."""
        for each in texts:
            start = position + 4
            if start > len(data):
                return None
            position = start + int.from_bytes(data[position:start], signed=True)
            if position > len(data):
                return None
            each.append(data[start:position].decode())
        return position

    def _checked(self, rows: Any) -> Any:
        """Raise ValueError where a row has other columns, or a NULL, which is never sent."""
        wrong = rows["columns"] != len(self.fixed) + self.texts
        for i, kind in enumerate(self.fixed):
            wrong |= rows[f"length{i}"] != np.dtype(SENT_AS[kind]).itemsize
        if wrong.any():
            raise ValueError("rows of another form")
        return rows


def whole_values(numbers: npt.NDArray[Any]) -> Values64:
    """Return whole numbers (rows,); the type's two least stand for missing and unknown ones."""
    least = np.iinfo(numbers.dtype).min
    return Values64(numbers.astype(np.int64), numbers == least, numbers == least + 1)


def double_values(numbers: npt.NDArray[Any]) -> Values64:
    """Return doubles (rows,); NaN is missing."""
    found = numbers.astype(np.float64)
    return Values64(found, np.isnan(found), np.zeros(len(found), dtype=np.bool_))
