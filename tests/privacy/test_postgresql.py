"""The same rows in PostgreSQL and in a file: every vector that leaves the vault is the same."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.discovery import Sought
from dpsql.catalog.domain import Labels
from dpsql.errors import InternalError
from dpsql.privacy.vault.public_rows import read_public
from dpsql.privacy.vault.servers import group_sql, postgresql_sql
from dpsql.privacy.vault.servers.held_sessions import one_snapshot
from dpsql.privacy.vault.servers.postgresql_sql import PostgresDialect
from dpsql.privacy.vault.vault import TableVault
from dpsql.relation.row_view import RowView
from dpsql.workload.cells import AnyResolution, Nodes, cells_of
from tests.privacy.additivity import CLOCKS, DATES, NUMBERS, WORDS
from tests.privacy.covering import Drawn, Row, draw_sets, draw_table
from tests.support.effort import effort
from tests.support.postgres import Server

SALT = b"0123456789abcdef"
TABLES = effort(16)


def on_server(unit: Unit, columns: dict[str, Column], read: str, name: str = "t") -> Table:
    options = {"engine": "postgresql", "table": f"public.{name}", "dsn_env": "CLINIC_DSN"}
    options |= {"read": read, "version": "1"}
    return Table(name, f"postgresql://public.{name}", unit, columns, options=tuple(options.items()))


def compare(seed: int, database: Server, folder: Path) -> None:
    """Assert that vectors of a random table are those of a file, streamed and counted there."""
    drawn = draw_table(seed)
    database.store("public.t", drawn.postgres(), drawn.rows)
    with one_snapshot():
        file = TableVault(drawn.write(folder / "t.parquet"), SALT)
        tables = {each: on_server(drawn.unit, drawn.columns, each) for each in ("stream", "push")}
        others = {each: TableVault(table, SALT) for each, table in tables.items()}
        try:
            _compare(seed, drawn, file, others)
        finally:
            for vault in (file, *others.values()):
                vault.close()


def compare_all(seeds: range, database: Server, folder: Path) -> None:
    for seed in seeds:
        compare(seed, database, folder)


def _compare(seed: int, drawn: Drawn, file: TableVault, others: dict[str, TableVault]) -> None:
    for view, resolutions, units in draw_sets(seed, drawn, 12):
        expected = file.within(view).tally(resolutions, units)
        for read, other in others.items():
            found = other.within(view).tally(resolutions, units)
            what = str((read, drawn, view, resolutions, units))
            np.testing.assert_array_equal(found, expected, err_msg=what)


@pytest.mark.parametrize("seed", range(TABLES))
def test_vectors_are_those_of_the_same_rows_in_a_file(
    seed: int, database: Server, tmp_path: Path
) -> None:
    compare(seed, database, tmp_path)


def test_halves_are_rounded_to_the_even_step(
    database: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"c": NUMBERS["bounds"]}
    rows: list[Row] = [(f"{k}.5", "0") for k in range(10)]
    drawn = Drawn(Unit(), columns, {"c": "float8", "w": "int2"}, rows)
    database.store("public.t", drawn.postgres(), rows)
    asked: list[AnyResolution] = [Nodes("c", 1, 1, 10)]
    vaults = [TableVault(drawn.write(tmp_path / "t.parquet"), SALT)]
    vaults += [TableVault(on_server(Unit(), columns, each), SALT) for each in ("stream", "push")]
    assert [vault.tally(asked).tolist() for vault in vaults] == [[50, 50]] * 3
    half_up = PostgresDialect, "rounded", lambda self, x: f"floor({x} + 0.5)"
    monkeypatch.setattr(*half_up)
    assert vaults[2].tally(asked).tolist() != [50, 50]
    for vault in vaults:
        vault.close()


def _without_guard(d: Any, place: str, listed: Any) -> str:
    return f"NULLIF({d.look_up(place, listed)}, {d.whole(-1)})" if len(listed) else "NULL"


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "no digest": (PostgresDialect, "first_digits", lambda self, text, digits: "'x'"),
    "no guard": (group_sql, "_listed", _without_guard),
    "blanks": (postgresql_sql, "_text", lambda column: f"rtrim(CAST({column} AS text))"),
    "collation": (postgresql_sql, "_text", lambda column: f"lower(CAST({column} AS text))"),
    "no second digest": (PostgresDialect, "md5", lambda self, texts: f"md5({texts[-1]}::text)"),
    "halves": (PostgresDialect, "rounded", lambda self, double: f"floor({double} + 0.25)"),
    "rows for units": (group_sql.GroupSql, "_each_once", lambda self, known: known),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(
    fault: str, database: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises((AssertionError, InternalError)):
        compare_all(range(60), database, tmp_path)


ODD: dict[str, tuple[str, list[str | None]]] = {
    "n": ("numeric", ["1e400", "-1e400", "1e-400", "NaN", "Infinity", "-Infinity", "2.50", None]),
    "f": ("float4", ["NaN", "-Infinity", "1e-40", "0.1", "2.5", "-0", "3e38", None]),
    "d": ("date", ["infinity", "-infinity", "5874897-12-31", "4713-01-01 BC", "2024-02-29", None]),
    "ts": ("timestamp", ["infinity", "294276-12-31 23:59:59", "4713-01-01 BC", "2024-01-31", None]),
    "tz": ("timestamptz", ["-infinity", "294276-12-31 23:59:59", "4713-01-01 BC", "2024-03-31"]),
    "c": ("char(5)", ["A", "A ", "", "\u00e9", None]),
    "e": ("mood", ["A", "?", None]),
    "x": ("text COLLATE ci", ["a", "A", "A ", "\u00e9", "e\u0301", None]),
    "m": ("amount", ["1.005", "-2", "10", None]),
    "u": ("uuid", ["00000000-0000-0000-0000-000000000001", None]),
    "b": ("bytea", ["\\x", "\\xff00", None]),
}
FOLDING = """
DO $$ BEGIN
  CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
EXCEPTION WHEN feature_not_supported THEN CREATE COLLATION ci FROM "C"; END $$
"""
"""A collation that folds case, where the server knows any."""
SERVES: dict[str, list[Column]] = {
    "n": [*NUMBERS.values()],
    "f": [*NUMBERS.values()],
    "m": [*NUMBERS.values()],
    "d": [*DATES.values(), *CLOCKS.values()],
    "ts": [*DATES.values(), *CLOCKS.values()],
    "tz": [*DATES.values(), *CLOCKS.values()],
    "c": [*WORDS.values()],
    "e": [*WORDS.values()],
    "x": [*WORDS.values()],
}


@pytest.fixture
def odd(database: Server) -> Server:
    """Types that only PostgreSQL has: domains, enums, collations that fold case."""
    database.run(
        "DROP TYPE IF EXISTS mood CASCADE",
        "DROP DOMAIN IF EXISTS amount CASCADE",
        "DROP DOMAIN IF EXISTS plain_amount CASCADE",
        "CREATE TYPE mood AS ENUM ('A', '?')",
        "CREATE DOMAIN plain_amount AS numeric(9, 3)",
        "CREATE DOMAIN amount AS plain_amount CHECK (VALUE < 100)",
        "DROP COLLATION IF EXISTS ci CASCADE",
        FOLDING,
    )
    return database


@pytest.mark.parametrize("name", [*SERVES])
def test_no_value_raises_and_rows_are_counted_one_by_one(name: str, odd: Server) -> None:
    kind, values = ODD[name]
    given = [each for each in SERVES[name] if each.domain is not None]
    named = [f"v{i}" for i in range(len(given))]
    declared = {
        name: Column(name, c.type, c.domain, None, c.null, c.other)
        for name, c in zip(named, given, strict=True)
    }

    def store(table: str, some: list[str | None]) -> None:
        odd.store(f"public.{table}", dict.fromkeys(named, kind), [[v] * len(named) for v in some])

    def vectors(table: str, read: str) -> list[list[int]]:
        with one_snapshot():
            vault = TableVault(on_server(Unit(), declared, read, table), SALT)
            found = [
                vault.within(RowView((name,)))
                .tally([cells_of(name, np.arange(column.size))])
                .tolist()
                for name, column in declared.items()
            ]
            vault.close()
        return found

    store("t", values)
    whole = vectors("t", "stream")
    assert vectors("t", "push") == whole
    assert any(map(any, whole))
    total = [np.zeros(len(each), dtype=int) for each in whole]
    for value in values:
        store("one", [value])
        total = [a + np.array(b) for a, b in zip(total, vectors("one", "stream"), strict=True)]
    assert [each.tolist() for each in total] == whole


@pytest.mark.parametrize("name", [*ODD])
def test_units_of_every_type_are_the_same_streamed_and_counted_there(
    name: str, odd: Server
) -> None:
    kind, values = ODD[name]
    rows = [(value, str(i % 3)) for i, value in enumerate(values * 4)]
    odd.store("public.t", {"who": kind, "v": "int"}, rows)
    columns = {"v": Column("v", "text", Labels(("no", "one", "two"), (0, 1, 2)))}
    found = []
    with one_snapshot():
        for read in ("stream", "push"):
            vault = TableVault(on_server(Unit("who", 2), columns, read), SALT)
            each = [cells_of("v", np.arange(3))]
            found.append([vault.tally(each).tolist(), vault.tally(each, True).tolist()])
            vault.close()
    assert found[0] == found[1]
    assert any(found[0][1])


def test_keys_that_nobody_listed_are_those_of_a_file(database: Server, tmp_path: Path) -> None:
    sought = Sought("keys", 2)
    columns = {"drug": Column("drug", "text", sought=sought)}
    rows = [(f"p{i % 7}", f"drug {i % 5}" if i % 11 else None) for i in range(60)]
    database.store("public.t", {"who": "text", "drug": "text"}, rows)
    stored = {"drug": "text", "who": "text"}
    drawn = Drawn(Unit("who", 9), columns, stored, [(b, a) for a, b in rows])
    vaults = [TableVault(drawn.write(tmp_path / "t.parquet"), SALT)]
    vaults.append(TableVault(on_server(drawn.unit, columns, "stream"), SALT))
    found = []
    for vault in vaults:
        pairs = vault.pairs("drug", sought)
        found.append((pairs.keys, np.bincount(pairs.places, minlength=5).tolist()))
        vault.close()
    assert found[0] == found[1]
    assert len(found[0][0]) == 5


def test_public_rows_are_those_of_the_server(database: Server) -> None:
    types = {"w": "text", "n": "int2", "x": "numeric(9,2)", "b": "bool", "d": "date", "t": "time"}
    rows: list[Row] = [
        ("a", "7", "1.25", "true", "2024-02-29", "08:30"),
        (None, None, "NaN", None, "infinity", None),
    ]
    database.store("public.wards", types, rows)
    options = (("dsn_env", "CLINIC_DSN"), ("engine", "postgresql"), ("table", "public.wards"))
    table = Table("wards", "postgresql://public.wards", Unit(), {}, public=True, options=options)
    found = read_public(table)
    day, time = dt.date(2024, 2, 29), dt.time(8, 30)
    assert [*zip(*(values for _, values in found.values()), strict=True)] == [
        ("a", 7, 1.25, True, day, time),
        (None,) * 6,
    ]
