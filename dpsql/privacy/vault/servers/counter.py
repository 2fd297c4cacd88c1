"""Counters, engines that count where the rows are: one grouped aggregate of integers at a time.

It is the second kind of data engine. The first, of :mod:`dpsql.privacy.vault.data_engine`, hands
over rows, and each of the second kind does that as well: relations and keys that nobody listed
are worked out from rows. What is counted, and how, is written by ``code_sql`` and ``group_sql``,
the same for every engine but for the leaves of a :class:`dpsql.privacy.vault.dialect.Dialect`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, cast

from dpsql.privacy.vault.data_engine import StoredTable
from dpsql.privacy.vault.dialect import Dialect


class Counter(Protocol):
    """A session of a server that counts the rows of one table."""

    @property
    def dialect(self) -> Dialect:
        """The dialect of its SQL."""

    @property
    def relation(self) -> str:
        """The table, as it is written after FROM."""

    def keep(self, select: str) -> str | None:
        """Keep the rows of a SELECT until it is closed; its name after FROM, None if it may not.

        Raises: anything; what is raised is withheld.
        """

    def rows(self, select: str) -> Iterable[tuple[int, ...]]:
        """Yield the rows of a SELECT, which are Python integers and nothing else.

        Guarantee: all that is selected within one request is of one snapshot.
        """

    def close(self) -> None:
        """Forget what was kept: nothing of it survives on the server."""


class CountingTable(StoredTable, Protocol):
    """A stored table that can be counted where it is."""

    @property
    def types(self) -> Sequence[tuple[str, str]]:
        """The name and the native type of every column, for the dialect."""

    def open_counter(self) -> Counter:
        """Open a session that counts. Raises: DataUnavailable."""


def as_counting(stored: StoredTable) -> CountingTable | None:
    """Return a table that its engine can count, None for one that is only read."""
    return cast(CountingTable, stored) if hasattr(type(stored), "open_counter") else None
