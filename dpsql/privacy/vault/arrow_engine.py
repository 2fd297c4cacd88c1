"""Data engines of other packages that hand over batches of Arrow, and leave all else to dpsql."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.data_engine import VERSION, Batch, RequestedColumn
from dpsql.privacy.vault.files.arrow_rows import ArrowRows
from dpsql.privacy.vault.files.duckdb import fetch_rows, fetch_texts
from dpsql.privacy.vault.files.source import Source, arrow_columns, connect, family, harden
from dpsql.privacy.vault.servers.counter import Counter
from dpsql.records import dataclass, field


class ArrowTable(ArrowRows, Protocol):
    """The rows of one table of another package's store, as batches of Arrow.

    One that can be counted where it is has ``types`` and ``open_counter`` besides; see
    :class:`dpsql.privacy.vault.servers.counter.CountingTable`.
    """

    @property
    def kind(self) -> str:
        """The kind of store that holds them, in a word for the curator."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that hold them; for a server, a name that tells its tables apart."""

    @property
    def table(self) -> str:
        """The table within the files, empty where they hold one alone."""

    def fingerprint(self) -> str:
        """Return what tells one version of the data from another: never anything about a value.

        Raises: OSError, DataUnavailable when they are gone.
        """


class ArrowEngine:
    """A data engine of batches of Arrow, which are read as files are.

    Args:
        open: finds the rows of a table by its source, and reads their schema. It raises
            DataUnavailable, whose text is about the source and the schema, where it cannot.

    Guarantee: what a value means is decided by the one conversion of all engines, row by row, and
    no value can make it fail; whether rows follow from themselves alone is up to the package.
    """

    version = VERSION

    def __init__(self, open: Callable[[Table], ArrowTable]) -> None:
        self._open = open

    def open(self, table: Table) -> StoredArrow:
        """Open a table. Raises: DataUnavailable."""
        found = self._open(table)
        with connect(threads=1) as connection:
            harden(connection, ())
            columns = arrow_columns(connection, found)
        counts = hasattr(type(found), "open_counter")
        return (CountedArrow if counts else StoredArrow)(found, columns)


@dataclass(frozen=True, slots=True)
class StoredArrow:
    """An open table; see :class:`dpsql.privacy.vault.data_engine.StoredTable`."""

    rows: ArrowTable
    handed: tuple[tuple[str, str], ...]
    columns: tuple[tuple[str, str], ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        columns = tuple((name, family(stored)) for name, stored in self.handed)
        object.__setattr__(self, "columns", columns)

    @property
    def kind(self) -> str:
        return self.rows.kind

    @property
    def paths(self) -> tuple[str, ...]:
        return self.rows.paths

    @property
    def table(self) -> str:
        return self.rows.table

    @property
    def untyped(self) -> bool:
        return False

    @property
    def source(self) -> Source:
        """The rows as those of files are read."""
        return Source("", "arrow", ("",), self.handed, opened=lambda _: self.rows)

    def fingerprint(self) -> str:
        return self.rows.fingerprint()

    def read(self, asked: Sequence[RequestedColumn], unit: str | None) -> Iterator[Batch]:
        with connect() as connection:
            harden(connection, ())
            yield from fetch_rows(connection, self.source, asked, unit)

    def texts(self, column: str) -> Iterator[npt.NDArray[np.object_]]:
        with connect() as connection:
            harden(connection, ())
            yield from fetch_texts(connection, self.source, column)


class CountedArrow(StoredArrow):
    """An open table that its package counts where it is; see :class:`CountingTable`."""

    __slots__ = ()

    @property
    def types(self) -> Sequence[tuple[str, str]]:
        """The native types of its columns, for the dialect of its counter."""
        rows: Any = self.rows
        found: Sequence[tuple[str, str]] = rows.types
        return found

    def open_counter(self) -> Counter:
        """Open a session that counts. Raises: DataUnavailable."""
        rows: Any = self.rows
        found: Counter = rows.open_counter()
        return found
