"""Headers of unit-local relations: their columns, keys and privacy unit.

All of it follows from the catalog alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NoReturn

from dpsql.catalog.catalog import Column, Table
from dpsql.catalog.domain import Bins, DecimalRange, IntegerRange, Periods, Values
from dpsql.errors import ProgrammingError, printable
from dpsql.records import dataclass, replace
from dpsql.relation.cell_maps import MOST_CELLS, fault_of
from dpsql.relation.distances import are_comparable, difference_of
from dpsql.relation.formulas import check_formula
from dpsql.relation.unit_facts import follows
from dpsql.relation.unit_local import (
    FRAMED,
    MOST_OF_UNIT,
    TAKEN,
    AllOf,
    Among,
    AnyOf,
    DifferRows,
    FilterRows,
    FormulaRows,
    FramedRows,
    HasValue,
    InOrder,
    JoinRows,
    MapRows,
    MeetRows,
    PerKey,
    PerUnit,
    PickColumns,
    Scan,
    Summary,
    Test,
    UnionRows,
    UnitLocal,
    WindowRows,
)

_SINGLE = IntegerRange | DecimalRange | Values
_NUMBERS = _SINGLE | Bins
MOST_COLUMNS = 1_000
"""Columns of a relation: each is an array of numbers as long as its rows."""


@dataclass(frozen=True, slots=True)
class Header:
    """The columns of a relation, by case-folded name, its keys, whom its rows belong to.

    ``unit`` is the column that tells the units apart, ``most`` how many rows of a unit there are
    when no table has more than it declares.
    """

    columns: Mapping[str, Column]
    keys: frozenset[str]
    unit: str
    unit_name: str
    most: int


def read_header(relation: UnitLocal, tables: Mapping[str, Table]) -> Header:
    """Work out what the rows of a relation are like.

    Raises: ProgrammingError (E_JOIN) for what is no relation of one privacy unit, or names a
    column that is not there.
    """
    found = _read(relation, tables)
    if len(found.columns) > MOST_COLUMNS:
        _refuse(f"a relation of {len(found.columns)} columns", f"at most {MOST_COLUMNS}")
    return found


def _read(relation: UnitLocal, tables: Mapping[str, Table]) -> Header:
    match relation:
        case Scan(table):
            return _of_table(tables[table])
        case JoinRows(left, right):
            return _of_join(relation, _read(left, tables), _read(right, tables))
        case MeetRows(left, right):
            found = _read(left, tables)
            pairs = _of_join(relation.pairs(), found, _read(right, tables))
            check_test(relation.where, pairs.columns)
            columns = dict(found.columns)
            _add(columns, partner_column(relation))
            return replace(found, columns=columns)
        case FilterRows(rows, where):
            found = _read(rows, tables)
            check_test(where, found.columns)
            return found
        case PerUnit():
            return _of_groups(relation, _read(relation.rows, tables), tables)
        case WindowRows():
            return _of_window(relation, _read(relation.rows, tables))
        case MapRows():
            return _of_map(relation, _read(relation.rows, tables))
        case FormulaRows(rows, column):
            found = _read(rows, tables)
            check_formula(relation, found.columns)
            columns = dict(found.columns)
            _add(columns, column)
            return replace(found, columns=columns)
        case DifferRows():
            return _of_difference(relation, _read(relation.rows, tables))
        case UnionRows(parts):
            return reduce(_of_union, [_read(each, tables) for each in parts])
        case PickColumns(rows, names):
            return _of_names(names, _read(rows, tables))


def _refuse(what: str, hint: str) -> NoReturn:
    raise ProgrammingError("E_JOIN", f"{what} is not possible", hint=hint)


def _of_table(table: Table) -> Header:
    unit = table.unit
    if unit.column is None:
        _refuse(
            f"a relation of rows of {printable(table.name)}, each a privacy unit of its own,",
            'declare whose rows they are: privacy_unit = { column = "person_id", max_rows = 5 }',
        )
    keys = frozenset(name.casefold() for name in table.keys)
    name = unit.name or f"{table.name}.{unit.column}"
    return Header(table.columns, keys, unit.column, name, unit.max_rows)


def _of_join(join: JoinRows, left: Header, right: Header) -> Header:
    _check_units(left, right)
    for one, other in join.on:
        if one not in left.keys or other not in right.keys:
            key = one if one not in left.keys else other
            _refuse(f"a join by {printable(key)!r}", "declare it in references of the catalog")
    columns = dict(left.columns)
    for column in right.columns.values():
        found = joined_column(join, column)
        if found.name.casefold() in columns:
            _refuse(f"two columns {printable(found.name)!r}", "use another name for the table")
        columns[found.name.casefold()] = found
    if join.outer:
        _add(columns, partner_column(join))
    most = left.most if join.one else min(left.most * right.most, MOST_OF_UNIT)
    keys = left.keys | {f"{join.name.casefold()}.{key}" for key in right.keys}
    return Header(columns, keys, left.unit, left.unit_name, max(most, left.most))


def joined_column(join: JoinRows, column: Column) -> Column:
    """The column that a join makes of one on its right."""
    is_declared = column.domain is not None or column.bounds is not None
    null = column.null or (join.outer and is_declared)
    return replace(column, name=f"{join.name}.{column.name}", null=null)


def partner_column(join: JoinRows | MeetRows) -> Column:
    """The column that says whether a row of an outer join has a partner, or goes with a row."""
    return Column(join.partner_of, "boolean", Values((False, True)))


def _check_units(one: Header, other: Header) -> None:
    if one.unit_name != other.unit_name:
        names = f"{printable(one.unit_name)} and {printable(other.unit_name)}"
        _refuse(
            f"a relation of different privacy units, {names},",
            "tables of one [unit.NAME] can be joined; aggregate others by themselves",
        )


def check_test(test: Test, columns: Mapping[str, Column]) -> None:
    """Refuse a condition that does not fit the columns. Raises: ProgrammingError (E_JOIN)."""
    match test:
        case Among(names, cells):
            size = math.prod(_with_cells(columns, name).size for name in names)
            if size > MOST_CELLS or len(cells) != size or not set(cells) <= {0, 1}:
                _refuse("a condition on these cells", f"at most {MOST_CELLS:,} combinations")
        case HasValue(name):
            _column(columns, name)
        case InOrder(left, _, right):
            if not are_comparable(_with_cells(columns, left), _with_cells(columns, right)):
                _refuse(
                    f"comparing {printable(left)!r} with {printable(right)!r}", "days with days"
                )
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                check_test(part, columns)


def _column(columns: Mapping[str, Column], name: str) -> Column:
    found = columns.get(name)
    if found is None:
        _refuse(f"the column {printable(name)!r}, which is not there,", "declare it first")
    if found.domain is None and found.bounds is None:
        _refuse(f"{printable(found.name)!r} without a domain", "declare a domain or bounds for it")
    return found


def _with_cells(columns: Mapping[str, Column], name: str) -> Column:
    found = _column(columns, name)
    if found.domain is None:
        _refuse(f"a condition or key on {printable(found.name)!r}", "declare bins for it")
    return found


def is_summed(column: Column) -> bool:
    """True if the values of a column are numbers that can be added up."""
    if column.other is not None or column.type not in ("integer", "number", "decimal"):
        return False
    return column.bounds is not None or isinstance(column.domain, _NUMBERS)


def is_ordered(column: Column) -> bool:
    """True if a column's values have an order that its cells or numbers show."""
    return is_summed(column) or isinstance(column.domain, Periods) or column.type == "boolean"


def has_single_values(column: Column) -> bool:
    """True if every cell of a column has one value."""
    return column.bounds is None and isinstance(column.domain, _SINGLE)


def taken_from(column: Column, name: str) -> Column:
    """The declaration of a column whose values are those of another, or NULL."""
    return replace(column, name=name, null=True)


def _of_groups(groups: PerUnit, inner: Header, tables: Mapping[str, Table]) -> Header:
    keys = {name: replace(_with_cells(inner.columns, name), bounds=None) for name in groups.by}
    columns = dict(keys)
    for each in groups.columns:
        _check_summary(each, inner)
        _add(columns, each.column)
    if isinstance(groups, PerKey):
        stored = frozenset(groups.keys)
        for lost in sorted(stored - inner.keys):
            _refuse(
                f"a row for each {printable(lost)!r}", "declare it in references of the catalog"
            )
        return replace(inner, columns=columns, keys=stored)
    free = (name for name in keys if not follows(groups.rows, name, tables))
    most = min(inner.most, math.prod(keys[name].size for name in free))
    return replace(inner, columns=columns, keys=frozenset(), most=max(1, most))


def _add(columns: dict[str, Column], column: Column) -> None:
    if column.domain is None and column.bounds is None:
        _refuse(f"{printable(column.name)!r} without a domain", "declare a domain or bounds for it")
    if column.name.casefold() in columns:
        _refuse(f"two columns {printable(column.name)!r}", "give each a name of its own")
    columns[column.name.casefold()] = column


def _check_summary(summary: Summary, inner: Header) -> None:
    if summary.where is not None:
        check_test(summary.where, inner.columns)
    match summary.kind:
        case "count":
            if summary.of is not None:
                _column(inner.columns, summary.of)
        case "distinct":
            _with_cells(inner.columns, summary.of or "")
        case "sum" | "mean":
            _check_summed(inner.columns, summary.of)
        case "distinct_sum" | "distinct_mean":
            _check_summed(inner.columns, summary.of)
            if not has_single_values(_with_cells(inner.columns, summary.of or "")):
                _refuse("a sum of different values of a column with bins", "list its values")
        case kind:
            source = _column(inner.columns, summary.of or "")
            order = summary.of if kind in ("least", "greatest") else summary.order
            _check_orders(inner.columns, (order or "",))
            _check_taken(summary.column, source)
            return
    _check_number(summary.column)


def _check_summed(columns: Mapping[str, Column], name: str | None) -> None:
    found = _column(columns, name or "")
    if not is_summed(found):
        _refuse(f"adding up {printable(found.name)!r}", "numbers with a domain or bounds add up")


def _check_orders(columns: Mapping[str, Column], names: Sequence[str]) -> None:
    for name in names:
        found = _column(columns, name)
        if not is_ordered(found):
            _refuse(f"an order by {printable(found.name)!r}", "numbers and dates have an order")


def _check_taken(column: Column, source: Column) -> None:
    if column != taken_from(source, column.name):
        _refuse(
            f"{printable(column.name)!r} with values that {printable(source.name)!r} has not",
            "declare it like the column that it is taken from, with null = true",
        )


def _check_number(column: Column) -> None:
    if column.type not in ("integer", "number", "decimal"):
        _refuse(f"{printable(column.name)!r} as {column.type}", "it is a number")


def _of_window(window: WindowRows, inner: Header) -> Header:
    for name in window.by:
        _with_cells(inner.columns, name)
    _check_orders(inner.columns, [each.column for each in window.order])
    match window.kind:
        case "running_count":
            if window.of is not None:
                _column(inner.columns, window.of)
        case "running_sum" | "running_mean":
            _check_summed(inner.columns, window.of)
        case "running_least" | "running_greatest":
            _check_orders(inner.columns, (window.of or "",))
        case "since_previous":
            source = _column(inner.columns, window.of or "")
            days = isinstance(source.domain, Periods) and source.domain.unit in ("day", "week")
            if not days and not is_summed(source):
                _refuse(f"a difference of {printable(source.name)!r}", "numbers and days work")
    if window.kind in TAKEN:
        _check_taken(window.column, _column(inner.columns, window.of or ""))
    else:
        _check_number(window.column)
    if isinstance(window, FramedRows):
        _check_frame(window, inner)
    columns = dict(inner.columns)
    _add(columns, window.column)
    return replace(inner, columns=columns)


def _check_frame(window: FramedRows, inner: Header) -> None:
    if window.kind not in FRAMED:
        _refuse(f"{window.kind} over some rows around", "sums and counts have a frame")
    if window.by_value:
        columns = [_with_cells(inner.columns, each.column) for each in window.order]
        is_one = len(columns) == 1 and columns[0].size <= MOST_CELLS
        reach = max(abs(window.first or 0), abs(window.last or 0))
        if not is_one or not are_comparable(columns[0], columns[0]) or reach > MOST_CELLS:
            _refuse("a frame by value in this order", "order by whole numbers or days")


def _of_map(mapped: MapRows, inner: Header) -> Header:
    fault = fault_of(mapped, [_with_cells(inner.columns, name).size for name in mapped.of])
    if fault is not None:
        _refuse(*fault)
    columns = dict(inner.columns)
    _add(columns, mapped.column)
    return replace(inner, columns=columns)


def _of_difference(differ: DifferRows, inner: Header) -> Header:
    one, other = (_with_cells(inner.columns, name) for name in (differ.left, differ.right))
    if differ.column != difference_of(differ.column.name, one, other):
        _refuse(f"{printable(differ.column.name)!r} as a difference", "whole numbers, or days")
    columns = dict(inner.columns)
    _add(columns, differ.column)
    return replace(inner, columns=columns)


def _of_union(one: Header, other: Header) -> Header:
    _check_units(one, other)
    if one.columns.keys() != other.columns.keys():
        names = ", ".join(sorted(one.columns.keys() ^ other.columns.keys()))
        _refuse(f"a union of different columns ({printable(names)})", "pick the same ones")
    columns = {key: united_column(own, other.columns[key]) for key, own in one.columns.items()}
    return replace(one, columns=columns, keys=one.keys & other.keys, most=one.most + other.most)


def united_column(one: Column, other: Column) -> Column:
    """The column of a union: with NULL if one side has it, without cells as wide as both.

    Raises: ProgrammingError (E_JOIN) for columns that do not go together.
    """
    found = replace(one, null=one.null or other.null)
    if one.domain is None and one.bounds is not None and other.bounds is not None:
        (low, high), (least, most) = one.bounds, other.bounds
        found = replace(found, bounds=(min(low, least), max(high, most)))
    same = replace(other, name=one.name, loose=one.loose, null=found.null)
    if other.domain is None and other.bounds is not None:
        same = replace(same, bounds=found.bounds)
    if same != found:
        name = printable(one.name)
        _refuse(f"a union of columns {name!r} with different domains", "declare them alike")
    return found


def _of_names(names: Sequence[tuple[str, str]], inner: Header) -> Header:
    columns: dict[str, Column] = {}
    keys: set[str] = set()
    for new, old in names:
        if old in inner.columns and new.casefold() not in columns:
            columns[new.casefold()] = replace(inner.columns[old], name=new)
        elif old in inner.keys and new.casefold() not in columns:
            keys.add(new.casefold())
        else:
            _refuse(f"the column {printable(new)!r}", "name columns that are there, each once")
    return replace(inner, columns=columns, keys=frozenset(keys))
