"""Read whose the rows of a table are, and what they refer to; refuse what leads nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpsql.catalog.catalog import Reference, Table, Unit
from dpsql.catalog.read_place import Place, show
from dpsql.errors import printable
from dpsql.records import replace
from dpsql.relation.unit_local import DerivedTable, Scan

MOST_ROWS = 10**6
"""Rows of one unit that may count."""
ROW_LIMIT = f"a positive integer, at most {MOST_ROWS}"
REMEDY = 'privacy_unit = "row", or { column = "person_id", max_rows = 5 }'
THROUGH = 'privacy_unit = { through = "visits", on = "visit_id", max_rows = 50 }'
UNIT_KEYS = 'unit_keys = ["order_number"], columns whose values are each of one unit'
UNIT_COLUMNS = 'unit_columns = ["ship_customer_id"], columns with ids of other units'
REFERS = 'references = { patients = "patient_id" }'


def read_unit_names(place: Place, sections: Mapping[str, Any]) -> tuple[str, ...]:
    """Read the names of the sections [unit.NAME], which several tables may share."""
    for name, body in sections.items():
        if not name or not name.isprintable():
            place.fail("a unit has an unusable name", "use letters, digits and underscores")
        if not isinstance(body, dict):
            place.fail(f"unit {name!r} is not a section", f"write [unit.{name}]")
        place.check_keys(body, ())
    names = tuple(name.casefold() for name in sections)
    if len(set(names)) < len(names):
        place.fail("a unit is declared twice", "names are compared without case")
    return names


def read_unit(place: Place, given: Any, names: Sequence[str]) -> Unit:
    """Read ``privacy_unit``.

    Args:
        place: the table, for complaints.
        given: "row", or a table of TOML with a column, or a way through another table, and
            max_rows.
        names: units that the catalog declares by ``[unit.NAME]``.

    Raises: CatalogError (E_POLICY).
    """
    if given == "row":
        return Unit()
    if not isinstance(given, dict):
        place.fail("privacy_unit is missing or malformed", REMEDY)
    unknown = given.keys() - {"column", "max_rows", "unit", "through", "on"}
    if unknown:
        place.fail(f"privacy_unit has an unknown key {sorted(unknown)[0]!r}", REMEDY)
    if ("column" in given) == ("through" in given) or ("on" in given) != ("through" in given):
        place.fail("privacy_unit is missing or malformed", f"{REMEDY}; or {THROUGH}")
    if "max_rows" not in given:
        place.fail("privacy_unit has no max_rows", "how many rows of one unit count: max_rows = 5")
    rows = given["max_rows"]
    if not is_row_limit(rows):
        place.fail(f"privacy_unit max_rows = {rows!r}", ROW_LIMIT)
    name = _read_name(place, given, names)
    if "through" in given:
        way = _read_reference(place, given["through"], given["on"])
        if name is None:
            place.fail("privacy_unit goes through a table", "declare [unit.NAME] for both tables")
        return Unit(None, rows, name, way)
    column = given["column"]
    if not _is_name(column):
        place.fail(f"privacy_unit column = {column!r} is not a column name", REMEDY)
    return Unit(column, rows, name)


def is_row_limit(given: Any) -> bool:
    """True if a number of rows of one unit is usable."""
    is_integer = isinstance(given, int) and not isinstance(given, bool)
    return is_integer and 1 <= given <= MOST_ROWS


def _is_name(given: Any) -> bool:
    return isinstance(given, str) and bool(given) and given.isprintable()


def _read_name(place: Place, given: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Read the name of a declared unit: the only one need not be named."""
    if "unit" not in given:
        if len(names) > 1:
            listed = " or ".join(printable(name) for name in names)
            place.fail("privacy_unit does not say which unit", f"unit = one of {listed}")
        return names[0] if names else None
    name = given["unit"]
    if not isinstance(name, str) or name.casefold() not in names:
        place.fail(f"privacy_unit unit = {show(name)} is not declared", "add [unit.NAME]")
    return name.casefold()


def read_references(place: Place, given: Any) -> tuple[Reference, ...]:
    """Read ``references``: the tables that rows refer to, each with the column that says to what.

    A column stands for one of the same name, ``{ on = { own = "theirs" } }`` for others.
    """
    if not isinstance(given, dict):
        place.fail(f"references = {show(given)}", REFERS)
    found = [_read_reference(place, table, on) for table, on in given.items()]
    if len({each.table for each in found}) < len(found):
        place.fail("references name a table twice", "names are compared without case")
    return tuple(found)


def read_unit_keys(place: Place, given: Any, unit: Unit) -> tuple[str, ...]:
    """Read ``unit_keys``: columns each value of which belongs to one privacy unit.

    Args:
        place: the table, for complaints.
        given: a list of names of columns.
        unit: that of the table; its own column is none of them.
    """
    return _read_columns(place, "unit_keys", given, unit, UNIT_KEYS)


def read_unit_columns(place: Place, given: Any, unit: Unit) -> tuple[str, ...]:
    """Read ``unit_columns``: columns with ids of units that rows need not belong to.

    Args:
        place: the table, for complaints.
        given: a list of names of columns.
        unit: that of the table, which has to have a column of its own.
    """
    if given and unit.through is not None:
        hint = 'a row meets whom it names by the unit column of its own table: column = "..."'
        place.fail("has unit_columns, and the unit of another table", hint)
    return _read_columns(place, "unit_columns", given, unit, UNIT_COLUMNS)


def _read_columns(place: Place, what: str, given: Any, unit: Unit, example: str) -> tuple[str, ...]:
    """Read a list of columns that have to do with units, the one of the rows not among them."""
    if not isinstance(given, list) or not all(map(_is_name, given)):
        place.fail(f"{what} = {show(given)}", example)
    if len({name.casefold() for name in given}) < len(given):
        place.fail(f"{what} names a column twice", "names are compared without case")
    if given and unit.name is None:
        place.fail(f"has {what} and no declared unit", "declare [unit.NAME] and privacy_unit")
    if any(_same(name, unit.column) for name in given):
        place.fail(f"{what} names the privacy unit itself", "leave it out: rows meet by it")
    return tuple(given)


def _read_reference(place: Place, table: Any, on: Any) -> Reference:
    if isinstance(on, dict) and set(on) == {"on"}:
        on = on["on"]
    pairs = {on: on} if isinstance(on, str) else on
    is_usable = isinstance(pairs, dict) and pairs and all(map(_is_name, [*pairs, *pairs.values()]))
    if not _is_name(table) or not is_usable:
        place.fail(
            f"a reference to {show(table)} by {show(on)}",
            f'{REFERS}, or {{ patients = {{ on = {{ patient = "id" }} }} }}',
        )
    return Reference(table.casefold(), tuple(pairs.items()))


def relate(path: Path, tables: Mapping[str, Table]) -> dict[str, Table]:
    """Follow all references, and find whose the rows of every table are, and their keys.

    Raises: CatalogError (E_POLICY) where a way leads nowhere, round in a circle, to another unit,
    or to more than one row of a unit.
    """
    found: dict[str, Table] = {}
    for key in _in_order(path, tables):
        table, place = tables[key], Place(path, tables[key].name)
        way = table.unit.through
        if way is not None:
            owner = found[way.table]
            unit = replace(table.unit, column=owner.unit.column)
            others = tuple(each for each in table.references if each.table != way.table)
            table = replace(table, unit=unit, references=(way, *others))
        for each in table.references:
            _check_reference(place, table, each, found[each.table])
        found[key] = table
    keyed = {key: replace(found[key], keys=_keys(key, found)) for key in tables}
    return {key: _labelled(table, keyed) for key, table in keyed.items()}


def _in_order(path: Path, tables: Mapping[str, Table]) -> list[str]:
    """The tables, those that others refer to before them."""
    order: list[str] = []
    waiting: list[str] = []

    def visit(key: str) -> None:
        table, place = tables[key], Place(path, tables[key].name)
        if key in waiting:
            place.fail("its references go round in a circle", "leave one of them out")
        if key in order:
            return
        waiting.append(key)
        for way in ways_of(table):
            if way.table not in tables:
                place.fail(f"refers to {way.table!r}, which is not declared", f"add {way.table!r}")
            visit(way.table)
        waiting.pop()
        order.append(key)

    for key in tables:
        visit(key)
    return order


def ways_of(table: Table) -> tuple[Reference, ...]:
    """Return the declared references from a table to others."""
    through = table.unit.through
    return table.references if through is None else (through, *table.references)


def _check_reference(place: Place, table: Table, way: Reference, other: Table) -> None:
    name = printable(other.name)
    if table.public or other.public:
        place.fail(f"refers to {name}", "a public table is joined as it is, without a reference")
    if table.unit.name is None or other.unit.name is None:
        place.fail(
            f"refers to {name}, and they share no declared unit",
            "declare [unit.NAME], and a privacy_unit with a column in both tables",
        )
    if table.unit.name != other.unit.name:
        units = f"{printable(table.unit.name)} and {printable(other.unit.name)}"
        place.fail(f"refers to {name}, and their units differ: {units}", "refer within one unit")
    pairs = key_pairs(table, way, other)
    if pairs is None:
        place.fail(
            f"refers to {name} by its privacy unit and another column",
            "a unit is matched with the unit: name the columns of both privacy units",
        )
    if not pairs and other.unit.max_rows > 1:
        place.fail(
            f"a reference to {name} by the unit alone is not many to one: "
            f"a unit has {other.unit.max_rows:,} rows in {name}",
            f"refer to {name} by a key of its rows, or join them by the unit in a statement",
        )
    if table.unit.through == way and not pairs:
        place.fail("privacy_unit goes through a table by its unit", 'name it: column = "..."')


def key_pairs(table: Table, way: Reference, other: Table) -> tuple[tuple[str, str], ...] | None:
    """The pairs of columns of a reference but for the unit's; None where that meets another.

    Rows meet within their unit, whether the reference names it or not.

    Args:
        table: the one that declares the reference.
        way: pairs of columns, own one first.
        other: the table that it refers to.
    """
    found = []
    for one, two in way.on:
        own = table.unit.through is None and _same(one, table.unit.column)
        theirs = other.unit.through is None and _same(two, other.unit.column)
        if own != theirs:
            return None
        if not own:
            found.append((one, two))
    return tuple(found)


def _same(one: str, two: str | None) -> bool:
    return two is not None and one.casefold() == two.casefold()


def _keys(key: str, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The columns of a table by which rows are matched, but for its unit."""
    table = tables[key]
    own = [one for way in table.references for one, _ in _pairs(table, way, tables)]
    asked = [
        two
        for each in tables.values()
        for way in each.references
        if way.table == key
        for _, two in _pairs(each, way, tables)
    ]
    declared = [*table.unit_keys, *table.unit_columns, *_met_units(table, tables)]
    return tuple({name.casefold(): name for name in [*own, *asked, *declared]}.values())


def _met_units(table: Table, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The unit column of a table, where columns of some table hold ids of its units."""
    if table.unit.name is None or table.unit.through is not None or table.unit.column is None:
        return ()
    named = (each for each in tables.values() if each.unit.name == table.unit.name)
    return (table.unit.column,) if any(each.unit_columns for each in named) else ()


def _pairs(
    table: Table, way: Reference, tables: Mapping[str, Table]
) -> tuple[tuple[str, str], ...]:
    return key_pairs(table, way, tables[way.table]) or ()


def _labelled(table: Table, tables: Mapping[str, Table]) -> Table:
    """A table whose rows belong to units by reference, as the relation that finds them."""
    if table.unit.through is None:
        return table
    bases = [table]
    while bases[0].unit.through is not None:
        bases.insert(0, tables[bases[0].unit.through.table])
    return DerivedTable(
        table.name,
        table.source,
        table.unit,
        table.columns,
        budget=table.budget,
        row_count_hint=table.row_count_hint,
        complete=table.complete,
        references=table.references,
        keys=table.keys,
        unit_keys=table.unit_keys,
        unit_columns=table.unit_columns,
        options=table.options,
        relation=Scan(table.name.casefold()),
        bases=tuple(bases),
    )
