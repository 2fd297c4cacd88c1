"""Fetching: the results of what was executed, row by row, as data frames, in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from dpsql.answer.result import Result
from dpsql.errors import InterfaceError, Warning
from dpsql.vectors import BATCH, Vector, rows_of

if TYPE_CHECKING:
    import pandas as pd
    import polars


class Fetching:
    """Walks the results of a script and the rows of each (PEP 249).

    ``messages`` has the notes of the current result, as pairs of an exception class and a text;
    ``lastrowid`` is None, since nothing is inserted.
    """

    lastrowid: None = None

    def __init__(self) -> None:
        self.arraysize = 1
        self._results: list[Result] = []
        self._position = 0
        self._row = 0
        self._closed = False
        self._shown: Result | None = None
        self._held: tuple[int, list[tuple[Any, ...]]] = (0, [])

    def _start(self) -> None:
        """Forget the results: nobody takes those of a statement for those of a refused one."""
        self._check_open()
        self._finish(())

    def _finish(self, results: Sequence[Result]) -> None:
        self._results = list(results)
        self._position = self._row = 0
        self._shown, self._held = None, (0, [])

    def _show(self, result: Result) -> Result:
        """The result as its rows are fetched."""
        return result

    @property
    def result(self) -> Result:
        """The current result; raises InterfaceError before the first execute."""
        self._check_open()
        if not self._results:
            raise InterfaceError("E_NO_RESULT", "nothing has been executed")
        return self._results[self._position]

    @property
    def stddev(self) -> tuple[Vector | None, ...]:
        """The standard errors of the current result, column by column."""
        return self.result.stddev

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """PEP 249 column descriptions: name and type code, then five times None."""
        if not self._results or not self.result.columns:
            return None
        shown = self._fetched
        pairs = zip(shown.columns, shown.types, strict=True)
        return [(name, kind, None, None, None, None, None) for name, kind in pairs]

    @property
    def rowcount(self) -> int:
        """Number of rows of the current result, or -1."""
        return self.result.count if self.description else -1

    @property
    def rownumber(self) -> int | None:
        """The index of the next row, from 0; None without rows to fetch."""
        return self._row if self.description else None

    @property
    def messages(self) -> list[tuple[type[Warning], str]]:
        """The notes on the current result, as warnings."""
        return [(Warning, note) for note in self.result.notes] if self._results else []

    def nextset(self) -> bool | None:
        """Move on to the result of the next statement; None when there is none."""
        self._check_open()
        if self._position + 1 >= len(self._results):
            return None
        self._position += 1
        self._row = 0
        self._shown, self._held = None, (0, [])
        return True

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None. Raises: InterfaceError (E_NO_RESULT) without columns."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The next ``size`` rows (``arraysize`` by default)."""
        count = self.arraysize if size is None else max(0, size)
        vectors, start = self._vectors, self._row
        stop = min(start + count, len(vectors[0]))
        self._row = stop
        first, held = self._held
        if start < first or stop > first + len(held):
            first, last = start, max(stop, start + BATCH)
            held = list(rows_of(vectors, rows=slice(first, last)))
            self._held = (first, held if stop - start < BATCH else [])
        return held[start - first : stop - first]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the remaining rows."""
        return self.fetchmany(sys.maxsize)

    @property
    def _vectors(self) -> tuple[Vector, ...]:
        """The columns of the current result. Raises: InterfaceError (E_NO_RESULT, E_CLOSED)."""
        if not self.result.columns:
            what = "the last statement has no rows to fetch"
            raise InterfaceError("E_NO_RESULT", what, hint="a SELECT, SHOW or DESCRIBE has")
        return self._fetched.vectors

    @property
    def _fetched(self) -> Result:
        if self._shown is None:
            self._shown = self._show(self.result)
        return self._shown

    def scroll(self, value: int, mode: str = "relative") -> None:
        """Move to another row of the current result, by so many or to an index from 0.

        Raises: IndexError outside the result, as PEP 249 has it; InterfaceError (E_SETTING).
        """
        if mode not in ("relative", "absolute"):
            raise InterfaceError("E_SETTING", f"mode = {mode!r}", hint="'relative' or 'absolute'")
        target = value + (self._row if mode == "relative" else 0)
        count = len(self._vectors[0])
        if not 0 <= target <= count:
            raise IndexError(f"there is no row {target} among {count}")
        self._row = target

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Any, ...]:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    next = __next__

    def df(self, *, stddev: bool = False) -> pd.DataFrame:
        """The current result as a data frame of pandas, with its notes and cost in ``attrs``.

        ``stddev`` adds a column ``<name>_stddev`` after every noisy one. All rows are in it,
        however many were fetched before; ``fetchdf``, ``fetch_df`` and those of the other methods
        are names that DuckDB has for the same. Raises: InterfaceError (E_NO_RESULT, E_CLOSED).
        """
        return self.result.df(stddev=stddev)

    def pl(self, *, stddev: bool = False) -> polars.DataFrame:
        """The current result as a data frame of polars. Raises: NotSupportedError (E_PACKAGE)."""
        return self.result.pl(stddev=stddev)

    def arrow(self, *, stddev: bool = False) -> Any:
        """The current result as an Arrow table. Raises: NotSupportedError (E_PACKAGE)."""
        return self.result.arrow(stddev=stddev)

    def fetchnumpy(self, *, stddev: bool = False) -> dict[str, Any]:
        """The columns of the current result as arrays, masked where values are NULL."""
        return self.result.numpy(stddev=stddev)

    fetchdf = fetch_df = df
    fetch_arrow_table = to_arrow_table = arrow

    def _repr_html_(self) -> str | None:
        return self._results[self._position]._repr_html_() if self._results else None

    def setinputsizes(self, sizes: object) -> None:
        """Does nothing (PEP 249)."""

    def setoutputsize(self, size: object, column: object = None) -> None:
        """Does nothing (PEP 249)."""

    def close(self) -> None:
        """Forget the results."""
        self._closed = True
        self._results = []

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("E_CLOSED", "the cursor is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
