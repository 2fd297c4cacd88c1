"""The codes of rows as SQL: ``encode`` of :mod:`dpsql.privacy.vault.codes`, for a server.

Three layers, each an expression of one row over the one below: values as they are fetched, the
cells that they are in, and where they lie in their bins and bounds. Literals are of the catalog.

Guarantee: the codes of a row are those that numpy would give it. Doubles are added, multiplied and
divided in the same order; nothing overflows or underflows, since numbers are clipped before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from decimal import Decimal

from dpsql.catalog.catalog import Column, Table
from dpsql.catalog.domain import (
    SECONDS,
    Bins,
    BoundedBins,
    DecimalRange,
    IntegerRange,
    Labels,
    Periods,
    Values,
    decimal_places,
)
from dpsql.privacy.vault.codes.encode import SLACK, WHOLE, count_ticks, tick_of
from dpsql.privacy.vault.codes.tally import PLACES
from dpsql.privacy.vault.data_engine import RequestedColumn
from dpsql.privacy.vault.dialect import Dialect, OwnerSql
from dpsql.privacy.vault.unit.rows import declared
from dpsql.privacy.vault.unit.unit_numbers import KEY
from dpsql.records import dataclass

FEW = 16
"""Listed integers up to which they are compared one by one."""
TINY = float(1 << 40)
"""A part of a width that is this much smaller is at step 0 of every grid."""
NOTHING = "0 AS n"
"""The column that is selected where nothing is asked of a row."""
LAYERS = 4
"""Sub-queries within each other: fetched, refined, coded, placed. What others are made of is a
column of the one within: an engine would work it out again wherever it stands."""
Layers = tuple[list[str], ...]
"""Of one column, the expressions of every layer, each over those of the layer before."""


@dataclass(frozen=True, slots=True)
class CodeSql:
    """The SELECT that turns the rows of a table into codes, and what its columns are called.

    ``c3`` has the code of the fourth declared column, ``p3`` the place in its bin, ``q3`` the
    clipped value of a measure, NULL for none; ``u`` has the unit, NULL for none, and ``h`` the
    digest by which its rows are kept.
    """

    table: Table
    dialect: Dialect
    relation: str
    asked: Sequence[tuple[RequestedColumn, str]]
    owner: OwnerSql | None
    key: str

    @property
    def columns(self) -> dict[str, tuple[int, Column]]:
        """The number of every declared column, and the column, by case-folded name."""
        return {key: (i, each) for i, (key, each) in enumerate(declared(self.table).items())}

    def select(self) -> str:
        """Write the SELECT of the rows, also of those outside every view."""
        fence = self.dialect.fence
        layers = [self._layers(i, column) for i, column in self.columns.values()]
        if self.owner is not None:
            owned = [f"CASE WHEN {self.owner.known} THEN {self.owner.value} END AS u"]
            owned += [f"{self._key(self.owner)} AS k"]
            layers.append((owned, ["u", "k"], ["u", "k"], ["u", "k"]))
        first, *others = zip(*layers, strict=True) if layers else [()] * LAYERS
        inner = f"SELECT {_listed(first)} FROM {self.relation} AS t{fence}"
        for layer in others:
            inner = f"SELECT {_listed(layer)} FROM ({inner}) AS t{fence}"
        return f"SELECT {', '.join(self._kept()) or NOTHING} FROM ({inner}) AS t"

    def said_of(self, name: str, is_coded: bool) -> str:
        """Tell what is fetched of a declared column, and, where rows are counted, made of it."""
        layers = self._layers(*self.columns[name.casefold()])
        made = [each for layer in layers[: LAYERS if is_coded else 1] for each in layer]
        return ", ".join(each for each in made if " AS " in each)

    def said_of_owner(self, is_coded: bool) -> str:
        """Tell what is fetched of the privacy unit; where counted, its key and its rows' order."""
        assert self.owner is not None
        more = [f"{self._key(self.owner)} AS k", self._kept()[-1]] if is_coded else []
        return ", ".join([f"{self.owner.value} AS u", *more])

    def _key(self, owner: OwnerSql) -> str:
        d = self.dialect
        return d.first_digits(d.md5([d.literal(self.key), owner.name]), KEY)

    def _layers(self, i: int, column: Column) -> Layers:
        """A column as it is fetched, what its cells are found by, its codes, and its places."""
        d, (asked, stored) = self.dialect, self.asked[i]
        found = d.fetch(asked, f"t.{d.identifier(asked.column)}", stored)
        is_double = asked.form == "number"
        refined = refine(d, column, f"v{i}", is_double)
        return (
            [f"{found.value} AS v{i}", f"{found.missing} AS m{i}"],
            [refined if refined == f"v{i}" else f"{refined} AS v{i}", f"m{i}"],
            [*_codes(d, i, column, is_double)],
            [*self._placed(i, column)],
        )

    def _placed(self, i: int, column: Column) -> Iterator[str]:
        """The last layer: places in bins, and steps of measures, which decide who is kept."""
        d = self.dialect
        if column.domain is not None:
            yield f"c{i}"
        if isinstance(column.domain, Bins):
            yield f"{_place(d, i, column.domain)} AS p{i}"
        if column.bounds is not None:
            yield from (f"q{i}", f"{_steps(d, i, column)} AS s{i}")

    def _kept(self) -> list[str]:
        named = self.columns.values()
        codes = [f"c{i}" for i, column in named if column.domain is not None]
        places = [f"p{i}" for i, column in named if isinstance(column.domain, Bins)]
        values = [f"q{i}" for i, column in named if column.bounds is not None]
        kept = [*codes, *places, *values]
        if self.owner is None:
            return kept
        d = self.dialect
        content = [*codes, *places, *(f"s{q[1:]}" for q in values)]
        return [
            *kept,
            "u",
            f"{d.first_digits(d.md5([d.literal(self.key), 'k', *content]), 16)} AS h",
        ]


def _listed(layer: Sequence[Sequence[str]]) -> str:
    return ", ".join(each for column in layer for each in column) or NOTHING


def refine(d: Dialect, column: Column, value: str, is_double: bool) -> str:
    """Write what the cells of a column are found by: a BIGINT, but for bins and measures.

    NULL is what has no cell.
    """
    match column.domain:
        case None | Bins():
            return value
        case DecimalRange() | Values() if column.type == "decimal":
            return _scaled(d, value if is_double else d.to_double(value), column.domain)
    if not is_double:
        return value
    most = d.double(WHOLE)
    is_whole = f"CASE WHEN {d.rounded(value)} = {value} THEN {d.to_whole(value)} END"
    return f"CASE WHEN abs({value}) < {most} THEN {is_whole} END"


def _scaled(d: Dialect, value: str, domain: DecimalRange | Values) -> str:
    """Write a double as a whole number of last decimal places, NULL where it is between two."""
    ten, most, least = d.double(10.0 ** decimal_places(domain)), d.double(WHOLE), d.double(1e-100)
    scaled = d.rounded(f"{value} * {ten}")
    near = f"abs({scaled} / {ten} - {value}) <= {d.double(SLACK)} * abs({value})"
    found = f"CASE WHEN {near} AND abs({scaled}) < {most} THEN {d.to_whole(scaled)} END"
    zero = f"WHEN {value} = {d.double(0.0)} THEN {d.whole(0)}"
    return f"CASE {zero} WHEN abs({value}) < {most} AND abs({value}) > {least} THEN {found} END"


def _codes(d: Dialect, i: int, column: Column, is_double: bool) -> Iterator[str]:
    """The second layer: the code of a column, its value where places are needed, its measure."""
    value, missing = f"v{i}", f"m{i}"
    if column.bounds is not None:
        yield f"CASE WHEN NOT {missing} THEN {_clipped(d, value, *column.bounds)} END AS q{i}"
    if column.domain is None:
        return
    outside = column.size
    other = outside if column.other is None else outside - 1 - column.null
    null = outside - 1 if column.null else outside
    cells = _cells(d, column, value)
    known = f"COALESCE(CASE WHEN {value} IS NOT NULL THEN {cells} END, {d.whole(other)})"
    yield f"CASE WHEN {missing} THEN {d.whole(null)} ELSE {known} END AS c{i}"
    if isinstance(column.domain, Bins):
        edges = column.domain.edges
        yield f"CASE WHEN NOT {missing} THEN {_clipped(d, value, edges[0], edges[-1])} END AS v{i}"


def _clipped(d: Dialect, value: str, low: object, high: object) -> str:
    least, most = d.double(float(low)), d.double(float(high))  # type: ignore[arg-type]
    return f"LEAST(GREATEST({value}, {least}), {most}) + {d.double(0.0)}"


def _cells(d: Dialect, column: Column, value: str) -> str:
    """Write the cell of a value that is there, NULL where it has none."""
    match column.domain:
        case Bins(edges):
            ends = [float(edge) for edge in edges]
            if isinstance(column.domain, BoundedBins):
                value = f"({_clipped(d, value, edges[0], edges[-1])})"
            inside = f"{value} >= {d.double(ends[0])} AND {value} <= {d.double(ends[-1])}"
            return f"CASE WHEN {inside} THEN {d.bucket(value, ends[:-1])} - 1 END"
        case IntegerRange(lo, hi):
            inside = f"{value} >= {d.whole(lo)} AND {value} <= {d.whole(hi)}"
            return f"CASE WHEN {inside} THEN {value} - {d.whole(lo)} END"
        case Periods() as periods:
            return _periods(d, periods, value)
        case DecimalRange(first, step, count) as decimals:
            low, width = (int(e.scaleb(decimal_places(decimals))) for e in (first, step))
            last = low + (count - 1) * width
            part = f"({value} - {d.whole(low)})"
            inside = f"{value} >= {d.whole(low)} AND {value} <= {d.whole(last)}"
            exact = f"CASE WHEN {part} % {d.whole(width)} = 0 THEN {d.divided(part, width)} END"
            return f"CASE WHEN {inside} THEN {exact} END"
        case Labels(codes=codes) as labels if labels.is_numeric:
            return _find_listed(d, value, [int(each) for each in codes])
        case Values(listed) if column.type == "text":
            inside = f"{value} >= {d.whole(0)} AND {value} < {d.whole(len(listed))}"
            return f"CASE WHEN {inside} THEN {value} END"
        case Values(listed) if column.type == "decimal":
            places = decimal_places(column.domain)
            return _find_listed(d, value, [int(Decimal(each).scaleb(places)) for each in listed])
        case Values(listed):
            return _find_listed(d, value, [int(each) for each in listed])
    raise ValueError("a column without a domain has no cells")


def _find_listed(d: Dialect, value: str, listed: Sequence[int]) -> str:
    """Write the place of a BIGINT in a list, NULL where it is not in it."""
    if len(listed) <= FEW:
        pairs = (f"WHEN {value} = {d.whole(n)} THEN {d.whole(i)}" for i, n in enumerate(listed))
        return f"CASE {' '.join(pairs)} END"
    order = sorted(range(len(listed)), key=lambda i: listed[i])
    ordered = [listed[i] for i in order]
    place = f"({d.bucket(value, ordered)} - 1)"
    found = f"CASE WHEN {d.look_up(place, ordered)} = {value} THEN {d.look_up(place, order)} END"
    return f"CASE WHEN {value} >= {d.whole(ordered[0])} THEN {found} END"


def _periods(d: Dialect, periods: Periods, value: str) -> str:
    first, last = count_ticks(periods.start), count_ticks(periods.end)
    inside = f"{value} >= {d.whole(first)} AND {value} < {d.whole(last)}"
    if periods.unit in SECONDS:
        one = tick_of(periods)
        found = d.divided(f"({value} - {d.whole(first)})", one)
    else:
        begins = [count_ticks(periods.begin(k)) for k in range(periods.count)]
        found = f"{d.bucket(value, begins)} - 1"
    return f"CASE WHEN {inside} THEN {found} END"


def _place(d: Dialect, i: int, bins: Bins) -> str:
    """Write where a value lies in its bin, 0..PLACES; 0 where there is no bin."""
    ends = [float(edge) for edge in bins.edges]
    lower, widths = ends[:-1], [two - one for one, two in itertools.pairwise(ends)]
    part, width = f"(v{i} - {d.look_up(f'c{i}', lower)})", d.look_up(f"c{i}", widths)
    found = to_grid(d, part, width, PLACES)
    return f"CASE WHEN c{i} < {d.whole(bins.size)} THEN {found} ELSE {d.whole(0)} END"


def _steps(d: Dialect, i: int, column: Column) -> str:
    """Write where a measure lies in its bounds, -1 for NULL, -2 outside."""
    low, high = map(float, column.bounds or (0, 0))
    found = to_grid(d, f"(q{i} - {d.double(low)})", d.double(high - low), PLACES)
    return f"CASE WHEN q{i} IS NULL THEN {d.whole(-1 if column.null else -2)} ELSE {found} END"


def to_grid(d: Dialect, part: str, width: str, grid: int) -> str:
    """Write part/width in whole steps of 1/grid, 0..grid; both are finite doubles."""
    steps = d.rounded(f"{part} * {d.double(float(grid))} / {width}")
    kept = d.to_whole(f"LEAST(GREATEST({steps}, {d.double(0.0)}), {d.double(float(grid))})")
    tiny = f"{part} < {width} / {d.double(TINY)}"
    return f"CASE WHEN {tiny} THEN {d.whole(0)} ELSE {kept} END"
