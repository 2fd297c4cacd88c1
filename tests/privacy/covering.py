"""Random tables of hostile values as text, and random covering sets of them, for several engines.

Every stored type is one that PostgreSQL and DuckDB both have, so that the same rows can be written
to both; what leaves the vault must then be the same, number by number.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import Bins, DecimalRange, IntegerRange, Values
from dpsql.privacy.vault.files.database import quote
from dpsql.privacy.vault.unit.rows import fits
from dpsql.relation.row_view import RowView
from dpsql.workload.cells import AnyResolution, Cells, Nodes, Steps, Unions, cells_of
from tests.privacy.additivity import CLOCKS, DATES, FLAGS, NUMBERS, TIMES, WORDS
from tests.support.tables import insert, scribe

Row = tuple[str | None, ...]
WHOLE = ["0", "1", "-1", "2", "3", "7", "10", "11", "-128", "127"]
LARGE = ["2147483647", "-2147483648", "9007199254740993"]
DECIMALS = [*WHOLE, "0.5", "2.5", "2.50", "-0.5", "9.99", "10.01", "100000000000.01"]
DOUBLES = [
    *["NaN", "Infinity", "-Infinity", "1e300", "-1e300", "5e-324", "-5e-324", "-0", "0", "0.5"],
    *["2.5", "3", "7", "10", "10.000000000000002", "9007199254740994", "1e19", "9.3e18", "1e-160"],
]
DAYS = [
    *["1970-01-01", "1969-12-31", "2023-12-31", "2024-01-01", "2024-02-29", "2024-12-31"],
    *["2025-01-01", "0001-01-01", "9999-12-31", "infinity", "-infinity"],
]
CLOCK = [
    *[f"{day}{time}" for day in DAYS[:9] for time in ("", " 23:59:59.999999", " 12:30:00")],
    *["2024-03-31 01:00:00", "2024-10-27 00:30:00", "infinity", "-infinity"],
]
HOURS = ["00:00", "08:00", "08:14:59.999999", "18:00", "23:59:59.999999", "24:00"]
TEXTS = [
    *["", "A", "B", "a", "A ", " A", "?", "\u00e9", "e\u0301", "nan", "1", "A" * 300, "'", '"'],
    *["\\", "\\x41", "A\\", "$$", "\U0001f600", "\t", "%s", "NULL", "\u00df", "ss"],
]

LISTED = {
    "text some": Column("c", "text", Values(tuple(TEXTS[:20])), None, True, "Z"),
    "text many": Column("c", "text", Values((*TEXTS[2:], *map(str, range(9, 99)))), other="Z"),
    **WORDS,
}
"""Columns whose values are listed: a few, some, many."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored type as PostgreSQL and as DuckDB calls it, its values, the columns it may serve."""

    postgres: str
    duckdb: str
    values: Sequence[str]
    columns: dict[str, Column]


STORED = {
    "float8": Stored("float8", "DOUBLE", DOUBLES, NUMBERS),
    "float4": Stored("float4", "FLOAT", [*DOUBLES[:3], *DOUBLES[7:], "0.1"][:-2], NUMBERS),
    "int2": Stored("int2", "SMALLINT", WHOLE, NUMBERS | FLAGS),
    "int4": Stored("int4", "INTEGER", [*WHOLE, *LARGE[:2]], NUMBERS),
    "int8": Stored(
        "int8",
        "BIGINT",
        [*WHOLE, *LARGE, "9223372036854775807", "-9223372036854775808"],
        NUMBERS | FLAGS,
    ),
    "numeric": Stored("numeric(38,2)", "DECIMAL(38,2)", DECIMALS, NUMBERS),
    "bool": Stored("bool", "BOOLEAN", ["true", "false"], FLAGS),
    "text": Stored("text", "VARCHAR", TEXTS, LISTED),
    "varchar": Stored("varchar(400)", "VARCHAR", TEXTS, LISTED),
    "date": Stored("date", "DATE", DAYS, DATES | CLOCKS),
    "timestamp": Stored("timestamp", "TIMESTAMP", CLOCK, DATES | CLOCKS),
    "timestamptz": Stored("timestamptz", "TIMESTAMPTZ", CLOCK, DATES | CLOCKS),
    "time": Stored("time", "TIME", HOURS, TIMES),
}
UNITS = ("text", "int8", "int2", "float8", "numeric", "bool", "date", "timestamp", "timestamptz")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random table: its unit, its declared columns, how they are stored, and rows of texts."""

    unit: Unit
    columns: dict[str, Column]
    stored: dict[str, str]
    rows: list[Row]

    def postgres(self) -> dict[str, str]:
        """The types of the columns in PostgreSQL."""
        return {name: STORED[kind].postgres for name, kind in self.stored.items()}

    def write(self, path: Path) -> Table:
        """Write the rows to a Parquet file."""
        listed = ", ".join(f"{quote(n)} {STORED[kind].duckdb}" for n, kind in self.stored.items())
        with scribe() as writer:
            writer.execute("SET TimeZone = 'UTC'")
            writer.execute(f"CREATE TEMP TABLE t ({listed})")
            insert(writer, "t", self.rows)
            writer.execute(f"COPY t TO '{path}' (FORMAT parquet)")
        return Table("t", str(path), self.unit, self.columns)


def draw_table(seed: int, most_rows: int = 40, without: str = "") -> Drawn:
    """Draw a table whose columns have few different values, ``without`` a stored type."""
    chosen = random.Random(seed)
    known = [kind for kind in STORED if kind != without]
    kinds = [chosen.choice(known) for _ in range(chosen.randint(1, 4))]
    columns, stored = {}, {}
    for i, kind in enumerate(kinds):
        name = f"c{i}" if chosen.random() < 0.8 else f'C "{i}" \u00e9'
        found = chosen.choice([*STORED[kind].columns.values()])
        columns[name.casefold()] = _renamed(found, name)
        stored[name] = kind
    unit = Unit()
    if chosen.random() < 0.7:
        stored["who"] = chosen.choice(UNITS)
        unit = Unit("who", chosen.randint(1, 3))
    few = {name: _few(chosen, STORED[kind].values, name) for name, kind in stored.items()}
    rows = [
        tuple(chosen.choice(few[name]) for name in stored)
        for _ in range(chosen.randint(0, most_rows))
    ]
    return Drawn(unit, columns, stored, rows)


def _few(chosen: random.Random, values: Sequence[str], name: str) -> list[str | None]:
    most = 4 if name == "who" else 9
    found: list[str | None] = [*chosen.sample([*values], min(len(values), most))]
    return [*found, None] if chosen.random() < 0.7 else found


def _renamed(column: Column, name: str) -> Column:
    facts = column.domain, column.bounds, column.null, column.other
    return Column(name, column.type, *facts)


def draw_sets(
    seed: int, drawn: Drawn, count: int
) -> Iterator[tuple[RowView, list[AnyResolution], bool]]:
    """Draw covering sets: the view, the resolutions, and whether units count."""
    chosen = random.Random(seed)
    table = Table("t", "", drawn.unit, drawn.columns)
    while count:
        units = chosen.random() < 0.3
        names = chosen.sample([*drawn.columns], chosen.randint(0, min(3, len(drawn.columns))))
        resolutions: list[AnyResolution] = []
        while names:
            together = names[: chosen.choice([1, 1, 2])]
            names = names[len(together) :]
            resolutions.append(_resolution(chosen, drawn, together, units))
        size = int(np.prod([each.size for each in resolutions])) if resolutions else 1
        if size > 200_000 or not fits(resolutions, table, units):
            continue
        view = [name for name in drawn.columns if chosen.random() < 0.6]
        sizes = {name: each.size for name, each in drawn.columns.items() if each.size}
        masks = {
            name: np.array([chosen.random() < 0.7 for _ in range(size)])
            for name, size in sizes.items()
            if chosen.random() < 0.4
        }
        count -= 1
        yield RowView.of(view, masks), resolutions, units


def _resolution(
    chosen: random.Random, drawn: Drawn, names: Sequence[str], units: bool
) -> AnyResolution:
    columns = [drawn.columns[name] for name in names]
    sized = [column for column in columns if column.size]
    if len(columns) == 1 and not units and (not sized or chosen.random() < 0.5):
        found = _nodes(chosen, columns[0])
        if found is not None:
            return found
    if not sized:
        return cells_of(names[0], np.zeros(0, dtype=np.int64))  # fits nothing: drawn again
    cells = _cells(chosen, sized)
    if units and drawn.unit.column and chosen.random() < 0.5 and cells.size:
        members = np.array(
            [
                [chosen.random() < 0.5 for _ in range(cells.size)]
                for _ in range(chosen.randint(1, 5))
            ]
        )
        return Unions(cells, members)
    return cells


def _cells(chosen: random.Random, columns: Sequence[Column]) -> Cells:
    classes = [_classes(chosen, column.size) for column in columns]
    if len(columns) == 1:
        return cells_of(columns[0].name, classes[0])
    shape = [int(each.max(initial=-1)) + 1 for each in classes]
    flat = int(np.prod(shape))
    labels = _classes(chosen, flat).reshape(shape) if flat else np.zeros(shape, dtype=np.int64)
    return Cells(tuple(column.name for column in columns), tuple(classes), labels)


def _classes(chosen: random.Random, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    kind = chosen.choice(["each", "few", "runs", "shuffled"])
    if kind == "each" or size < 2:
        return np.arange(size)
    most = chosen.randint(1, min(size, 7))
    found = np.array([chosen.randrange(-1, most) for _ in range(size)])
    if kind == "runs":
        return np.sort(np.maximum(found, 0))
    if kind == "shuffled":
        order = [*range(size)]
        chosen.shuffle(order)
        return np.array(order)
    return found


def _nodes(chosen: random.Random, column: Column) -> AnyResolution | None:
    declared = column.null + (column.other is not None)
    order = [*range(declared)]
    others = tuple(order if chosen.random() < 0.7 else [-1] * declared)
    degree, steps = chosen.choice([(1, 0), (1, 1), (1, 10), (2, 0), (2, 0), (2, 3), (2, 99_999)])
    if column.bounds is not None:
        if chosen.random() < 0.3:
            low, high = column.bounds
            levels = sorted({low + (high - low) * Fraction(chosen.randint(0, 9), 9) for _ in "abc"})
            return Steps(column.name, tuple(levels))
        clipped = chosen.choice([(None, None), (Fraction(1), Fraction(5, 2))])
        return Nodes(column.name, degree, 1, steps, others, *clipped)
    if isinstance(column.domain, IntegerRange | DecimalRange):
        return Nodes(column.name, degree, 1, steps, others)
    if isinstance(column.domain, Bins):
        if chosen.random() < 0.4:
            starts = (0, *(k for k in range(1, column.domain.size) if chosen.random() < 0.5))
            return Nodes(column.name, degree, len(starts), steps, others, starts=starts)
        return Nodes(column.name, degree, column.domain.size, steps, others)
    return None
