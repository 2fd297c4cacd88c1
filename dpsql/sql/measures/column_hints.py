"""Remedies for a column that cannot be used as it is asked for."""

from __future__ import annotations

from dpsql.catalog import Column, Table
from dpsql.errors import printable
from dpsql.relation.unit_local import DerivedTable, Scan

_DOMAIN = "declare a domain (or bins) for it in the catalog"
_STEPS = (
    "declare a domain (or bins) for it in the catalog; the sum or mean of a unit's own rows may be "
    "compared with numbers, and grouped in steps, FLOOR(x / 50)"
)


def remedy(table: Table, column: Column, summed: bool = False, tested: bool = False) -> str:
    """The remedy for a column without domain, or bounds; ``tested`` for NULL, it may need none."""
    if tested and column.bounds is not None:
        name = printable(column.name)
        return f"COUNT({name}) counts where it is known, COUNT(*) - COUNT({name}) where it is not"
    sought, names = column.sought, f"{printable(table.name)} ({printable(column.name)})"
    if sought is None or (sought.what == "bounds") != summed:
        if summed:
            return f"declare bounds = [lowest, highest] for {column.name} in the catalog"
        return _STEPS if _is_made(table) else _DOMAIN
    word = sought.statement.removeprefix("CREATE ")
    if column.released:
        return f"nothing was found: DROP {word} its name, then {sought.statement} with more epsilon"
    found = f"{sought.statement} d FROM {names} OPTIONS (epsilon = 0.3) finds what it lacks, once"
    return found if summed else f"{found}; OPTIONS (keys = 'private') does both in one request"


def ranked(table: Table, column: Column, alone: bool) -> str:
    """The declaration that a measure without bins needs, so that quantiles can be read off it.

    Those of an expression, which is not the column ``alone``, are read where bins stay bins.
    """
    if _is_made(table):
        return _STEPS
    bins = f"declare bins beside the bounds of {printable(column.name)} in the catalog: bins = 100"
    return bins if alone else f"{bins}; then ask for that of the column alone"


def _is_made(table: Table) -> bool:
    """True if a table has columns that none of the catalog has."""
    return isinstance(table, DerivedTable) and not isinstance(table.relation, Scan)
