"""Bounds on the number of rows of joined tables of the outer shell, by public facts alone.

Tables are picked one after another: of each, no more rows count than agree on the columns that are
told by those before it. What conditions set equal, directly or by way of others, is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.records import dataclass
from dpsql.sql.relations import ShellTable

ColumnPlace = tuple[int, int]
"""A column of a table in FROM: the number of the table, and its own."""
Places = frozenset[ColumnPlace]

LARGEST = 1 << 62
"""The largest of all bounds."""
_NONE: Places = frozenset()


def most_of(table: ShellTable, known: frozenset[int], wanted: frozenset[int] | None = None) -> int:
    """At most how many rows of a table agree on the columns ``known``.

    Of columns ``wanted`` how many combinations these rows have.
    """
    if any(keys <= known for keys in table.unique) or (wanted is not None and wanted <= known):
        return 1
    most = min(table.rows, table.agreeing(known, wanted))
    listed = table.listed()
    by = sorted(known & listed.keys())
    if wanted is not None and wanted <= listed.keys():
        return min(most, _most_different(listed, by, sorted(wanted - known)))
    if by:
        most = min(
            most, max(Counter(zip(*(listed[k] for k in by), strict=True)).values(), default=0)
        )
    return most


def _most_different(
    listed: Mapping[int, Sequence[Any]], by: Sequence[int], wanted: Sequence[int]
) -> int:
    """The most combinations of some columns among rows that agree on others."""
    rows = set(zip(*(listed[k] for k in (*by, *wanted)), strict=True))
    return max(Counter(row[: len(by)] for row in rows).values(), default=0)


@dataclass(frozen=True, slots=True)
class JoinBound:
    """Tables that are joined, by number those of FROM; ``tells`` are pairs of equal columns.

    ``fixed`` are columns with one value. Rows of tables that are ``optional`` may be missing beside
    those of the tables before them, as in LEFT JOIN.
    """

    tables: tuple[ShellTable, ...]
    tells: tuple[tuple[ColumnPlace, ColumnPlace], ...] = ()
    fixed: Places = _NONE
    optional: frozenset[int] = frozenset()

    def most(self, known: Places = _NONE, wanted: Places | None = None) -> int:
        """At most how many joined rows agree on columns; of ``wanted``, how many combinations."""
        told, left, found = self.closed(known | self.fixed), set(range(len(self.tables))), 1
        while left and found < LARGEST and (wanted is None or not wanted <= told):
            counts = [each for n in left for each in self.counts(n, told, left, wanted)]
            count, number, columns = min(counts, key=lambda each: each[:2])
            found, told = found * count, self.closed(told | columns)
            if wanted is None or len(columns) == len(self.tables[number].traits):
                left.remove(number)
        return min(found, LARGEST)

    def counts(
        self, number: int, told: Places, left: set[int], wanted: Places | None
    ) -> list[tuple[int, int, Places]]:
        """The next picks of a table: how many rows at most, and the columns they tell."""
        table, own = self.tables[number], self.own(number, told)
        whole = frozenset((number, k) for k in range(len(table.traits)))
        extra = number in self.optional
        alone = extra and min(left) < number
        found = [(most_of(table, own) + alone, number, whole)]
        if extra:
            found = [(max(1, found[0][0]), number, whole)]
        missing = frozenset() if wanted is None else (wanted - told) & whole
        if missing:
            asked = own | {k for _, k in missing}
            found.append((most_of(table, own, asked) + extra, number, missing))
        return found

    def own(self, number: int, told: Places) -> frozenset[int]:
        """The columns of a table that are told."""
        equal = {b for a, b in self.tells if a in told and b[0] == number}
        return frozenset(k for n, k in (*told, *equal) if n == number)

    def closed(self, told: Places) -> Places:
        """The closure of what is told; what may be missing is not told before it is picked."""
        while True:
            more = {b for a, b in self.tells if a in told and b[0] not in self.optional}
            if more <= told:
                return told
            told |= more
