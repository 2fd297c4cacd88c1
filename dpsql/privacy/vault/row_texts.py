"""Rows of whole numbers as texts, written for many rows at once: ``prefix|key|5|-7|123456``.

A text is put together from pieces of up to eight bytes, each looked up: a number below ten thousand
with the bar before it, four digits of a longer one, or several small numbers of one row at once.
DuckDB takes six times as long to write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.privacy.vault.byte_texts import WORD, Counts, Words
from dpsql.records import dataclass

Numbers = npt.NDArray[np.integer[Any]]
"""Whole numbers of some rows, of any type."""
Piece = tuple[Words, Words]
"""For every row a word of text, and of how many bits."""
Writer = Callable[[slice], Iterator[Piece]]
"""For some rows, the pieces of some columns."""

RADIX = 10_000
"""Digits are looked up by four."""
BELOW, NOTHING = 2 * RADIX, 3 * RADIX
"""Where four digits are that are not the first, and a piece without any."""
ROWS, BYTES = 1 << 14, 1 << 22
"""Most rows that are written together, and most bytes of them: they stay in a cache."""
TOGETHER = 1 << 16
"""Most combinations of small numbers that have pieces of their own."""
BITS = np.uint64(8 * WORD)
ONE, LOW = np.uint64(1), np.uint64(8 * WORD - 1)


@dataclass(frozen=True, slots=True)
class RowTexts:
    """Texts of rows by words: first those that all share, then others (words, rows), then zeros.

    ``sizes`` (rows,) are in bytes.
    """

    shared: list[int]
    words: Words
    sizes: Counts


def write_rows(prefix: bytes, keys: Words, content: Sequence[Numbers]) -> Iterator[RowTexts]:
    """Yield the texts of rows, some at a time: the prefix, 16 hexadecimal digits, and numbers.

    ``keys`` and each of ``content`` are as long as the rows, of which there are some; a number has
    a bar before it.
    """
    writers, most = _writers(content)
    most += len(prefix) + 2 * WORD
    rows = min(ROWS, max(1, BYTES // most))
    for start in range(0, len(keys), rows):
        some = slice(start, min(start + rows, len(keys)))
        lines = _Lines(prefix, some.stop - start, most)
        for piece in _hexadecimal(keys[some]):
            lines.put(*piece)
        for writer in writers:
            for piece in writer(some):
                lines.put(*piece)
        yield lines.texts()


class _Lines:
    """Texts of rows that grow by a piece at a time."""

    def __init__(self, prefix: bytes, rows: int, most: int) -> None:
        self._before = len(prefix) // WORD
        self._prefix = np.frombuffer(prefix.ljust((self._before + 1) * WORD, b"\0"), "<u8").tolist()
        self._words = np.zeros((most // WORD - self._before + 2, rows), dtype=np.uint64)
        self._words[0] = self._prefix[-1]
        self._flat = self._words.ravel()
        self._rows = np.arange(rows)
        self._ends = np.full(rows, 8 * len(prefix) % BITS, dtype=np.uint64)

    def put(self, word: Words, bits: Words) -> None:
        """Add a piece: to the word that a text ends in, and what is beyond that to the next one."""
        shift = self._ends & LOW
        at = (self._ends // BITS).view(np.int64) * len(self._rows) + self._rows
        self._flat[at] |= word << shift
        self._flat[at + len(self._rows)] = word >> ONE >> (LOW - shift)
        self._ends = self._ends + bits

    def texts(self) -> RowTexts:
        """Return the texts."""
        sizes = (self._ends // np.uint64(8)).view(np.int64) + self._before * WORD
        count = int(sizes.max()) // WORD + 1 - self._before
        return RowTexts(self._prefix[:-1], self._words[:count], sizes)


def _hexadecimal(keys: Words) -> Iterator[Piece]:
    bits = np.full(len(keys), BITS)
    for shift in (48, 16):
        high, low = ((keys >> np.uint64(each)) & np.uint64(0xFFFF) for each in (shift, shift - 16))
        yield _hexadecimal_digits()[high] | _hexadecimal_digits()[low] << np.uint64(32), bits


@cache
def _hexadecimal_digits() -> Words:
    """Return the four hexadecimal digits of all numbers of 16 bits."""
    return np.array([b"%04x" % i for i in range(1 << 16)]).view("<u4").astype(np.uint64)


@cache
def _digits() -> Piece:
    """Return the pieces of numbers below RADIX: with a bar, with a minus too, as later digits."""
    forms = ("|%d", "|-%d", "%04d")
    texts = [form % i for form in forms for i in range(RADIX)] + [""]
    sizes = np.array([len(each) for each in texts], dtype=np.uint64)
    return np.array(texts, dtype="S8").view("<u8"), sizes * np.uint64(8)


def _writers(content: Sequence[Numbers]) -> tuple[list[Writer], int]:
    """Return what writes the numbers of some columns, and how many bytes these take at most."""
    writers: list[Writer] = []
    small: list[tuple[Numbers, int]] = []
    most = 0

    def together() -> None:
        if small:
            writers.append(_small([column for column, _ in small], [count for _, count in small]))
            small.clear()

    for column in content:
        low, high = int(column.min()), int(column.max())
        size = 1 + max(len(str(low)), len(str(high)))
        most += size
        if low < 0 or high >= RADIX:
            together()
            writers.append(_large(column, size))
            continue
        counts = [*(count for _, count in small), high + 1]
        bytes_ = sum(len(str(count - 1)) + 1 for count in counts)
        if np.prod(counts) > TOGETHER or bytes_ > WORD:
            together()
        small.append((column, high + 1))
    together()
    return writers, most


def _small(columns: Sequence[Numbers], counts: Sequence[int]) -> Writer:
    """Write numbers below ``counts``, whose combinations are few and short, as one piece."""
    words, bits = (each[: counts[0]] for each in _digits())
    for count in counts[1:]:
        more, longer = (each[:count] for each in _digits())
        words = (words[:, np.newaxis] | more << bits[:, np.newaxis]).ravel()
        bits = (bits[:, np.newaxis] + longer).ravel()

    def write(some: slice) -> Iterator[Piece]:
        places = columns[0][some].astype(np.int64)
        for column, count in zip(columns[1:], counts[1:], strict=True):
            places = places * count + column[some]
        yield words[places], bits[places]

    return write


def _large(column: Numbers, size: int) -> Writer:
    """Write any whole numbers, four digits at a time; ``size`` is that of the longest."""

    def write(some: slice) -> Iterator[Piece]:
        numbers = column[some]
        is_negative = numbers < 0
        rest = numbers.astype(np.uint64)
        rest = np.where(is_negative, np.uint64(0) - rest, rest)
        words, bits = _digits()
        begun = np.zeros(len(numbers), dtype=np.bool_)
        for place in range((size - 2) // 4, -1, -1):
            digits, rest = np.divmod(rest, np.uint64(RADIX**place))
            is_first = ~begun & ((digits > 0) | (place == 0))
            first = digits + np.uint64(RADIX) * is_negative
            later = np.where(begun, digits + np.uint64(BELOW), np.uint64(NOTHING))
            places = np.where(is_first, first, later)
            begun |= is_first
            yield words[places], bits[places]

    return write
