"""Data engines: they fetch columns of single rows as plain numbers, and decide nothing.

What a value means, which rows count and what is added up is worked out from these numbers, in
numpy, the same for every engine. That of files is :mod:`dpsql.privacy.vault.files.duckdb`; other
packages add theirs by an entry point, see docs/architecture.md.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Table
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.codes.byte_texts import ByteTexts
from dpsql.records import dataclass

Codes = npt.NDArray[np.unsignedinteger]
Counts = npt.NDArray[np.int64]
Classes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Room = tuple[int, ...] | None
"""The shape that an array of counts may have, larger than there are cells; None for just these."""

VERSION = 1
"""The version of this protocol, which every engine names."""

NESTED = "nested"
TYPE_FAMILIES = (
    *("integer", "float", "decimal", "boolean", "text", "date", "timestamp", "time"),
    "other",
    NESTED,
)
"""The families of stored types that engines tell; nested is every type that is not known."""

Form = Literal["number", "whole", "boolean", "day", "clock", "time", "place", "key"]
"""Forms of values handed over: doubles (NaN is missing), or integers: whole numbers, 0 and 1, days
since 1970 in UTC, microseconds since 1970 on a clock, or since midnight of a time of day, the place
of a text in a list. A key, which engines of other packages are not asked for, is handed over as a
unit is, among the ``keys`` of a batch."""


@dataclass(frozen=True, slots=True)
class RequestedColumn:
    """A stored column as it is asked for: its values in a form; ``texts`` are those with a place.

    ``zone`` is where the clock hangs that shows stored instants; times without a zone stay.
    """

    column: str
    form: Form
    texts: tuple[str, ...] = ()
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Values64:
    """The values of one column as int64 or float64, and where they are missing or no values.

    Three arrays of shape (rows,). A value is missing where none is stored, and unknown where what
    is stored has not the form: a text that is no number, a fraction in a column of integers.
    """

    numbers: Counts | Floats
    missing: Flags
    unknown: Flags


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows: the values of the asked columns, in order, and whom every row belongs to.

    ``units`` are whole numbers, doubles or texts, shape (rows,): the same for rows of one unit,
    other ones for rows of another; texts are Python's, or bytes. Where ``owned`` is False a row has
    no unit. ``keys`` are the asked keys, in order: values like units, and where there is one.
    """

    rows: int
    columns: Sequence[Values64]
    units: npt.NDArray[Any] | ByteTexts | None = None
    owned: Flags | None = None
    keys: Sequence[tuple[npt.NDArray[Any], Flags]] = ()

    def check(self, asked: Sequence[RequestedColumn], by_unit: bool) -> None:
        """Raise ValueError unless every array has the type and the length that it must have."""
        found: list[npt.NDArray[Any] | ByteTexts] = [each.numbers for each in self.columns]
        flags = [flag for each in self.columns for flag in (each.missing, each.unknown)]
        plain = [each.form for each in asked if each.form != "key"]
        types = ["float64" if form == "number" else "int64" for form in plain]
        named: list[tuple[npt.NDArray[Any] | ByteTexts, npt.NDArray[Any]]] = [*self.keys]
        if by_unit:
            names = self.units if isinstance(self.units, ByteTexts) else np.asarray(self.units)
            named.append((names, np.asarray(self.owned)))
        found, flags = [*found, *(n for n, _ in named)], [*flags, *(known for _, known in named)]
        types += ["int64 float64 object"] * (len(asked) - len(plain) + by_unit)
        types += ["bool"] * len(flags)
        for array, accepted in zip([*found, *flags], types, strict=True):
            if array.dtype.name not in accepted.split() or array.shape != (self.rows,):
                raise ValueError("an array of a batch has another type or length")


class StoredTable(Protocol):
    """The rows of one table as an engine holds them."""

    @property
    def kind(self) -> str:
        """The kind of store that holds them, in a word for the curator."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that hold them; for a server, a name that tells its tables apart."""

    @property
    def table(self) -> str:
        """The table within the files, empty where they hold one alone."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The name and the family of every column, from the schema alone."""

    @property
    def untyped(self) -> bool:
        """True if columns are text whatever they hold, so that their families say nothing."""

    def fingerprint(self) -> str:
        """Return what tells one version of the data from another: never anything about a value.

        Raises: OSError, DataUnavailable when they are gone.
        """

    def read(self, asked: Sequence[RequestedColumn], unit: str | None) -> Iterator[Batch]:
        """Yield all rows, a few at a time, with the privacy unit in a column of that name.

        Every reading has the same order of rows, whatever is asked.

        Guarantee: what is yielded of a row is a function of that row alone, and no stored value
        can make it fail. Raises: anything when the data are no longer those that were opened.
        """

    def texts(self, column: str) -> Iterator[npt.NDArray[np.object_]]:
        """Yield all values of a column as text in the order of ``read``, masked where missing."""


class DataEngine(Protocol):
    """Opens tables whose source is of its form."""

    version: int

    def open(self, table: Table) -> StoredTable:
        """Find the rows of a table and read their schema, never a value.

        Raises: DataUnavailable, whose text is about the source and the schema.
        """


class Unreadable(Exception):
    """A file that is not what its catalog says, by its name, its header, or how it is packed."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem, self.hint = problem, hint


class DamagedError(OSError):
    """A compressed file that cannot be unpacked to its end; its text is the reason."""

    hint = "fetch or write it again, whole: gzip -t, bzip2 -t, xz -t and zstd -t say if one is"


def find(columns: Sequence[tuple[str, str]], name: str) -> int | None:
    """Return the position of a column: the exact name, else a unique match without case.

    >>> find([("Age", "integer"), ("sex", "text")], "age"), find([("a", ""), ("A", "")], "a")
    (0, 0)
    """
    names = [column for column, _ in columns]
    if name in names:
        return names.index(name)
    near = [i for i, each in enumerate(names) if each.casefold() == name.casefold()]
    return near[0] if len(near) == 1 else None


def fingerprint(paths: Sequence[str], columns: object) -> str:
    """Hash the paths, sizes and modification times of files, and a schema. Raises: OSError."""
    text = json.dumps([[_file_facts(path) for path in paths], columns])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _file_facts(path: str) -> list[str | int]:
    facts = os.stat(path)
    return [path, facts.st_size, facts.st_mtime_ns]


def unavailable(
    table: str, source: str, problem: str, hint: str | None = None, code: str = "E_DATA"
) -> NoReturn:
    """Raise the DataUnavailable that names table and source."""
    raise DataUnavailable(code, f"table {table!r}, source {source!r}: {problem}", hint=hint)
