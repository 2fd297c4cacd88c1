"""A result on its way to a client: columns with their types, and rows of encoded values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from dpsql.answer.result import Result
from dpsql.records import dataclass
from dpsql.server.messages import TEXT, FieldDescription, ProtocolError
from dpsql.server.values import TYPES, WireType, encode, wire_type
from dpsql.vectors import Vector, rows_of

Write = Callable[[bytes | None], bytes | None] | None

STDDEV = "__stddev"
"""The suffix of columns of standard errors."""


class ResultStream(Protocol):
    """Columns and rows, which may be encoded in one way for all columns or column by column."""

    @property
    def heads(self) -> tuple[FieldDescription, ...]:
        """The columns, in text format."""

    def __len__(self) -> int:
        """The number of rows."""

    def rows(
        self, formats: Sequence[int], places: Sequence[int] | None = None, write: Write = None
    ) -> Iterator[Sequence[bytes | None]]:
        """The rows, or those at some places, each column in its format.

        Args:
            formats: none for text, one for all columns, or each column's own.
            places: of the rows; all by default.
            write: what becomes of every value, once it is encoded.
        """


def spread(formats: Sequence[int], count: int) -> list[int]:
    """The format of each of ``count`` values: none for text, one for all, or each its own.

    Raises: ProtocolError.
    """
    if any(each not in (0, 1) for each in formats):
        raise ProtocolError("unsupported format code", "22023")
    if len(formats) <= 1:
        return [*(formats or (TEXT,))] * count
    if len(formats) != count:
        raise ProtocolError(f"there are {len(formats)} formats for {count} values")
    return list(formats)


def heads_of(
    names: Sequence[str], kinds: Sequence[WireType], noisy: Sequence[bool] = ()
) -> tuple[FieldDescription, ...]:
    """The columns of a result, and after each noisy one that of its standard errors.

    Args:
        names: of the columns, in order.
        kinds: their types in PostgreSQL's protocol.
        noisy: True for each that gets a column of standard errors; empty where none is wanted.
    """
    found = []
    for position, (name, known) in enumerate(zip(names, kinds, strict=True)):
        found.append(FieldDescription(name, known.oid, known.size))
        if position < len(noisy) and noisy[position]:
            number = TYPES["number"]
            found.append(FieldDescription(name + STDDEV, number.oid, number.size))
    return tuple(found)


def wire_types(kinds: Sequence[str], typed: Sequence[str | None]) -> list[WireType]:
    """The types of columns, by those of a result and by what its dialect calls them."""
    names = typed or (None,) * len(kinds)
    return [wire_type(*each) for each in zip(kinds, names, strict=True)]


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A result of dpsql; ``errors`` says whether standard errors are columns of their own."""

    result: Result
    errors: bool = False

    @property
    def _noisy(self) -> tuple[bool, ...]:
        return tuple(self.errors and each is not None for each in self.result.stddev)

    @property
    def _kinds(self) -> list[WireType]:
        return wire_types(self.result.types, self.result.typed)

    @property
    def heads(self) -> tuple[FieldDescription, ...]:
        return heads_of(self.result.columns, self._kinds, self._noisy)

    def __len__(self) -> int:
        return self.result.count

    def rows(
        self, formats: Sequence[int], places: Sequence[int] | None = None, write: Write = None
    ) -> Iterator[Sequence[bytes | None]]:
        columns: list[tuple[Vector, WireType]] = []
        told = self.result.errors
        for kind, values, errors in zip(self._kinds, self.result.vectors, told, strict=True):
            columns.append((values, kind))
            if self.errors and errors is not None:
                columns.append((errors, TYPES["number"]))
        wanted = spread(formats, len(columns))
        vectors = [each if places is None else each.take(places) for each, _ in columns]
        encoders = [
            _encoder(kind, each, write) for (_, kind), each in zip(columns, wanted, strict=True)
        ]
        return rows_of(vectors, encoders)


def _encoder(kind: WireType, format_: int, write: Write) -> Callable[[Any], Any]:
    if write is None:
        return lambda value: encode(value, kind, format_)
    return lambda value: write(encode(value, kind, format_))


def formatted(heads: Sequence[FieldDescription], formats: Sequence[int]) -> list[FieldDescription]:
    """Columns, each in its format. Raises: ProtocolError."""
    wanted = spread(formats, len(heads))
    return [
        FieldDescription(head.name, head.oid, head.size, each)
        for head, each in zip(heads, wanted, strict=True)
    ]
