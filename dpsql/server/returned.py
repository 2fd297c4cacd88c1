"""A result on its way to a client: columns with their types, and rows of encoded values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from dpsql.answer.numbers import told_error
from dpsql.answer.result import Result
from dpsql.records import dataclass
from dpsql.server.messages import TEXT, Head, ProtocolError
from dpsql.server.values import TYPES, WireType, encode, wire_type

STDDEV = "__stddev"
"""The suffix of columns of standard errors."""


class Returned(Protocol):
    """Columns and rows, which may be encoded in one way for all columns or column by column."""

    @property
    def heads(self) -> tuple[Head, ...]:
        """The columns, in text format."""

    def __len__(self) -> int:
        """The number of rows."""

    def rows(
        self, formats: Sequence[int], places: Sequence[int] | None = None
    ) -> Iterator[list[bytes | None]]:
        """The rows, or those at some places, each column in its format."""


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
) -> tuple[Head, ...]:
    """The columns of a result, and after each noisy one that of its standard errors."""
    found = []
    for position, (name, known) in enumerate(zip(names, kinds, strict=True)):
        found.append(Head(name, known.oid, known.size))
        if position < len(noisy) and noisy[position]:
            number = TYPES["number"]
            found.append(Head(name + STDDEV, number.oid, number.size))
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
    def heads(self) -> tuple[Head, ...]:
        return heads_of(self.result.columns, self._kinds, self._noisy)

    def __len__(self) -> int:
        return len(self.result.rows)

    def rows(
        self, formats: Sequence[int], places: Sequence[int] | None = None
    ) -> Iterator[list[bytes | None]]:
        wanted = spread(formats, len(self.heads))
        result, noisy = self.result, self._noisy
        kinds = self._kinds
        for number in range(len(self)) if places is None else places:
            values: list[bytes | None] = []
            for position, value in enumerate(result.rows[number]):
                values.append(encode(value, kinds[position], wanted[len(values)]))
                errors = result.stddev[position] if noisy and noisy[position] else None
                if errors is not None:
                    error = told_error(errors[number], value, result.types[position])
                    values.append(encode(error, TYPES["number"], wanted[len(values)]))
            yield values


def formatted(heads: Sequence[Head], formats: Sequence[int]) -> list[Head]:
    """Columns, each in its format. Raises: ProtocolError."""
    wanted = spread(formats, len(heads))
    return [
        Head(head.name, head.oid, head.size, each) for head, each in zip(heads, wanted, strict=True)
    ]
