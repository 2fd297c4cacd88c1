"""Rows of whole numbers as texts, written for many rows at once: ``prefix|key|5|-7|123456``.

The texts of many rows lie word beside word, as their digests are worked out. A row is put together
from pieces of up to eight bytes, each looked up: a number below ten thousand with the bar before
it, four digits of a longer one, or several small numbers at once. DuckDB takes six times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.privacy.vault.codes.byte_texts import LONG, WORD, ByteTexts, Counts, Words
from dpsql.records import dataclass

Numbers = npt.NDArray[np.integer[Any]]
"""Whole numbers of some rows, of any type."""
Piece = tuple[Words, Words]
"""For every row a word of text, and of how many bits."""
Writer = Callable[[slice], Iterator[Piece]]
"""For some rows, the pieces of some columns."""

RADIX = 10_000
"""Digits are looked up by four."""
ROWS, BYTES = 1 << 15, 1 << 22
"""Most rows that are written together, and most bytes of them: they stay in a cache."""
TOGETHER = 1 << 13
"""Most combinations of small numbers that have pieces of their own."""
BITS = np.uint64(8 * WORD)
ONE, LOW, PLACE = np.uint64(1), np.uint64(8 * WORD - 1), np.uint64(6)


@dataclass(frozen=True, slots=True)
class RowTexts:
    """Texts of rows by words: first those that all share, then others (words, rows), then zeros.

    ``sizes`` (rows,) are in bytes.
    """

    shared: list[int]
    words: Words
    sizes: Counts

    def each(self, rows: Counts) -> Iterator[bytes]:
        """Yield the texts of some rows."""
        shared = b"".join(each.to_bytes(WORD, "little") for each in self.shared)
        words = np.ascontiguousarray(self.words[:, rows].T, dtype="<u8")
        for own, size in zip(words, self.sizes[rows].tolist(), strict=True):
            yield (shared + own.tobytes())[:size]


def write_rows(
    prefix: bytes, keys: Words, content: Sequence[Numbers], tops: Sequence[int] = ()
) -> Iterator[RowTexts]:
    """Yield the texts of rows, some at a time: the prefix, 16 hexadecimal digits, and numbers.

    ``keys`` and each of ``content`` are as long as the rows; a number has a bar before it. ``tops``
    are the largest numbers that columns can have, by default those of their types: how they are
    written follows from these, not from numbers that are there.
    """
    writers, most = _writers(content, tops)
    most += len(prefix) + 2 * WORD
    rows = min(ROWS, max(1, BYTES // most))
    for start in range(0, max(1, len(keys)), rows):
        some = slice(start, min(start + rows, len(keys)))
        lines = _Lines(prefix, some.stop - start, most)
        for i, word in enumerate(_hexadecimal(keys[some])):
            lines.lay(i, word)
        lines.ends += BITS + BITS
        for writer in writers:
            for piece in writer(some):
                lines.put(*piece)
        yield lines.texts()


def write_texts(prefix: bytes, texts: ByteTexts) -> RowTexts:
    """Return each of some texts after a prefix; of those that are long, the prefix alone."""
    sizes = np.where(texts.sizes < LONG, texts.sizes, 0)
    lines = _Lines(prefix, len(texts), len(prefix) + int(sizes.max(initial=0)))
    for i, (rows, words) in enumerate(texts.words()):
        lines.lay(i, words, rows)
    lines.ends += sizes.view(np.uint64) * np.uint64(8)
    return lines.texts()


class _Lines:
    """Texts of rows that grow by a piece at a time; ``ends`` (rows,) are in bits."""

    def __init__(self, prefix: bytes, rows: int, most: int) -> None:
        before, beyond = divmod(len(prefix), WORD)
        self._shared = np.frombuffer(prefix[: before * WORD], "<u8").tolist()
        self._words = np.zeros((most // WORD - before + 2, rows), dtype=np.uint64)
        self._words[0] = int.from_bytes(prefix[before * WORD :], "little")
        self._flat = self._words.ravel()
        self._rows = np.arange(rows)
        self._shift = np.uint64(8 * beyond)
        self.ends = np.full(rows, self._shift)

    def lay(self, place: int, word: Words, rows: Counts | slice = slice(None)) -> None:
        """Lay a word of some rows where all have one: after the prefix and ``place`` words."""
        self._words[place, rows] |= word << self._shift
        self._words[place + 1, rows] = word >> ONE >> (LOW - self._shift)

    def put(self, word: Words, bits: Words) -> None:
        """Add a piece: to the word that a text ends in, and what is beyond that to the next one."""
        shift = self.ends & LOW
        at = (self.ends >> PLACE).view(np.int64) * len(self._rows) + self._rows
        self._flat[at] |= word << shift
        self._flat[at + len(self._rows)] = word >> ONE >> (LOW - shift)
        self.ends += bits

    def texts(self) -> RowTexts:
        """Return the texts."""
        sizes = (self.ends // np.uint64(8)).view(np.int64)
        count = int(sizes.max(initial=0)) // WORD + 1
        return RowTexts(self._shared, self._words[:count], sizes + len(self._shared) * WORD)


def _hexadecimal(keys: Words) -> Sequence[Words]:
    """Return the two words of 16 hexadecimal digits of every key."""
    parts, digits = keys.astype("<u8", copy=False).view("<u2").reshape(-1, 4), _hexadecimal_digits()
    return [digits[parts[:, i]] | digits[parts[:, i - 1]] << np.uint64(32) for i in (3, 1)]


@cache
def _hexadecimal_digits() -> Words:
    """Return the four hexadecimal digits of all numbers of 16 bits."""
    numbers, digits = np.arange(1 << 16), np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    found = np.zeros(1 << 16, dtype=np.uint64)
    for place in range(4):
        digit = digits[numbers >> 12 - 4 * place & 15].astype(np.uint64)
        found |= digit << np.uint64(8 * place)
    return found


@cache
def _digits(is_last: bool = True) -> Piece:
    """Return pieces of four digits: those of a number that has none before, and those after others.

    Numbers with a minus follow. Those before the last have none for a zero that is the first.
    """
    numbers, widths = np.arange(RADIX), np.full(RADIX, 4)
    short = 1 + (numbers >= 10) + (numbers >= 100) + (numbers >= 1000)
    if not is_last:
        short[0] = -1
    words, sizes = [], []
    for bar in (b"|", b"|-"):
        words += [_words(bar, numbers, short), _words(b"", numbers, widths)]
        sizes += [np.where(short < 0, 0, len(bar) + short), widths]
    return np.concatenate(words), np.concatenate(sizes).astype(np.uint64) * np.uint64(8)


def _words(bar: bytes, numbers: Numbers, widths: Numbers) -> Words:
    """Return words of a bar and of so many digits of numbers; zero for those of width -1."""
    found = np.full(len(numbers), int.from_bytes(bar, "little"), dtype=np.uint64)
    for place in range(4):
        # 48 is the code of the digit zero.
        digit = 48 + numbers // 10 ** np.maximum(widths - 1 - place, 0) % 10
        shift = np.uint64(8 * (len(bar) + place))
        found |= np.where(place < widths, digit, 0).astype(np.uint64) << shift
    return np.where(widths < 0, np.uint64(0), found)


def _writers(content: Sequence[Numbers], tops: Sequence[int]) -> tuple[list[Writer], int]:
    """Return what writes the numbers of some columns, and how many bytes these take at most."""
    writers: list[Writer] = []
    small: list[tuple[Numbers, int]] = []
    most = 0

    def together() -> None:
        if small:
            writers.append(_small([column for column, _ in small], [count for _, count in small]))
            small.clear()

    highest = tops or [int(np.iinfo(column.dtype).max) for column in content]
    for column, high in zip(content, highest, strict=True):
        is_signed = column.dtype.kind == "i"
        size = 1 + len(str(high))
        most += size + is_signed
        if is_signed or high >= RADIX:
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
    words, bits = _pieces(tuple(counts))

    def write(some: slice) -> Iterator[Piece]:
        places = columns[0][some].astype(np.int64)
        for column, count in zip(columns[1:], counts[1:], strict=True):
            places = places * count + column[some]
        yield words[places], bits[places]

    return write


@lru_cache(maxsize=32)
def _pieces(counts: tuple[int, ...]) -> Piece:
    """Return the pieces of all combinations of numbers below ``counts``."""
    words, bits = (each[: counts[0]] for each in _digits())
    for count in counts[1:]:
        more, longer = (each[:count] for each in _digits())
        words = (words[:, np.newaxis] | more << bits[:, np.newaxis]).ravel()
        bits = (bits[:, np.newaxis] + longer).ravel()
    return words, bits


def _large(column: Numbers, size: int) -> Writer:
    """Write any whole numbers, four digits at a time; ``size`` is that of the longest."""

    def write(some: slice) -> Iterator[Piece]:
        numbers = column[some].astype(np.uint64)
        form = np.zeros(1, dtype=np.uint64)
        if column.dtype.kind == "i":
            is_negative = column[some] < 0
            numbers = np.where(is_negative, np.uint64(0) - numbers, numbers)
            form = np.uint64(2 * RADIX) * is_negative
        before = np.zeros(1, dtype=np.uint64)
        for place in range((size - 2) // 4, -1, -1):
            whole = numbers // np.uint64(RADIX**place) if place else numbers
            follows = np.uint64(RADIX) * (before > 0)
            places = whole - before * np.uint64(RADIX) + follows + form
            words, bits = _digits(is_last=not place)
            yield words[places], bits[places]
            before = whole

    return write
