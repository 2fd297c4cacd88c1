"""What every vault answers, and how failures inside it are silenced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dpsql.catalog.catalog import Table
from dpsql.errors import InternalError, is_interrupt
from dpsql.workload.cells import AnyResolution

Codes = npt.NDArray[np.unsignedinteger]
Counts = npt.NDArray[np.int64]
Classes = npt.NDArray[np.int64]
T = TypeVar("T")


class Vault(Protocol):
    """One private table, read once per version of its data.

    Guarantee: every vector is a marginal of one table of integer codes, the declared view of some
    columns, in which tables that differ by one privacy unit differ by at most ``max_rows`` rows.
    """

    @property
    def data_version(self) -> str:
        """Fingerprint of paths, sizes, modification times and schema; never of values."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The paths of the files that hold the rows."""

    def check(self) -> None:
        """Raise DataUnavailable if the source has gone or is no longer the version opened."""

    def load(self) -> None:
        """Read and encode the rows, once; counting does it when it has not been done."""

    def count(self, attributes: Sequence[str], classes: Sequence[Classes]) -> Counts:
        """Count the rows of every combination of classes.

        ``classes[i]`` gives the class of every cell of ``attributes[i]``, or -1 for "leave such
        rows out". Shape: the number of classes of each attribute; () for the grand total.
        Raises: InternalError, with one constant text.
        """

    def tally(self, resolutions: Sequence[AnyResolution], units: bool = False) -> Counts:
        """Add up what the rows add to every combination of cells and nodes.

        With ``units``, count the different privacy units with at least one row in a cell, which
        takes resolutions into cells. Shape: the size of each resolution; () for none.
        Guarantee: whole numbers, the same for any order of the rows; one row adds ``block_unit``
        in total, or nothing.
        Raises: InternalError, with one constant text.
        """

    def within(self, columns: Collection[str]) -> Vault:
        """Return this vault with the view of fewer columns than all that are declared.

        A row is in it whose values in these columns are declared, whatever is in the others.
        """

    def close(self) -> None:
        """Forget the rows; a later count reads them again."""


def open_vault(table: Table, salt: bytes, threads: int | None = None) -> Vault:
    """Open the source of a table; rows are not read yet.

    ``salt`` is the ledger's secret; it decides which rows of a unit with too many are kept.
    Raises: DataUnavailable if the source is missing, unreadable or lacks a declared column.
    """
    from dpsql.privacy.vault.duckdb import DuckDBVault

    return DuckDBVault(table, salt, threads)


def sealed(work: Callable[[], T]) -> T:
    """Run ``work``; whatever it raises becomes one constant error that carries no trace of it.

    Guarantee: text, cause and context of the error are independent of the data. Ctrl-C stays one.
    """
    try:
        return work()
    except Exception as error:
        interrupted = is_interrupt(error)
    if interrupted:
        raise KeyboardInterrupt
    raise InternalError("E_INTERNAL", "the table could not be counted; details are withheld")
