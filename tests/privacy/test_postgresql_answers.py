"""The same rows in PostgreSQL and in a file: statements come back alike, whatever the table is.

Random tables in several shapes, under settings of the database that change how values look, and
random statements over them: answers without noise, standard errors, costs and refusals.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest

import dpsql
from dpsql.engine import engine
from dpsql.errors import Error
from dpsql.privacy.doors import vaults
from dpsql.privacy.vault.files.database import quote
from tests.support.effort import effort
from tests.support.postgres import Server
from tests.support.seam import zero_noise
from tests.support.tables import insert, scribe

pytestmark = pytest.mark.slow

TABLES = effort(4)
DAYS = ["1850-02-28", "1899-12-31", "1970-01-01", "2024-02-29", "2024-12-31", "9999-12-31"]
CLOCKS = [f"{day} {time}" for day in DAYS for time in ("00:00:00", "23:59:59.999999", "12:30:00.5")]
TEXTS = ["x", "y", "X", "x ", "", "it's", "é", "e\u0301", "\\x", "\U0001f600"]
WHOLE = ["0", "1", "2", "9", "10", "-1", "100", "32767"]
LISTED = """{ type = "text", domain = ["x", "y", "", "it's", "é"]"""
YEARS = '{ type = "TYPE", domain = ["1840-01-01", "2030-12-31"], by = "year"'
KINDS: dict[str, tuple[str, str, Sequence[str], str]] = {
    "domain": ("small", "INTEGER", WHOLE, '{ type = "integer", domain = [0, 9]'),
    "int8": ("bigint", "BIGINT", [*WHOLE, "-9223372036854775808"], "{ BOUNDS = [-5, 100]"),
    "numeric": (
        "numeric(9,2)",
        "DECIMAL(9,2)",
        ["0", "2.50", "9.99", "-1.25"],
        "{ BOUNDS = [0, 5]",
    ),
    "float8": ("float8", "DOUBLE", ["NaN", "Infinity", "-0", "2.5", "1e300"], "{ BOUNDS = [0, 5]"),
    "text": ("text", "VARCHAR", TEXTS, LISTED),
    "enum": ("mood", "VARCHAR", ["x", "it's", "?", ""], f"{LISTED}, other = true"),
    "date": ("date", "DATE", DAYS, YEARS.replace("TYPE", "date")),
    "clock": ("timestamp", "TIMESTAMP", CLOCKS, YEARS.replace("TYPE", "timestamp")),
    "zoned": (
        "timestamptz",
        "TIMESTAMPTZ",
        [f"{each}+00" for each in CLOCKS],
        YEARS.replace("TYPE", "timestamp") + ', zone = "America/New_York"',
    ),
    "boolean": ("bool", "BOOLEAN", ["true", "false"], '{ type = "boolean", domain = [false, true]'),
}
UNITS = ["", "text", "int8", "numeric", "enum", "float8", "date", "zoned", "boolean"]
SHAPES = {
    "plain": ["CREATE TABLE {0} ({1})"],
    "partitions": [
        "CREATE TABLE {0} (id serial, {1}) PARTITION BY HASH (id)",
        "CREATE TABLE odd.p0 PARTITION OF {0} FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
        "CREATE TABLE odd.p1 PARTITION OF {0} FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    ],
    "columns that were dropped": [
        "CREATE TABLE {0} (gone int, {1}, later int DEFAULT 7)",
        "ALTER TABLE {0} DROP gone",
    ],
    "policies that do not apply": [
        "CREATE TABLE {0} ({1})",
        "ALTER TABLE {0} ENABLE ROW LEVEL SECURITY",
    ],
}
SETTINGS = {
    "TimeZone": "Asia/Tokyo",
    "DateStyle": "SQL, DMY",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "transform_null_equals": "on",
}
SALT = bytes(range(32))
Outcome = tuple[object, ...]


def statements(chosen: random.Random, kinds: dict[str, str], by_unit: bool) -> list[str]:
    """Some SELECTs of a count, a sum or a mean, by a column, of some rows."""
    keys = [quote(name) for name, kind in kinds.items() if "BOUNDS" not in KINDS[kind][3]]
    measures = [quote(name) for name, kind in kinds.items() if "BOUNDS" in KINDS[kind][3]]
    items = ["COUNT(*)", *(f"{f}({each})" for each in measures for f in ("SUM", "AVG", "COUNT"))]
    items += ["COUNT(DISTINCT who)"] if by_unit else []
    found = ["SELECT COUNT(*) FROM t"]
    for _ in range(4):
        item = f"{chosen.choice(items)} AS n"
        where = (
            f" WHERE {chosen.choice(keys)} IS NOT NULL" if keys and chosen.random() < 0.5 else ""
        )
        key = chosen.choice([*keys, ""])
        groups = f" GROUP BY {key}{chosen.choice(['', ' HAVING COUNT(*) > 2'])}" if key else ""
        found.append(f"SELECT {key + ', ' if key else ''}{item} FROM t{where}{groups}")
    return found


def outcomes(folder: Path, source: str, declared: str, asked: Sequence[str]) -> list[Outcome]:
    """What becomes of statements, in a catalog of their own."""
    folder.mkdir()
    path, real = folder / "c.toml", vaults.Vaults
    head = "[budget]\nepsilon = 1000\n[table.t]\nsource = "
    path.write_text(f"{head}{source}\n{declared}", encoding="utf-8")
    found: list[Outcome] = []
    with (
        zero_noise(),
        mock.patch.dict(os.environ, {"XDG_STATE_HOME": f"{folder / 'state'}"}),
        mock.patch.object(engine, "Vaults", lambda catalog, salt: real(catalog, SALT)),
        dpsql.connect(path, epsilon=1) as connection,
    ):
        for sql in asked:
            try:
                result = connection.execute(sql).result
            except Error as error:
                found.append((sql, error.code, error.message.split("source")[0]))
            else:
                facts = repr(result.rows), repr(result.stddev), f"{result.cost}", result.types
                found.append((sql, *facts))
        found.append((connection.budget.entries,))
    return found


@pytest.fixture
def odd(database: Server) -> Iterator[Server]:
    name = database.ask("SELECT current_database()")
    database.run(
        "DROP SCHEMA IF EXISTS odd CASCADE",
        "CREATE SCHEMA odd",
        "DROP TYPE IF EXISTS mood CASCADE",
        "DROP DOMAIN IF EXISTS small CASCADE",
        "CREATE TYPE mood AS ENUM ('?', 'x', 'it''s', '')",
        "CREATE DOMAIN small AS int",
        *(
            f"ALTER DATABASE {name} SET {setting} = '{value}'"
            for setting, value in SETTINGS.items()
        ),
    )
    yield database
    database.run(f"ALTER DATABASE {name} RESET ALL", "DROP SCHEMA odd CASCADE")


@pytest.mark.parametrize("seed", range(TABLES))
def test_answers_are_those_of_the_same_rows_in_a_file(
    seed: int, odd: Server, tmp_path: Path
) -> None:
    chosen = random.Random(seed)
    kinds = {chosen.choice(["c{}", "C {}"]).format(i): chosen.choice([*KINDS]) for i in range(3)}
    unit = chosen.choice(UNITS)
    stored = kinds | ({"who": unit} if unit else {})
    few = [
        [*chosen.sample([*KINDS[k][2]], min(len(KINDS[k][2]), 5)), None] for k in stored.values()
    ]
    rows = [tuple(map(chosen.choice, few)) for _ in range(60)]
    owner = f'{{ column = "who", max_rows = {chosen.randint(1, 3)} }}' if unit else '"row"'
    declared = f"privacy_unit = {owner}\n[table.t.column]\n"
    for name, kind in kinds.items():
        text = KINDS[kind][3].replace("BOUNDS", 'type = "number", bounds')
        declared += f"{quote(name)} = {text}{chosen.choice(['', ', null = true'])} }}\n"
    with scribe() as writer:
        writer.execute("SET TimeZone = 'UTC'")
        listed = ", ".join(f"{quote(name)} {KINDS[kind][1]}" for name, kind in stored.items())
        writer.execute(f"CREATE OR REPLACE TEMP TABLE answers ({listed})")
        insert(writer, "answers", rows)
        writer.execute(f"COPY answers TO '{tmp_path / 't.parquet'}' (FORMAT parquet)")
    name = chosen.choice(["odd.t", 'odd."My t"'])
    listed = ", ".join(f"{quote(each)} {KINDS[kind][0]}" for each, kind in stored.items())
    odd.run(*(each.format(name, listed) for each in SHAPES[chosen.choice([*SHAPES])]))
    odd.copy(name, [*stored], rows)
    asked = statements(chosen, kinds, bool(unit))
    expected = outcomes(tmp_path / "file", f'"{tmp_path / "t.parquet"}"', declared, asked)
    for read in ("stream", "push"):
        options = f'dsn_env = "CLINIC_DSN", table = \'{name}\', read = "{read}", version = "1"'
        source = f'{{ engine = "postgresql", {options} }}'
        assert outcomes(tmp_path / read, source, declared, asked) == expected
