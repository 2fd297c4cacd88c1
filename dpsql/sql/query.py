"""The logical query: what a SELECT asks for, in frozen values without any parser types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any, TypeAlias

from dpsql.errors import Span
from dpsql.records import dataclass, field
from dpsql.sql.shell.frames import TO_HERE, WindowFrame
from dpsql.workload.polynomial import Polynomial


@dataclass(frozen=True, slots=True)
class Expression:
    """A deterministic expression over one column, written over the name ``v``.

    ``column`` is the case-folded column name; ``None`` when the expression is a constant. Where
    public rows are joined to the column, their columns are ``p0``, ``p1``, .... ``ranges``
    makes a key of all ranges of the column's cells. ``undeclared`` are the literals that the
    column is compared with and cannot hold by declaration. One that is ``listed`` mentions columns
    of the query's listing, ``r0``, ``r1``, ....
    """

    column: str | None
    sql: str
    span: Span = field(compare=False, repr=False)
    ranges: bool = False
    undeclared: tuple[str, ...] = field(default=(), compare=False, repr=False)
    listed: bool = False


@dataclass(frozen=True, slots=True)
class JointCondition:
    """A condition over several columns: ``sql`` over ``x0``, ``x1``, ..., the values of ``parts``.

    Every part is over one column.
    """

    sql: str
    parts: tuple[Expression, ...]
    span: Span = field(compare=False, repr=False)


Condition: TypeAlias = Expression | JointCondition


@dataclass(frozen=True, slots=True)
class Summand:
    """The product of factors that a row adds to a sum; nothing unless all conditions hold.

    ``factors`` are numbers over one column with a domain, or constants; ``polynomials`` are over
    measures, at most one for each.
    """

    factors: tuple[Expression, ...] = ()
    polynomials: tuple[Polynomial, ...] = ()
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningSum:
    """A sum over the groups in a frame in the order of a key, within a partition.

    ``order`` is the index of the key, None for the whole partition; ``partition`` holds the
    indices of the other keys whose groups are kept apart. The frame is up to the present group
    if it is not told.
    """

    order: int | None
    descending: bool
    partition: frozenset[int]
    frame: WindowFrame = TO_HERE


@dataclass(frozen=True, slots=True)
class Rank:
    """The value of an ordered column at a quantile of its counts, or the one counted most.

    ``kind`` is cont (interpolated), disc or mode. ``end`` asks for the lower (-1) or the upper (1)
    end of the interval in which the quantile lies.
    """

    value: Expression
    kind: str
    quantile: float = 0.5
    end: int = 0


COUNT_ROWS = (Summand(),)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A sum over the rows that satisfy ``conditions`` besides the statement's own WHERE.

    ``units`` counts the privacy units that have such rows instead of the rows, ``distinct`` the
    different values of an expression that such rows have, or adds up what each of them ``counts``.
    ``part`` is how much its error counts beside those of others.
    """

    conditions: tuple[Condition, ...] = ()
    summands: tuple[Summand, ...] = COUNT_ROWS
    running: RunningSum | None = None
    rank: Rank | None = None
    units: bool = False
    distinct: Expression | None = None
    counts: Expression | None = None
    part: float = 1.0

    def expressions(self) -> Iterator[Expression]:
        """Every expression over columns or constants, some twice."""
        yield from _parts(self.conditions)
        if self.rank is not None:
            yield self.rank.value
        yield from (each for each in (self.distinct, self.counts) if each is not None)
        for summand in self.summands:
            yield from summand.factors
            yield from _parts(summand.conditions)


@dataclass(frozen=True, slots=True)
class Link:
    """Public rows joined by a condition ``on`` over ``v``, ``p0``, ``p1``, ....

    ``columns`` are the numbers of those of its columns that are used, ``types`` their DuckDB types,
    ``keep`` says that what has no match stays, with NULL (LEFT JOIN). ``name`` is a digest of rows.
    """

    name: str
    columns: tuple[int, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...] = field(compare=False, repr=False)
    on: str
    keep: bool


@dataclass(frozen=True, slots=True)
class Lookup:
    """Public rows joined to one private column, and to each other, in the order of the links."""

    column: str
    links: tuple[Link, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Listing:
    """Public rows joined to several columns: each stands for a product of conditions on these.

    ``tests`` are what joins them. With ``keep`` the last row, all NULL, stands for rows of the
    private table that match no other (LEFT JOIN). ``name`` is a digest of types and rows.
    """

    name: str
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...] = field(compare=False, repr=False)
    tests: tuple[Condition, ...]
    keep: bool
    span: Span = field(compare=False, repr=False)


Number: TypeAlias = tuple[str, int, int]
"""A noisy number: the column that numbers its cell, the select it is of, and the aggregate."""


@dataclass(frozen=True, slots=True)
class Output:
    """One result column: a name, SQL over the layer below it, and SQL for its standard error.

    ``stddev`` is ``None`` for keys and for expressions whose error has no closed form.
    ``key`` is the index of the grouping key the column simply repeats, if it does.
    ``aggregate`` is the index of the aggregate the column simply repeats, if it does.
    ``slopes`` are SQL for the derivatives by noisy numbers where the column is smooth arithmetic.
    ``whole`` says that the column is an integer to SQL, ``uncertainty`` that it tells of an error
    itself: DP_STDDEV, the end of an interval, a report. ``over`` are the aggregates that it is
    computed from, None for any of them.
    """

    name: str
    sql: str
    stddev: str | None = None
    noisy: bool = False
    key: int | None = None
    aggregate: int | None = None
    slopes: tuple[tuple[Number, str], ...] = ()
    whole: bool = False
    uncertainty: bool = False
    over: frozenset[int] | None = None


_RANKS = re.compile(
    r"\b(row_number|(dense_|percent_)?rank|ntile|cume_dist|avg|count)\s*\(", re.IGNORECASE
)
"""Windows that number or count rows, as SQL."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Clauses after the groups of a SELECT: HAVING, windows, QUALIFY, ORDER BY, LIMIT and OFFSET.

    ``windows`` are over what HAVING leaves; what follows them may mention them as ``w0, w1, ...``.
    ``order`` has expressions with their directions.
    """

    having: str | None = None
    windows: tuple[str, ...] = ()
    qualify: str | None = None
    order: tuple[tuple[str, str], ...] = ()
    limit: int | None = None
    offset: int = 0

    def over(self, groups: str) -> str:
        """The rows that are left of ``groups``, which is SQL in FROM, beside their windows."""
        found = filtered(groups, self.having)
        if self.windows:
            windows = ", ".join(f"{sql} AS w{index}" for index, sql in enumerate(self.windows))
            found = f"(SELECT *, {windows} FROM {found})"
        return filtered(found, self.qualify)

    @property
    def cut(self) -> str:
        """LIMIT and OFFSET."""
        limit = f" LIMIT {self.limit}" if self.limit is not None else ""
        return limit + (f" OFFSET {self.offset}" if self.offset else "")

    def places(self, rows: int) -> bool:
        """True where ranks of so many rows are told, or rows are left out by their places."""
        last = rows if self.limit is None else self.limit
        ranks = self.qualify is not None or any(map(_RANKS.search, self.windows))
        return rows > 1 and (last < rows or self.offset > 0 or ranks)

    @property
    def whole(self) -> bool:
        """True if every group gives one row, in declared order."""
        return not (self.having or self.qualify or self.order or self.cut)


def filtered(rows: str, test: str | None) -> str:
    """The rows that pass a test, as SQL in FROM."""
    return rows if test is None else f"(SELECT * FROM {rows} WHERE {test})"


@dataclass(frozen=True, slots=True)
class Shell:
    """The shell around the noisy cells: their ``tail`` and a projection.

    The SQL texts are over a table ``cells`` with one row per key combination and the columns
    ``k0, k1, ...`` (keys), ``g0, ...`` (1 where a grouping set leaves the key out), ``a0, ...``
    (aggregates), ``c0_0, c0_1, ...`` (covariances of the aggregates listed in ``covariances``),
    ``m0, ...`` (lists of those of all pairs of a group of aggregates: list p has those of number p
    of the group with itself and the later ones),
    ``z`` (half the width of an interval, in standard errors) and ``i`` (declared order).
    """

    outputs: tuple[Output, ...]
    tail: Tail = Tail()
    covariances: frozenset[tuple[int, int]] = frozenset()
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """The pairs of aggregates, the first one first, whose covariance is needed."""
        of_groups = (combinations_with_replacement(group, 2) for group in self.groups)
        return self.covariances.union(*of_groups)

    def text(self, slopes: bool = False) -> str:
        """The SELECT over the cells: outputs, then the errors of those that have one.

        ``slopes`` come last: those that are not constant, output by output.
        """
        selected = [output.sql for output in self.outputs]
        selected += [output.stddev for output in self.outputs if output.stddev is not None]
        if slopes:
            selected += [
                f"TRY(CAST({sql} AS DOUBLE))"
                for output in self.outputs
                for _, sql in output.slopes
                if sql != "1"
            ]
        items = ", ".join(f"{sql} AS o{index}" for index, sql in enumerate(selected))
        order = ", ".join((*(f"{sql} {how}" for sql, how in self.tail.order), "i"))
        return f"SELECT {items} FROM {self.tail.over('cells')} ORDER BY {order}{self.tail.cut}"

    @property
    def plain(self) -> bool:
        """True if the shell only picks keys and aggregates, in declared order."""
        return self.tail.whole and all(
            o.key is not None or o.aggregate is not None for o in self.outputs
        )


@dataclass(frozen=True, slots=True)
class Query:
    """Sums over one private table.

    ``where`` is a conjunction; ``keys`` are the grouping expressions in GROUP BY order; ``sets``
    lists the indices of the keys of every grouping set; ``table`` is the case-folded table name;
    ``lookups`` are the public rows joined to its columns, ``listing`` those joined to several.
    """

    table: str
    where: tuple[Condition, ...]
    keys: tuple[Expression, ...]
    aggregates: tuple[Aggregate, ...]
    shell: Shell
    text: str
    sets: tuple[tuple[int, ...], ...]
    lookups: tuple[Lookup, ...] = ()
    listing: Listing | None = None

    def expressions(self) -> Iterator[Expression]:
        """Every expression over columns or constants, some twice."""
        yield from self.keys
        yield from _parts(self.where)
        yield from _parts(() if self.listing is None else self.listing.tests)
        for aggregate in self.aggregates:
            yield from aggregate.expressions()

    @property
    def mentioned(self) -> frozenset[str]:
        """The case-folded names of the columns that the text uses, whatever becomes of them."""
        summands = (each for aggregate in self.aggregates for each in aggregate.summands)
        measures = {each.column for summand in summands for each in summand.polynomials}
        joined = {lookup.column for lookup in self.lookups}
        found = {each.column for each in self.expressions() if each.column is not None}
        return frozenset(found | joined | measures)


def _parts(conditions: Sequence[Condition]) -> Iterator[Expression]:
    for condition in conditions:
        yield from (condition,) if isinstance(condition, Expression) else condition.parts


def conditions_of(query: Query) -> Iterator[Condition]:
    """The conditions of a query."""
    yield from query.where
    yield from () if query.listing is None else query.listing.tests
    for aggregate in query.aggregates:
        yield from aggregate.conditions
        for summand in aggregate.summands:
            yield from summand.conditions


def connected(coupled: Sequence[JointCondition]) -> list[tuple[JointCondition, ...]]:
    """Group conditions that share columns, directly or through others."""
    groups: list[tuple[set[str | None], list[JointCondition]]] = []
    for each in coupled:
        columns: set[str | None] = {part.column for part in each.parts if part.column}
        members = [each]
        apart = []
        for known, inside in groups:
            if known & columns:
                columns |= known
                members = [*inside, *members]
            else:
                apart.append((known, inside))
        groups = [*apart, (columns, members)]
    return [tuple(members) for _, members in groups]


@dataclass(frozen=True, slots=True, eq=False)
class PublicCells:
    """A public table of the shell: the DuckDB types and the values of its columns."""

    name: str
    columns: Mapping[str, tuple[str, Sequence[Any]]]


@dataclass(frozen=True, slots=True)
class Influence:
    """The effect of a noisy number on a column: an aggregate of a select, and where in a row stand
    the number of its cell and the slope; None for the slope one.
    """

    select: int
    aggregate: int
    cell: int
    slope: int | None


@dataclass(frozen=True, slots=True)
class OuterSql:
    """A statement's SQL over the results of its selects, ``t0``, ``t1``, ....

    Their columns are ``c0``, ``c1``, ..., the known standard errors ``e0``, ... of those, and the
    order ``i``. ``columns`` are the names of the result columns, ``noisy`` says which of them
    depend on noisy numbers, ``whole`` which are integers to SQL, and ``errors`` where in a row of
    ``sql`` their standard errors stand.
    ``influences`` are those of columns whose standard errors follow from their slopes, ``notes``
    what is to be said of the statement. ``repeats`` are the aggregates, each of a select, that are
    columns of their own; None where that is not known.
    """

    sql: str
    columns: tuple[str, ...]
    noisy: tuple[bool, ...]
    whole: tuple[bool, ...]
    errors: tuple[int | None, ...]
    influences: tuple[tuple[Influence, ...], ...]
    public: tuple[PublicCells, ...] = ()
    notes: tuple[str, ...] = ()
    repeats: frozenset[tuple[int, int]] | None = None
