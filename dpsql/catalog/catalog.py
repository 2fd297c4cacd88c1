"""The catalog: everything that is public about the private tables, and the total budget."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.catalog.domain import Bins, Domain, Periods, Value
from dpsql.records import dataclass, field

if TYPE_CHECKING:
    from dpsql.catalog.discovery import Sought

ALL, OWNERS = "all", "own"
"""Whose domains, bounds and synthetic tables an analyst sees: everybody's, or those that the
analyst has paid for and that nobody in particular has."""

SERVERS = {"postgresql": "stream", "spark": "push"}
"""The engines of servers that are part of dpsql, and how each is read; others are installed."""
PUSHED_FROM = 10**8
"""Rows, by the public guess of the catalog, from which on a table is counted where it is.

Streaming costs 1.5 to 2 microseconds and 24 bytes per row once, counting 1.3 to 2.3 microseconds
per row and covering set, or a tenth of that where codes are kept.
"""

STORES = ("s3", "gs", "az", "https")
"""Schemes of addresses of objects in stores, whose formats are those of files."""

TEXTS = ("csv", "tsv", "tab", "txt")
PACKED = ("", ".gz", ".bz2", ".xz", ".zst", ".zip")
KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    **{f".{text}{packed}": "csv" for text in TEXTS for packed in PACKED},
    ".duckdb": "duckdb",
    ".db": "duckdb",
    **dict.fromkeys((".sav", ".zsav", ".por"), "spss"),
    ".dta": "stata",
    **dict.fromkeys((".sas7bdat", ".xpt"), "sas"),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), "sheet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    ".orc": "orc",
    **dict.fromkeys((".sqlite", ".sqlite3"), "sqlite"),
    **{f".{lines}{packed}": "json" for lines in ("ndjson", "jsonl") for packed in PACKED},
}
"""Formats of files, by the ends of their names."""

_ENGINE = re.compile(r"([a-z][a-z0-9_]{1,31})://", re.ASCII)


def engine_of(source: str) -> str | None:
    """Return the name of the data engine that a source is of, None for files, wherever they are.

    >>> [engine_of(each) for each in ("sqlite:///people.db", "/people.parquet", "s3://b/people.csv")]
    ['sqlite', None, None]
    """
    found = _ENGINE.match(source)
    return None if found is None or found[1] in STORES else found[1]


def is_stored(source: str) -> bool:
    """True for an address of objects in a store.

    >>> is_stored("s3://bucket/people.parquet"), is_stored("/people.parquet")
    (True, False)
    """
    found = _ENGINE.match(source)
    return found is not None and found[1] in STORES


def kind_of(path: str) -> str | None:
    """Return what a file holds by the last two parts of its name, or the last one.

    >>> [kind_of(each) for each in ("a.parquet", "b/a.1.CSV.gz", "*.csv", ".csv", "a.gz", "csv")]
    ['parquet', 'csv', 'csv', None, None, None]
    """
    _, *suffixes = os.path.basename(path).lower().lstrip(".").split(".")
    kinds = (KINDS.get("".join(f".{each}" for each in suffixes[-n:])) for n in (2, 1))
    return next(filter(None, kinds), None)


@dataclass(frozen=True, slots=True)
class Reference:
    """A declared way from the rows of a table to those of another: equal values of some columns.

    ``table`` is case-folded; ``on`` has pairs of the own column and that of the other table, as
    they are stored. The way is many to one within a privacy unit.
    """

    table: str
    on: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """Whom the guarantee protects: one row, or all rows (at most ``max_rows``) of one person.

    ``name`` is that of a unit which several tables share. With ``through``, a row belongs to the
    units of the rows that it refers to; ``column`` is then that of the table at the end of the way.
    """

    column: str | None = None
    max_rows: int = 1
    name: str | None = field(default=None, repr=False)
    through: Reference | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Column:
    """One declared column.

    ``domain`` gives it cells that predicates and GROUP BY can use; ``bounds`` make it a measure.
    Cells are ordered: the domain's own, then ``other`` if declared, then NULL if declared.
    ``loose`` says that the upper bound is a guess, far above most values: advice, no more.
    ``sought`` is what nobody declared, so that it has to be found; where it is, ``released`` names
    the entry of the ledger that paid for it. ``implied`` says that the type alone gives the
    domain: a ledger has it as a column without one. It is not in ``repr``, of which digests are
    made: whose rows are kept, and what was paid for, are those of a column that declares it.
    """

    name: str
    type: str
    domain: Domain | None = None
    bounds: tuple[Fraction, Fraction] | None = None
    null: bool = False
    other: Value = None
    loose: bool = False
    sought: Sought | None = None
    released: str = ""
    implied: bool = field(default=False, repr=False)

    size: int = field(init=False, repr=False, compare=False)
    """Number of cells; zero without a domain."""

    def __post_init__(self) -> None:
        others = (self.other is not None) + self.null
        size = 0 if self.domain is None else self.domain.size + others
        object.__setattr__(self, "size", size)

    @property
    def is_coarse(self) -> bool:
        """True if different values may be in one cell: bins, months, hours."""
        if isinstance(self.domain, Periods):
            return self.type != "date" or (self.domain.unit, self.domain.length) != ("day", 1)
        return isinstance(self.domain, Bins)

    @property
    def number_bounds(self) -> tuple[float, float] | None:
        """The least and the largest number it can hold by declaration, None if it is no number."""
        if self.bounds is not None:
            return float(self.bounds[0]), float(self.bounds[1])
        if isinstance(self.domain, Bins):
            return float(self.domain.edges[0]), float(self.domain.edges[-1])
        numbers = (v for v in self.cells if isinstance(v, int | float | Decimal))
        known = [v for v in numbers if not isinstance(v, bool)]
        if not known or len(known) + self.null < self.size:
            return None
        return float(min(known)), float(max(known))

    @property
    def cells(self) -> tuple[Value, ...]:
        """The representative value of every cell, in cell order."""
        if self.domain is None:
            return ()
        other = () if self.other is None else (self.other,)
        return (*self.domain.representatives, *other, *((None,) if self.null else ()))


@dataclass(frozen=True, slots=True)
class Table:
    """One table: where its rows are, whom it protects, and its declared columns.

    ``columns`` is keyed by case-folded name, in declared order. ``budget`` is the epsilon of
    everything ever released about this table, when it has one of its own. ``row_count_hint`` is a
    public guess at its number of rows; ``complete`` says that columns hold nothing but declared
    values, so that all of them decide whether a row counts; ``synthetic`` marks a released model
    instead of rows. ``references`` are the tables that its rows refer to, ``keys`` the stored
    columns by which references match rows, as they are written, but for that of the unit.
    ``unit_keys`` are keys each value of which belongs to one unit, as the number of an order;
    ``unit_columns`` hold ids of units that a row need not belong to, as whom an order is sent to.
    ``options`` say how a server that holds the rows is reached and read, and ``spill``, the folder
    in whose files their codes are kept. ``room`` is the number of rows that room is taken for
    before the first is read, which is known where a catalog is opened to be asked.
    """

    name: str
    source: str
    unit: Unit
    columns: dict[str, Column]
    public: bool = False
    budget: Fraction | None = None
    row_count_hint: int | None = None
    synthetic: bool = False
    complete: bool = False
    references: tuple[Reference, ...] = ()
    keys: tuple[str, ...] = ()
    unit_keys: tuple[str, ...] = ()
    unit_columns: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    room: int = field(default=0, compare=False)

    engine: str | None = field(init=False, repr=False, compare=False)
    """The data engine that holds the rows, None for files."""
    sizes: dict[str, int] = field(init=False, repr=False, compare=False)
    """Cells of every column, zero without a domain; counted once, asked by every statement."""

    @property
    def title(self) -> str:
        """The name that people read."""
        return self.name

    @property
    def is_pushed(self) -> bool:
        """True if rows are counted where they are, if the engine can: by public facts alone."""
        read = self.option("read")
        if read is not None or self.engine is None:
            return read == "push"
        is_large = (self.row_count_hint or 0) >= PUSHED_FROM
        return SERVERS.get(self.engine) == "push" or (self.engine in SERVERS and is_large)

    @property
    def kind(self) -> str | None:
        """The engine or format of files that holds the rows; None where the name tells neither."""
        if self.engine is not None:
            return self.engine
        if self.option("format") is not None:
            return self.option("format")
        return kind_of(self.source) or ("duckdb" if self.option("table") else None)

    def told(self, names: Sequence[str]) -> Sequence[str]:
        """Return the columns, of some, that are named where it is said which rows are left out."""
        return names

    def option(self, name: str) -> str | None:
        """Return an option of the source by its name; None where it is not set."""
        return dict(self.options).get(name)

    def __post_init__(self) -> None:
        object.__setattr__(self, "engine", engine_of(self.source))
        sizes = {name: column.size for name, column in self.columns.items()}
        object.__setattr__(self, "sizes", sizes)


PublicRows = Callable[[Table], dict[str, tuple[str, Sequence[Any]]]]
"""Reads a public table: column name to its DuckDB type and values."""
OF_CATALOG = "of catalog"
"""The mark of a table that was named with its schema: it is no CTE."""
VIEW = "view"
"""The mark of a CTE that is a view of the catalog, with its name."""


@dataclass(frozen=True, slots=True)
class View:
    """A SELECT that statements may use by name; it is written out where it is used.

    One with ``max_rows`` is a table of its own: so many of its rows count for each privacy unit.
    ``columns`` declare counts and sums by unit otherwise than follows, by case-folded name.
    """

    name: str
    sql: str
    max_rows: int | None = None
    columns: dict[str, Column] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Budget:
    """The (epsilon, delta) of everything that is ever released from the catalog.

    ``discovery_delta`` is the part of delta that is set apart for keys which nobody listed;
    ``default_epsilon`` is what a request costs where nobody says so: no promise depends on it.
    """

    epsilon: Fraction
    delta: Fraction
    max_epsilon_per_request: Fraction = Fraction(100)
    discovery_delta: Fraction = Fraction(0)
    default_epsilon: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Catalog:
    """A validated catalog; ``tables`` is keyed by case-folded name, in declared order.

    ``noise_backend`` names the sampler; the law and the cost of the noise are the same for each.
    ``anchors`` is the folder of the ledger's anchor, None for the user's state folder; ``analysts``
    are the epsilons of the people who may ask, by case-folded name: empty when anyone may.
    ``views`` are SELECTs by case-folded name, in declared order. ``derived`` are tables that
    statements make of relations, by case-folded name; they are found, and never listed.
    ``scratch`` is the part of the budget that drafts may spend, None where there are none.
    ``visibility`` says whose domains, bounds and synthetic tables an analyst sees.
    """

    path: Path
    budget: Budget
    tables: dict[str, Table] = field(default_factory=dict)
    noise_backend: str = "dpsql"
    anchors: Path | None = None
    analysts: dict[str, Fraction] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    derived: dict[str, Table] = field(default_factory=dict, compare=False, repr=False)
    scratch: Fraction | None = None
    visibility: str = ALL

    def find(self, name: str) -> Table:
        """The table of a case-folded name, a declared or a derived one. Raises: KeyError."""
        return self.tables[name] if name in self.tables else self.derived[name]

    def policy_hash(self) -> str:
        """Hash every fact the guarantee depends on: budget, domains, bounds, units, sources."""
        facts: dict[str, object] = {
            "budget": [str(self.budget.epsilon), str(self.budget.delta)],
            "tables": {
                key: _facts(table, self.path) + _amount(table) for key, table in self.tables.items()
            },
        }
        if self.budget.discovery_delta:
            facts["discovery_delta"] = str(self.budget.discovery_delta)
        if self.scratch is not None:
            facts["scratch"] = str(self.scratch)
        if self.analysts:
            facts["analysts"] = {name: str(epsilon) for name, epsilon in self.analysts.items()}
        if self.visibility != ALL:
            facts["visibility"] = self.visibility
        if self.views:
            facts["views"] = {
                key: view.sql if view == View(view.name, view.sql) else _facts_of_view(view)
                for key, view in self.views.items()
            }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def meaning_hash(self) -> str:
        """Hash what rows and columns mean: every fact of the policy but how much may be spent."""
        tables = {key: _facts(table, self.path) for key, table in self.tables.items()}
        views = {key: _facts_of_view(view) for key, view in self.views.items()}
        return hashlib.sha256(json.dumps([tables, views], sort_keys=True).encode()).hexdigest()

    def parts(self) -> dict[str, str]:
        """A short hash of each part that the guarantee depends on, by what it is called.

        Budgets are none of them: a ledger has their values.
        """
        found: dict[str, object] = {}
        for table in self.tables.values():
            source, column, rows, public, columns, *rest = _facts(table, self.path) + _amount(table)
            found[f"table {table.name}"] = [source, column, rows, public, *rest]
            pairs = zip(table.columns.values(), columns, strict=True)
            found |= {f"column {table.name}.{each.name}": fact for each, fact in pairs}
        found |= {f"view {view.name}": _facts_of_view(view) for view in self.views.values()}
        if self.visibility != ALL:
            found["visibility of names"] = self.visibility
        return {name: _short_hash(fact) for name, fact in found.items()}


def names_of(table: Table) -> list[tuple[str, bool]]:
    """The columns of a private table by name, and whether they are hidden.

    The unit's and the keys are among them though they need not be declared: they are hidden then.
    """
    names = [(column.name, False) for column in table.columns.values()]
    unit = [] if table.unit.column is None else [table.unit.column]
    for name in (*unit, *table.keys):
        if name.casefold() not in table.columns and (name, True) not in names:
            names.append((name, True))
    return names


def _short_hash(fact: object) -> str:
    return hashlib.sha256(json.dumps(fact).encode()).hexdigest()[:16]


def _facts_of_view(view: View) -> list[object]:
    columns = [*map(_facts_of_column, view.columns.values())]
    return [view.sql, view.max_rows, *([columns] if columns else [])]


def _facts_of_column(column: Column) -> list[object]:
    return [
        column.name,
        column.type,
        column.null,
        *map(repr, (None if column.implied else column.domain, column.bounds)),
        repr(column.other),
        *([] if column.sought is None else [repr(column.sought)]),
    ]


def _facts(table: Table, catalog: Path) -> list[Any]:
    columns = [*map(_facts_of_column, table.columns.values())]
    is_named = table.engine or is_stored(table.source)
    source = table.source if is_named else os.path.relpath(table.source, catalog.parent)
    facts: list[Any] = [source, table.unit.column, table.unit.max_rows, table.public, columns]
    facts += ["complete"] if table.complete else []
    free = ("spill", "version", "refresh")
    within = [each for each in table.options if each[0] not in free and not table.engine]
    facts += [["within", *within]] if within else []
    ways = [*table.references, *([table.unit.through] if table.unit.through else [])]
    facts += [["unit", table.unit.name]] if table.unit.name else []
    facts += [["reference", way.table, *way.on] for way in ways]
    facts += [["unit keys", *table.unit_keys]] if table.unit_keys else []
    facts += [["unit columns", *table.unit_columns]] if table.unit_columns else []
    return facts


def _amount(table: Table) -> list[Any]:
    """The budget of a table of its own."""
    return [] if table.budget is None else [str(table.budget)]
