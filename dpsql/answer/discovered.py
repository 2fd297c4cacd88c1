"""Domains and bounds that were found: releases, from then on declared as if the catalog said so.

One stays stored when it is dropped: its name and its column are free again, and what was measured
with it is never mistaken for what is measured with the next.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.catalog import Column, Table
from dpsql.catalog.composite_keys import joint_column, joint_columns, parts_of
from dpsql.catalog.discovery import distinct_keys
from dpsql.catalog.domain import Periods, Values, count_periods
from dpsql.catalog.read_calendar import MAX_CELLS
from dpsql.errors import LedgerError, ProgrammingError, decimal_text, printable
from dpsql.records import dataclass, replace
from dpsql.relation.lineage import named, origins_of
from dpsql.relation.unit_local import DerivedTable
from dpsql.sql.compiled import Compiled

if TYPE_CHECKING:
    from dpsql.catalog.discovery import Key

VERSION = 1
"""Of what is stored of a domain."""


@dataclass(frozen=True, slots=True)
class CountedKeys:
    """The noisy counts that keys were released with, in the order of the keys.

    ``null`` and ``other`` are None where these are no cells; ``scales`` are those of the noise on
    counts of keys and of NULL, and on that of all others; ``level`` is the least that was shown.
    """

    counts: tuple[int, ...]
    null: int | None
    other: int | None
    scales: tuple[Fraction, Fraction]
    level: int


@dataclass(frozen=True, slots=True)
class Discovered:
    """The keys, or the bounds, of one column, and the ledger entry that paid for them.

    ``what`` is DOMAIN or BOUNDS, which are None where none stood out. ``table`` and ``column`` are
    case-folded. ``epsilon`` is as it was charged, ``delta`` the chance
    with which it may not hold. ``facts`` are what EXPLAIN said, ``data`` the digest of the version
    of the data; ``receipt`` is (ledger, seq, head). ``counted`` are the counts that came with keys;
    ``joint`` says that keys are of several columns together.
    """

    what: str
    name: str
    table: str
    column: str
    keys: tuple[Key, ...]
    bounds: tuple[Fraction, Fraction] | None
    epsilon: Fraction
    delta: Fraction
    noise: str
    data: str
    receipt: tuple[str, int, str]
    facts: tuple[tuple[str, str], ...] = ()
    dropped: bool = False
    counted: CountedKeys | None = None
    joint: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """The columns that it was found of."""
        return tuple(self.column.split(", ")) if self.joint else (self.column,)

    @property
    def head(self) -> str:
        """The head of its receipt, which tells it from every other of its name or column."""
        return self.receipt[2]

    @property
    def told(self) -> str:
        """The part of the scopes of releases that names it."""
        return f"{self.table}.{self.column}@{self.head}"

    def declare(self, column: Column) -> Column:
        """The column as it is declared from then on; as it was, where nothing was found."""
        if self.what == "BOUNDS":
            return replace(column, bounds=self.bounds, released=self.head)
        found = replace(column, released=self.head)
        if column.type == "text":
            texts = distinct_keys(self.keys, column.other, room_of(column))
            return replace(found, domain=Values(tuple(map(str, texts))))
        if column.type == "integer":
            listed = distinct_keys(self.keys, column.other, room_of(column))
            numbers = tuple(key for key in listed if isinstance(key, int))
            is_empty = not numbers and column.other is None and not column.null
            return found if is_empty else replace(found, domain=Values(numbers))
        days = [key for key in self.keys if isinstance(key, dt.date)]
        if not days or column.sought is None:
            return found
        by = column.sought.by
        count = count_periods(days[0], days[-1], by)
        return replace(found, domain=Periods(days[0], by, min(count, room_of(column))))

    def rows(self) -> list[tuple[str, str]]:
        """Return lines to show: the column, what was found of it, and the cost."""
        paid = f"epsilon {decimal_text(self.epsilon)} ({self.noise})"
        paid += f", discovery_delta {float(self.delta):g}" if self.delta else ""
        rows = [("column", f"{self.table}.{self.column}")]
        if self.what == "DOMAIN":
            rows.append(("keys found", f"{len(self.keys):,}"))
        else:
            rows.append(("bounds", " to ".join(map(decimal_text, self.bounds or ())) or "none"))
        return [*rows, *self.facts, ("cost", paid), ("entry", str(self.receipt[1]))]


def room_of(column: Column) -> int:
    """Return the number of keys that a column can be declared with."""
    return MAX_CELLS - (column.other is not None) - column.null


def sought_in(table: Table, found: Mapping[str, Discovered]) -> list[Discovered]:
    """Return current finds of a table, of columns that the catalog itself leaves open."""
    return [each for each in current(found, table.name.casefold()) if _is_sought(table, each)]


def _is_sought(table: Table, found: Discovered) -> bool:
    """True if the catalog leaves open what was found."""
    columns = [table.columns.get(part) for part in found.parts]
    sought = [None if column is None else column.sought for column in columns]
    return all(each is not None and each.statement.endswith(found.what) for each in sought)


def current(found: Mapping[str, Discovered], table: str) -> list[Discovered]:
    """Return the finds of a table, by its case-folded name, that are not dropped."""
    return [each for each in found.values() if each.table == table and not each.dropped]


def declare_all(table: Table, found: Iterable[Discovered]) -> Table:
    """A table of the catalog with what was found of its columns."""
    columns = dict(table.columns)
    for each in found:
        if each.table == table.name.casefold() and set(each.parts) <= columns.keys():
            columns[each.column] = each.declare(_undeclared(table, each.parts))
    return table if columns == table.columns else replace(table, columns=columns)


def _undeclared(table: Table, parts: tuple[str, ...]) -> Column:
    """The column that something was found of, or that of several together."""
    found = [table.columns[part] for part in parts]
    return found[0] if len(found) == 1 else joint_column(found)


def with_one_key(tables: Mapping[str, Table], bounds: bool = False) -> dict[str, Table]:
    """The tables as if one key had been found of every column whose keys were not.

    With ``bounds``, as if the bounds of measures had been found as well.
    """
    found = {}
    for name, table in tables.items():
        missing = {
            key: _with_one(column)
            for key, column in table.columns.items()
            if (bounds or _is_of_keys(column)) and column.sought is not None and not column.released
        }
        columns = {**table.columns, **missing}
        found[name] = replace(table, columns=columns) if missing and not table.synthetic else table
    return found


def _with_one(column: Column) -> Column:
    assert column.sought is not None
    if column.sought.what == "bounds":
        return replace(column, bounds=(Fraction(0), Fraction(1)), released="not yet")
    some = Periods(dt.date(2024, 1, 1), column.sought.by, 1)
    domain = some if column.type == "date" else Values(("?",) if column.type == "text" else (0,))
    return replace(column, domain=domain, released="not yet")


def sought_by(compiled: Compiled) -> tuple[tuple[str, str], ...]:
    """The stored columns that a statement is about whose keys nobody listed, with their tables."""
    found = {
        (table, name)
        for select in compiled.selects
        for table, name in origins_of(select.table, select.query.mentioned)
        if not select.table.synthetic and _is_of_keys(_stored(select.table, table).columns[name])
    }
    return tuple(sorted(found))


def unfound(
    sought: Iterable[tuple[str, str]], tables: Mapping[str, Table]
) -> tuple[tuple[str, str], ...]:
    """Return the stored columns whose keys were found neither alone nor with others of them."""
    places = set(sought)
    for name in {table for table, _ in places}:
        for column in joint_columns(tables[name]).values():
            parts = {(name, part) for _, part in parts_of(column)}
            places -= parts if parts <= set(sought) else set()
    return tuple(sorted(p for p in places if not tables[p[0]].columns[p[1]].released))


def _stored(table: Table, name: str) -> Table:
    """The stored table of a name: a table itself, or one of those that it is made of."""
    return named(table.bases)[name] if isinstance(table, DerivedTable) else table


def _is_of_keys(column: Column) -> bool:
    return column.sought is not None and column.sought.what == "keys"


def find_named(found: Mapping[str, Discovered], name: str, what: str) -> Discovered:
    """The domain, or the bounds, of a name. Raises: ProgrammingError (E_UNKNOWN_TABLE)."""
    named = [each for each in found.values() if not each.dropped and each.what == what]
    for each in named:
        if each.name.casefold() == name.casefold():
            return each
    known = ", ".join(each.name for each in named) or "there are none"
    word = "domain" if what == "DOMAIN" else "bounds"
    raise ProgrammingError(
        "E_UNKNOWN_TABLE",
        f"no {word} of the name {printable(name)!r} {'was' if what == 'DOMAIN' else 'were'} found",
        hint=f"found so far: {known}; SHOW domains lists them",
    )


def encode_found(found: Discovered) -> bytes:
    """Return one as JSON."""
    facts = {
        "version": VERSION,
        "what": found.what,
        "name": found.name,
        "table": found.table,
        "column": found.column,
        "keys": [key.isoformat() if isinstance(key, dt.date) else key for key in found.keys],
        "are_days": any(isinstance(key, dt.date) for key in found.keys),
        "bounds": None if found.bounds is None else list(map(str, found.bounds)),
        "epsilon": str(found.epsilon),
        "delta": str(found.delta),
        "noise": found.noise,
        "data": found.data,
        "receipt": found.receipt,
        "facts": found.facts,
        "dropped": found.dropped,
        **({"joint": True} if found.joint else {}),
        **({} if found.counted is None else {"counted": _facts_of(found.counted)}),
    }
    return json.dumps(facts).encode()


def decode_found(body: bytes) -> Discovered:
    """Return what was encoded.

    Raises: LedgerError (E_LEDGER_VERSION); ValueError, KeyError, TypeError for anything else.
    """
    facts = json.loads(body)
    if facts["version"] > VERSION:
        raise LedgerError(
            "E_LEDGER_VERSION",
            "a domain was stored by a later version of dpsql",
            hint="use the version that made it",
        )
    low_high = facts["bounds"]
    ledger_id, seq, head = facts["receipt"]
    return Discovered(
        facts["what"],
        facts["name"],
        facts["table"],
        facts["column"],
        tuple(dt.date.fromisoformat(k) if facts["are_days"] else k for k in facts["keys"]),
        None if low_high is None else (Fraction(low_high[0]), Fraction(low_high[1])),
        Fraction(facts["epsilon"]),
        Fraction(facts["delta"]),
        facts["noise"],
        facts["data"],
        (ledger_id, int(seq), head),
        tuple((name, text) for name, text in facts["facts"]),
        bool(facts["dropped"]),
        _read_counted(facts["counted"]) if "counted" in facts else None,
        bool(facts.get("joint")),
    )


def _facts_of(counted: CountedKeys) -> list[object]:
    scales = [str(each) for each in counted.scales]
    return [counted.counts, counted.null, counted.other, scales, counted.level]


def _read_counted(facts: list[Any]) -> CountedKeys:
    counts, null, other, (scale, rest), level = facts
    return CountedKeys(tuple(counts), null, other, (Fraction(scale), Fraction(rest)), level)
