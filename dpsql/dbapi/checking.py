"""``dpsql check``: whether the sources fit the catalog, and what the declared views leave out.

For the curator. The exact figures are private and cost nothing; the private estimate is an
ordinary release that is paid for, and may be shown to anybody.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.catalog import Table
from dpsql.catalog.domain import Values
from dpsql.catalog.read import read_catalog
from dpsql.engine.matrix import MeasuringStep
from dpsql.engine.planner import Planner
from dpsql.engine.terms import require_epsilon
from dpsql.errors import DatabaseError, ProgrammingError, printable
from dpsql.plan.plan import Part, Plan
from dpsql.plan.request import Request, make_plan
from dpsql.privacy.doors.vaults import read_public, share_room
from dpsql.records import dataclass, replace
from dpsql.relation.row_view import RowView, leaves_out
from dpsql.sql.relations import suggest
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from dpsql.strategy.noise_law import LAPLACE
from dpsql.workload.workload import Product

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Connection
    from dpsql.engine.engine import Engine
    from dpsql.privacy.doors.check_figures import ColumnFigures as ColumnFigures
    from dpsql.privacy.doors.check_figures import Figures as Figures


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """Facts of a source once it opens: its kind, and the type family of every column."""

    table: Table
    kind: str
    files: int
    families: dict[str, str]


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A listed column of a private table beside that of its name in a public one.

    ``unmet`` are declared values that no public row has, of so many ``declared`` ones, and
    ``unknown`` those of public rows that are not declared.
    """

    column: str
    public: str
    declared: int
    unmet: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoisyCount:
    """A noisy number of rows, or of units, with its standard error.

    ``columns`` are those whose values decide which rows count: () for none of them.
    """

    table: str
    columns: tuple[str, ...]
    units: bool
    value: float
    stddev: float


@dataclass(frozen=True, slots=True)
class Estimates:
    """A private estimate of what the views of some tables leave out, and what it cost."""

    found: tuple[NoisyCount, ...]
    epsilon: Fraction
    entry: int
    free: bool


@dataclass(frozen=True, slots=True, eq=False)
class CountingStep(MeasuringStep):
    """The step that counts: no statement asks for it."""

    counts: Plan
    asked = ("dpsql check --dp",)

    @property
    def plan(self) -> Plan:
        """The plan that is measured."""
        return self.counts

    def keys(self, planner: Planner) -> tuple[str, ...]:
        """Return the names that identical counts on the same data share."""
        return planner.run_names(self.counts.fingerprint, self.price.tables)


def chosen_tables(path: str | os.PathLike[str], name: str | None) -> tuple[Table, ...]:
    """The tables of a catalog, or one of them.

    Raises: CatalogError; ProgrammingError (E_UNKNOWN_TABLE); DataUnavailable (E_DATA) where it
    states more rows than there is room for.
    """
    tables = share_room(read_catalog(path)).tables
    if name is None:
        return tuple(tables.values())
    if name.casefold() not in tables:
        raise ProgrammingError(
            "E_UNKNOWN_TABLE",
            f"there is no table {printable(name)!r} in the catalog",
            hint=suggest(name, [table.name for table in tables.values()], "tables"),
        )
    return (tables[name.casefold()],)


def examine(
    tables: Sequence[Table], known: Mapping[str, Table] | None = None
) -> Iterator[OpenedSource | Figures | DatabaseError]:
    """Open every source, and read those of private tables: their exact figures.

    ``known`` are all tables of the catalog, which rows may refer to. A source that does not open
    gives the reason, and the others follow.
    """
    from dpsql.privacy.doors.check_figures import (  # exact figures: here alone
        inspect_rows,
        inspect_source,
    )

    for table in tables:
        try:
            if table.public:
                yield OpenedSource(table, *inspect_source(table))
            else:
                yield inspect_rows(table, known)
        except DatabaseError as error:
            yield error


def public_keys(table: Table, known: Sequence[Table]) -> Iterator[PublicKey]:
    """Compare the lists of a private table with public columns of the same name.

    Public facts alone: rows with a value that no public row has are lost where the two are joined.
    Columns that agree, and public tables that do not open, are left out.
    """
    for public in () if table.public else (each for each in known if each.public):
        try:
            values = {name.casefold(): found for name, (_, found) in read_public(public).items()}
            for key, column in table.columns.items():
                if not isinstance(column.domain, Values) or key not in values:
                    continue
                here = {str(each) for each in column.domain.representatives}
                there = {str(each) for each in values[key] if each is not None}
                found = PublicKey(
                    *(column.name, public.name, len(here)),
                    tuple(sorted(here - there)),
                    tuple(sorted(there - here)),
                )
                if found.unmet or found.unknown:
                    yield found
        except DatabaseError:
            continue  # what is wrong with it is told of itself


def plan_estimate(engine: Engine, tables: Sequence[Table], epsilon: Fraction) -> Plan:
    """One count of rows for each column and for none and all of them, and one of units.

    All have the same share of the budget. A unit has at most ``max_rows`` rows in each view.

    Args:
        engine: it knows the catalog, and forecasts the parts.
        tables: private ones, of which every declared column is counted.
        epsilon: of the whole plan, by Laplace noise.
    """
    parts = [part for table in tables for part in _parts(engine, table)]
    share = epsilon / len(parts)
    return Plan(
        tuple(replace(p, amount=share) for p in parts), LAPLACE.name, epsilon, Fraction(0), None
    )


def _parts(engine: Engine, table: Table) -> list[Part]:
    """Return the parts of a plan that count one table: its rows and units, in each view."""
    name = table.name.replace('"', '""')
    counts = [f'SELECT COUNT(*) FROM "{name}"']
    if table.unit.column is not None:
        unit = table.unit.column.replace('"', '""')
        counts.append(f'SELECT COUNT(DISTINCT "{unit}") FROM "{name}"')
    compiled = engine.compile([parse(split_statements(sql)[0]) for sql in counts])
    request = Request(compiled, Fraction(1), Fraction(0), LAPLACE.name)
    rows, *units = make_plan(request).plan.parts
    columns = sorted(key for key, each in table.columns.items() if leaves_out(table, each))
    views = dict.fromkeys([(), *((key,) for key in columns), tuple(columns)])
    return [
        *(replace(rows, view=RowView(view)) for view in views),
        *(replace(u, view=RowView(())) for u in units),
    ]


def estimate_left_out(
    connection: Connection, tables: Sequence[Table], epsilon: Fraction
) -> Estimates:
    """Release noisy numbers of rows; the same question again is free.

    Args:
        connection: it pays, as its analyst if it has one.
        tables: private ones of its catalog.
        epsilon: of the whole release, above 0.

    Raises: BudgetExceeded, LedgerError, DataUnavailable; nothing is charged by a refusal.
    Guarantee: an ordinary release, charged to the ledger before noise is drawn.
    """
    engine = connection.engine
    terms = connection.terms.with_values({"epsilon": epsilon})
    plan = plan_estimate(engine, tables, require_epsilon(terms))
    release, free = engine.settle(CountingStep(plan))
    found = []
    for part, values in zip(plan.parts, release.values, strict=True):
        (answer,) = part.estimate(values).answers([Product({})])
        stddev = math.sqrt(float(part.forecast.variance(Product({}))[0]))
        view = () if part.view is None else part.view.columns
        found.append(NoisyCount(part.table, view, part.units, float(answer[0]), stddev))
    return Estimates(tuple(found), plan.epsilon, release.seq, free)
