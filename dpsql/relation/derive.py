"""Tables that statements make of others: found by name, read by the vault, charged to all bases."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dpsql.catalog.catalog import Catalog, Table, Unit
from dpsql.catalog.read_units import MOST_ROWS
from dpsql.errors import InternalError, ProgrammingError
from dpsql.relation.lineage import named, released_of, trace
from dpsql.relation.unit_local import DerivedTable, children, scanned

if TYPE_CHECKING:
    from dpsql.relation.unit_local import UnitLocal

MOST_PARTS = 1_000
"""Tables and steps of a relation, each as often as it stands there: they are worked out anew."""


def derive(
    catalog: Catalog, relation: UnitLocal, label: str, max_rows: int | None = None
) -> DerivedTable:
    """The table of a relation over tables of the catalog, which finds it by name from now on.

    The same relation gives the same name everywhere.

    Args:
        catalog: it keeps the table among its derived ones.
        relation: steps that never mix the rows of two units.
        label: text that people read in the name, before its digest.
        max_rows: rows that a unit keeps of it, None for as many as its tables may have.

    Raises: ProgrammingError (E_JOIN, E_TOO_LARGE, E_TOO_COMPLEX).
    """
    _check_parts(relation)
    from dpsql.relation.header import read_header  # most tables are stored

    bases = bases_of(catalog, scanned(relation))
    tables = named(bases)
    header = read_header(relation, tables)
    released = released_of(trace(relation, tables).read, tables)
    most = header.most if max_rows is None else max_rows
    if most > MOST_ROWS:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"a privacy unit may have {most:,} rows of this",
            hint="declare a view with a max_rows of its own",
        )
    table = DerivedTable(
        f"{label} #{digest_of(relation, most, released)}",
        "",
        Unit(header.unit, most, header.unit_name),
        dict(header.columns),
        relation=relation,
        bases=bases,
    )
    known = catalog.derived.setdefault(table.name.casefold(), table)
    if known != table:
        raise InternalError("E_INTERNAL", "two relations have one name")
    return table


def _check_parts(relation: UnitLocal) -> None:
    waiting, count = [relation], 0
    while waiting:
        waiting += children(waiting.pop())
        count += 1
        if count > MOST_PARTS:
            raise ProgrammingError(
                "E_TOO_COMPLEX",
                f"rows that are put together in over {MOST_PARTS:,} steps",
                hint="a sub-query is worked out anew wherever it is used; one that is used twice by"
                " one that is used twice is worked out four times",
            )


def bases_of(catalog: Catalog, names: Iterable[str]) -> tuple[Table, ...]:
    """The stored tables that tables read, each once, those that others refer to before them."""
    found: dict[str, Table] = {}
    for name in names:
        table = catalog.find(name)
        for base in table.bases if isinstance(table, DerivedTable) else (table,):
            found.setdefault(base.name.casefold(), base)
    return tuple(found.values())


def digest_of(relation: UnitLocal, max_rows: int, released: tuple[str, ...] = ()) -> str:
    """Return a name for a relation: what is made of the same nodes has the same one.

    Args:
        relation: its ``repr`` is what is hashed, so that a field that shows changes names on disk.
        max_rows: rows that a unit keeps.
        released: found domains that its conditions are about, which nodes do not name.
    """
    facts = (relation, max_rows, released) if released else (relation, max_rows)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]
