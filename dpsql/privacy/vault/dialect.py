"""The leaves of the SQL that servers are sent: what each dialect writes in its own way.

Guarantee: an expression of a leaf is a total function of one row. No stored value makes it raise:
casts stand behind CASE, never behind WHERE; numbers are within their types before they are cast;
texts are compared byte by byte.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from dpsql.privacy.vault.data_engine import RequestedColumn
from dpsql.records import dataclass

TREE = 64
"""Steps up to which a search is written as a tree of CASE."""


@dataclass(frozen=True, slots=True)
class FetchedSql:
    """An asked column as SQL: its value as a BIGINT or a DOUBLE, and whether none is stored.

    The value of an integer form is NULL where it is unknown, whatever it is where it is missing.
    """

    value: str
    missing: str


@dataclass(frozen=True, slots=True)
class OwnerSql:
    """The privacy unit of a row as SQL: what tells it apart, its canonical text, and if it has one.

    The text is that of :class:`dpsql.privacy.vault.unit.unit_numbers.Owners`: of a whole number in
    decimals, of a double that of its bits as a whole number, of a text itself.
    """

    value: str
    name: str
    known: str


class Dialect(ABC):
    """The leaves; what is not abstract is standard SQL, and may be overridden for speed."""

    usual: Mapping[str, str]
    """The native type that columns of a declared type have, where nobody has looked."""
    fence = ""
    """The clause that keeps expressions of a sub-query from being copied to where they are used."""

    @abstractmethod
    def identifier(self, name: str) -> str:
        """Quote a name."""

    @abstractmethod
    def literal(self, text: str) -> str:
        """Write a text; never one of a query."""

    @abstractmethod
    def double(self, value: float) -> str:
        """Write a finite double, exactly."""

    def whole(self, value: int) -> str:
        """Write a BIGINT."""
        return f"CAST({value} AS bigint)" if value >= 0 else f"CAST(({value}) AS bigint)"

    @abstractmethod
    def fetch(self, asked: RequestedColumn, column: str, stored: str) -> FetchedSql:
        """Write a column in a form; ``column`` is its quoted name, ``stored`` its native type."""

    @abstractmethod
    def owner(self, column: str, stored: str) -> OwnerSql:
        """Write the privacy unit."""

    @abstractmethod
    def to_whole(self, double: str) -> str:
        """Write a double that is whole, and within a BIGINT, as one."""

    @abstractmethod
    def to_double(self, whole: str) -> str:
        """Write a BIGINT as a double."""

    @abstractmethod
    def rounded(self, double: str) -> str:
        """Write the whole number next to a finite double, as a double; halves go to the even."""

    @abstractmethod
    def divided(self, whole: str, by: int) -> str:
        """Write the whole part of a BIGINT that is not negative, over a positive integer."""

    @abstractmethod
    def md5(self, texts: Sequence[str]) -> str:
        """Write the md5 digest of texts or whole numbers, joined by "|", in hexadecimal digits."""

    @abstractmethod
    def first_digits(self, digest: str, digits: int) -> str:
        """Write the first digits of a digest, so that they are ordered byte by byte."""

    def bucket(self, value: str, edges: Sequence[int] | Sequence[float]) -> str:
        """Write how many of the increasing edges are at most a value, which is no NULL and no NaN.

        The edges are all integers, for a BIGINT, or all doubles.
        """
        return self._tree(value, edges, 0, len(edges))

    def look_up(self, place: str, values: Sequence[int] | Sequence[float]) -> str:
        """Write the value at a place, a BIGINT within the list, whose first is at 0."""
        runs = [i for i in range(1, len(values)) if values[i] != values[i - 1]]
        starts = [values[0], *(values[i] for i in runs)]
        return self._choose(place, runs, [self.number(each) for each in starts], 0, len(starts))

    def number(self, value: int | float) -> str:
        """Write a BIGINT or a double, by its type."""
        return self.whole(value) if isinstance(value, int) else self.double(float(value))

    def _tree(self, value: str, edges: Sequence[int] | Sequence[float], lo: int, hi: int) -> str:
        leaves = [self.whole(i) for i in range(len(edges) + 1)]
        return self._choose(value, edges, leaves, lo, hi + 1)

    def _choose(
        self,
        value: str,
        edges: Sequence[int] | Sequence[float],
        leaves: Sequence[str],
        lo: int,
        hi: int,
    ) -> str:
        """Write the leaf between whose edges a value lies, as a balanced tree of CASE."""
        if hi - lo == 1:
            return leaves[lo]
        middle = (lo + hi) // 2
        below = self._choose(value, edges, leaves, lo, middle)
        above = self._choose(value, edges, leaves, middle, hi)
        edge = self.number(edges[middle - 1])
        return f"CASE WHEN {value} < {edge} THEN {below} ELSE {above} END"
