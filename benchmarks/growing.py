"""What can grow, part by part: the files that are written for a size, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from benchmarks import floor
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.connection import Connection
from dpsql.ui.formats import encoded
from dpsql.ui.grid import Grid
from dpsql.ui.style import Style

BUDGET = "[budget]\nepsilon = 100000\ndelta = 1e-4\nmax_epsilon_per_request = 1000\n"
TABLE = BUDGET + '\n[table.t]\nsource = "t.parquet"\nprivacy_unit = {unit}\n\n[table.t.column]\n'
PERSON = '{ column = "person", max_rows = 3 }'
ROWS_OF_PERSON = 4
"""On average, so that most persons have more rows than they may."""


@dataclass(frozen=True, slots=True)
class Growing:
    """What grows: its sizes, the least first, those that ``--quick`` leaves out, and the work.

    ``why`` says why an exponent may be above that of a straight line, where one is. ``before`` is
    done to the files as they are, declared or not, and is not measured. ``beside`` is a statement
    of DuckDB's for the same work in the same folder, None without one: SQL, and how many times its
    CPU seconds dpsql may take.
    """

    sizes: tuple[int, ...]
    long: tuple[int, ...]
    prepare: Callable[[Path, int], None]
    work: Callable[[Connection, int], object]
    why: str = ""
    before: Callable[[Path], None] = lambda _: None
    beside: tuple[str, float] | None = None


def write_table(folder: Path, columns: str, rows: int, selected: str, unit: str = '"row"') -> None:
    (folder / "c.toml").write_text(TABLE.format(unit=unit) + columns)
    with duckdb.connect() as scribe:
        scribe.execute("SET enable_progress_bar = false")
        scribe.execute(f"COPY (SELECT {selected} FROM range({rows}) r(i)) TO '{folder}/t.parquet'")


OUTSIDE = {
    "integer": "2000000000 - {0}",
    "number": "'NaN'",
    "decimal": "9000000 + {0}",
    "text": "'~' || {0}",
    "boolean": "NULL",
    "date": "{0} + INTERVAL 5000 YEAR",
    "timestamp": "{0} + INTERVAL 5000 YEAR",
    "time": "NULL",
}
"""Fates of a value that none is like which the catalog declares, by the column's type."""


WHOLE = ("INTEGER", "BIGINT")
"""Stored types that have no value that is no number."""


def undeclare(folder: Path) -> None:
    """Write the files of a catalog anew, with values in the same columns that are not declared."""
    for table in read_catalog(folder / "c.toml").tables.values():
        declared = {key: each.type for key, each in table.columns.items()}
        for path in sorted(folder.glob(Path(table.source).relative_to(folder).as_posix())):
            is_csv = path.suffix == ".csv"
            rows = f"read_csv('{path}', all_varchar = true)" if is_csv else f"'{path}'"
            with duckdb.connect() as scribe:
                scribe.execute("SET enable_progress_bar = false")
                found = scribe.execute(f"DESCRIBE FROM {rows}").fetchall()
                stored = {name: kind for name, kind, *_ in found if name.casefold() in declared}
                kinds = {name: "text" if is_csv else declared[name.casefold()] for name in stored}
                kinds |= {name: "integer" for name, kind in stored.items() if kind in WHOLE}
                changed = [
                    f"CAST({OUTSIDE[kinds[name]].format(name)} AS {kind}) AS {name}"
                    for name, kind in stored.items()
                ]
                listed = f"* REPLACE ({', '.join(changed)})" if changed else "*"
                scribe.execute(
                    f"COPY (SELECT {listed} FROM {rows}) TO '{path}.new'"
                    f" (FORMAT {'csv' if is_csv else 'parquet'})"
                )
            Path(f"{path}.new").replace(path)


def _of_adult(folder: Path, _: int) -> None:
    text = (floor.DEMO / "adult.toml").read_text(encoding="utf-8")
    (folder / "c.toml").write_text(text.replace("epsilon = 100.0", "epsilon = 100000.0"))
    (folder / "adult.parquet").write_bytes((floor.DEMO / "adult.parquet").read_bytes())


def with_cells(folder: Path, size: int) -> None:
    declared = f'k = {{ type = "integer", domain = [0, {size - 1}] }}\n'
    write_table(folder, declared, 100_000, f"(hash(i) % {size})::INT AS k")


def with_columns(folder: Path, size: int) -> None:
    names = [f"c{j}" for j in range(size)]
    declared = "".join(f'{name} = {{ type = "integer", domain = [0, 9] }}\n' for name in names)
    write_table(folder, declared, 10_000, ", ".join(f"(i + {j}) % 10 AS c{j}" for j in range(size)))


def _with_bins(folder: Path, size: int) -> None:
    declared = f'v = {{ type = "number", domain = [0, 1000], bins = {size} }}\n'
    write_table(folder, declared, 10_000, "(hash(i) % 1000)::DOUBLE AS v")


def _with_years(folder: Path, size: int) -> None:
    last = 2000 + size - 1
    declared = (
        f'seen = {{ type = "timestamp", by = "hour", domain = ["2000-01-01", "{last}-12-31"] }}\n'
    )
    write_table(folder, declared, 1000, "TIMESTAMP '2000-01-01' + to_hours(i::INT) AS seen")


def _ten_columns(folder: Path, size: int, unit: str = '"row"') -> None:
    sizes = (100, 10, 2, 12, 5, 50, 366, 1000, 20)
    names = [f"c{j}" for j in range(len(sizes))]
    declared = "".join(
        f'{name} = {{ type = "integer", domain = [0, {n - 1}] }}\n'
        for name, n in zip(names, sizes, strict=True)
    )
    declared += 'cost = { type = "number", bounds = [0, 1000] }\n'
    drawn = [f"(hash(i + {j}) % {n})::INT AS c{j}" for j, n in enumerate(sizes)]
    drawn += ["(hash(i + 9) % 100000) / 100.0 AS cost"]
    if unit == PERSON:
        drawn += [f"'p' || (hash(i + 10) % {max(1, size // ROWS_OF_PERSON)}) AS person"]
    write_table(folder, declared, size, ", ".join(drawn), unit)


def _persons(folder: Path, size: int) -> None:
    _ten_columns(folder, size, PERSON)


def _lines(folder: Path, size: int) -> None:
    """The same ten columns in a CSV file."""
    _ten_columns(folder, size)
    catalog = folder / "c.toml"
    catalog.write_text(catalog.read_text().replace("t.parquet", "t.csv"))
    with duckdb.connect() as scribe:
        scribe.execute(f"COPY (FROM '{folder}/t.parquet') TO '{folder}/t.csv'")
    (folder / "t.parquet").unlink()


def _files(folder: Path, size: int) -> None:
    """A thousand rows in each of so many Parquet files."""
    _ten_columns(folder, 1000)
    catalog = folder / "c.toml"
    catalog.write_text(catalog.read_text().replace("t.parquet", "parts/*.parquet"))
    (folder / "parts").mkdir()
    content = (folder / "t.parquet").read_bytes()
    for place in range(size):
        (folder / "parts" / f"{place:05}.parquet").write_bytes(content)


CLINIC = """
[unit.person]
[table.people]
source = "people.parquet"
privacy_unit = { column = "person", max_rows = 1 }
[table.people.column]
region = { type = "integer", domain = [0, 4] }
[table.visits]
source = "visits.parquet"
privacy_unit = { column = "person", max_rows = 4 }
references = { people = "person" }
[table.visits.column]
ward = { type = "integer", domain = [0, 7] }
[table.drugs]
source = "drugs.parquet"
privacy_unit = { through = "visits", on = "visit", max_rows = 8 }
[table.drugs.column]
drug = { type = "integer", domain = [0, 11] }
"""


def _clinic(folder: Path, size: int) -> None:
    """So many visits of a quarter as many persons, a drug of each on average."""
    people = size // 4
    tables = {
        "people": f"i AS person, i % 5 AS region FROM range({people}) r(i)",
        "visits": f"i AS visit, i % {people} AS person, i % 8 AS ward FROM range({size}) r(i)",
        "drugs": f"(hash(i) % {size})::BIGINT AS visit, i % 12 AS drug FROM range({size}) r(i)",
    }
    (folder / "c.toml").write_text(BUDGET + CLINIC)
    with duckdb.connect() as scribe:
        for name, selected in tables.items():
            scribe.execute(f"COPY (SELECT {selected}) TO '{folder}/{name}.parquet'")


def _statement(rng: np.random.Generator) -> str:
    names = rng.choice(list(floor.DOMAINS), size=int(rng.integers(1, 4)), replace=False)
    where = " AND ".join(floor.condition(rng, str(name)) for name in names)
    return f"SELECT COUNT(*) FROM adult WHERE {where}"


def _batch(connection: Connection, size: int) -> None:
    rng = np.random.default_rng(0)
    connection.executescript(";\n".join(_statement(rng) for _ in range(size))).close()


def _session(connection: Connection, size: int) -> None:
    """One analyst's statements, each by itself: counts, tables, and every tenth asked again."""
    rng = np.random.default_rng(1)
    pool = [name for name in floor.DOMAINS if name not in floor.NUMBERS]
    asked: list[str] = []
    for place in range(size):
        if place % 10 == 9:
            sql = asked[int(rng.integers(len(asked)))]
        elif place % 2:
            keys = ", ".join(map(str, rng.choice(pool, size=2, replace=False)))
            sql = f"SELECT {keys}, COUNT(*) FROM adult WHERE age >= {17 + place % 70} GROUP BY ALL"
        else:
            sql = _statement(rng)
        asked.append(sql)
        connection.execute(sql).fetchall()


def _answered(sql: str) -> Callable[[Connection, int], object]:
    return lambda connection, _: connection.execute(sql).fetchall()


def _planned(sql: str) -> Callable[[Connection, int], object]:
    return lambda connection, _: connection.explain(sql)


def _groups(folder: Path, size: int) -> None:
    """A row in each of so many groups of two columns."""
    declared = 'a = { type = "integer", domain = [0, 99] }\n'
    declared += f'b = {{ type = "integer", domain = [0, {size // 100 - 1}] }}\n'
    write_table(folder, declared, size, "(i % 100)::INT AS a, (i // 100)::INT AS b")


GROUPS = "SELECT a, b, COUNT(*) AS n FROM {} GROUP BY a, b"


def _as_csv(connection: Connection, _: int) -> None:
    """Write the counts of all groups into a file of CSV."""
    result = connection.execute(GROUPS.format("t")).result
    with (connection.catalog.path.parent / "groups.csv").open("wb") as file:
        file.writelines(encoded(Grid.of(result), "csv", Style()))


TIMES = ";".join(
    f"SELECT {part}(seen) AS x, COUNT(*) FROM t GROUP BY x"
    for part in ("hour", "dayofweek", "month")
)
JOINED = _answered(
    "SELECT region, drug, COUNT(*) FROM drugs JOIN visits USING (visit) JOIN people USING (person) "
    "WHERE ward < 4 GROUP BY region, drug"
)
TABLE_OF_TWO = _answered("SELECT c0, c2, COUNT(*) FROM t GROUP BY c0, c2")

PARTS = {
    "statements": Growing((10, 100, 1000), (10_000, 20_000), _of_adult, _batch),
    "session": Growing((25, 50, 100), (200,), _of_adult, _session),
    "cells": Growing(
        (10, 1000, 100_000),
        (1_000_000,),
        with_cells,
        _answered("SELECT k, COUNT(*) FROM t GROUP BY k"),
    ),
    "running": Growing(
        (100, 1000, 10_000),
        (100_000, 1_000_000),
        with_cells,
        _answered("SELECT k, SUM(COUNT(*)) OVER (ORDER BY k) FROM t GROUP BY k"),
    ),
    "bins": Growing(
        (10, 100), (1000,), _with_bins, _planned("SELECT v, SUM(v), AVG(v) FROM t GROUP BY v")
    ),
    "columns": Growing(
        (5, 60, 1000),
        (),
        with_columns,
        _answered("SELECT c0, c2, COUNT(*) FROM t GROUP BY c0, c2"),
    ),
    "rows": Growing((100_000, 1_000_000), (10_000_000, 100_000_000), _ten_columns, TABLE_OF_TWO),
    "persons": Growing((100_000, 1_000_000), (10_000_000,), _persons, TABLE_OF_TWO),
    "lines": Growing((100_000, 1_000_000), (10_000_000,), _lines, TABLE_OF_TWO),
    "files": Growing((10, 100, 1000), (4000,), _files, TABLE_OF_TWO),
    "joined": Growing((100_000, 1_000_000), (10_000_000,), _clinic, JOINED),
    "csv": Growing(
        (10_000, 100_000, 1_000_000),
        (),
        _groups,
        _as_csv,
        beside=("COPY (" + GROUPS.format("'t.parquet'") + ") TO 'own.csv'", 2.0),
    ),
    "times": Growing((1, 4, 16, 64), (), _with_years, _planned(TIMES)),
}
"""By name: statements of a batch and of a session, values of a column, asked in groups, running
totals, and bins with sums; columns; rows of ten columns, of their own and of persons with too many,
and in CSV; files of a table; visits in a join of three tables; years of hours, asked by hour,
weekday and month; groups that are written as CSV."""
