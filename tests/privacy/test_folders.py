"""Columns that folders tell: rows are those of the same table without folders."""

from __future__ import annotations

import datetime as dt
import random
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import dpsql
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import Error
from tests.support.effort import effort
from tests.support.formats import write_arrow, write_json, write_orc
from tests.support.seam import zero_noise

WARDS = ["A", "a/b c%", "\u00e9", "=", None, "100", "x'y"]
DAYS = [dt.date(2024, 1, 2), dt.date(2024, 3, 1), None]
NAMES = ("who", "n", "ward", "day")
Row = tuple[str, int, str | None, dt.date | None]
CATALOG = """
[budget]
epsilon = 1000
[table.t]
source = {source}
privacy_unit = {{ column = "who", max_rows = 100 }}
[table.t.column]
n = {{ type = "integer", domain = [0, 9] }}
ward = {{ type = "text", domain = {wards}, null = true, other = true }}
[table.t.column.day]
type = "date"
domain = ["2024-01-01", "2024-02-29"]
by = "month"
null = true
other = true
"""
ASKED = (
    "SELECT ward, day, COUNT(*) AS n FROM t GROUP BY ward, day",
    "SELECT ward, SUM(n) AS s FROM t WHERE day IS NOT NULL GROUP BY ward",
    "SELECT COUNT(DISTINCT who) AS u FROM t WHERE ward = 'A'",
)


def rows_of(rng: random.Random) -> list[Row]:
    return [
        (f"p{rng.randrange(9)}", rng.randrange(10), rng.choice(WARDS), rng.choice(DAYS))
        for _ in range(rng.randint(5, 30))
    ]


def in_folders(folder: Path, rows: list[Row], end: str) -> str:
    """Write files in the layout of Hive, and say which they are."""
    groups: dict[tuple[Any, Any], list[Row]] = {}
    for row in rows:
        groups.setdefault((row[2], row[3]), []).append(row)
    for (ward, day), some in groups.items():
        shown = (f"{n}={_shown(each)}" for n, each in (("ward", ward), ("day", day)))
        inside = folder.joinpath(*shown)
        inside.mkdir(parents=True, exist_ok=True)
        for i, part in enumerate([some[::2], some[1::2]]):
            if part:
                write(inside / f"part.{i}.{end}", [row[:2] for row in part])
    return f'{{ file = "{folder.name}/*/*/*.{end}", partitions = ["ward", "day"]{more(end)} }}'


def more(end: str) -> str:
    return ', header = ["who", "n"]' if end == "ndjson" else ""


def _shown(value: object) -> str:
    return "__HIVE_DEFAULT_PARTITION__" if value is None else quote(str(value), safe="")


def write(path: Path, rows: list[Any]) -> None:
    names = NAMES[: len(rows[0])]
    if path.suffix == ".csv":
        path.write_text("".join(f"{','.join(map(str, row))}\n" for row in [names, *rows]))
    elif path.suffix == ".parquet":
        columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        pq.write_table(pa.table(columns), path)
    else:
        {".arrow": write_arrow, ".orc": write_orc, ".ndjson": write_json}[path.suffix](
            path, names, rows
        )


def catalog(folder: Path, source: str) -> Path:
    path = folder / "c.toml"
    path.write_text(CATALOG.format(source=source, wards='["A", "\u00e9", "="]'))
    return path


def answers(path: Path) -> list[Any]:
    with zero_noise(), dpsql.connect(path, epsilon=100) as connection:
        return [connection.execute(each).result.rows for each in ASKED]


@pytest.mark.parametrize("end", ["parquet", "csv", "arrow", "orc", "ndjson"])
def test_rows_in_folders_are_those_of_one_file(end: str, tmp_path: Path) -> None:
    rng = random.Random(end)
    for i in range(effort(2) if end == "parquet" else 1):
        rows, here = rows_of(rng), tmp_path / str(i)
        (here / "t").mkdir(parents=True)
        (here / "plain").mkdir()
        said = in_folders(here / "t", rows, end)
        write(here / "plain" / "t.parquet", rows)
        plain = catalog(here / "plain", '"t.parquet"')
        assert answers(catalog(here, said)) == answers(plain), rows


def test_a_unit_may_be_what_folders_tell(tmp_path: Path) -> None:
    for who, count in (("p1", 3), ("p%202", 2), ("__HIVE_DEFAULT_PARTITION__", 1)):
        (tmp_path / "t" / f"who={who}").mkdir(parents=True)
        table = pa.table(
            {"n": [1] * count, "ward": ["A"] * count, "day": [dt.date(2024, 1, 2)] * count}
        )
        pq.write_table(table, tmp_path / "t" / f"who={who}" / "x.parquet")
    path = catalog(tmp_path, '{ file = "t/*/*.parquet", partitions = ["who"] }')
    with zero_noise(), dpsql.connect(path, epsilon=100) as connection:
        found = connection.execute("SELECT COUNT(DISTINCT who) AS u, COUNT(*) AS n FROM t")
        assert found.fetchall() == [(2, 5)]


def test_a_version_of_delta_has_its_partitions(tmp_path: Path) -> None:
    rng = random.Random(5)
    for i in range(effort(2)):
        rows, here = rows_of(rng), tmp_path / str(i)
        (here / "plain").mkdir(parents=True)
        columns = {name: [row[i] for row in rows] for i, name in enumerate(NAMES)}
        types = pa.schema(
            [("who", pa.string()), ("n", pa.int64()), ("ward", pa.string()), ("day", pa.date32())]
        )
        write_deltalake(here / "a b", pa.table(columns, schema=types), partition_by=["day", "ward"])
        write(here / "plain" / "t.parquet", rows)
        path = catalog(here, '{ delta = "a b", version = 0 }')
        assert answers(path) == answers(catalog(here / "plain", '"t.parquet"')), rows
        text = draft_catalog(here / "a b", folder=here)
        drafted = tomllib.loads(text)["table"]["a_b"]["column"]
        assert drafted["day"]["type"] == "date"
        assert drafted["ward"]["type"] == "text"


def test_a_folder_of_folders_is_drafted(tmp_path: Path) -> None:
    sql = "SELECT 1 AS n, 'p' AS who, 2024 AS year, 'A' AS ward"
    duckdb.sql(f"COPY ({sql}) TO '{tmp_path / 't'}' (FORMAT parquet, PARTITION_BY (year, ward))")
    text = draft_catalog(tmp_path / "t", folder=tmp_path)
    table = tomllib.loads(text)["table"]["t"]
    assert table["source"] == {"file": "t/*/*/*.parquet", "partitions": ["year", "ward"]}
    assert {"n", "year", "ward"} <= {*table["column"]}
    path = tmp_path / "c.toml"
    path.write_text(text.replace('# privacy_unit = "row"', 'privacy_unit = "row"'))
    assert read_catalog(path).tables["t"].kind == "parquet"
    assert "2024/" not in text  # names of folders are values
    assert "=A" not in text


BAD = {
    "no folder": ('"t/*.parquet"', "in no folder ward="),
    "both": ('"t/ward=A/*.parquet"', "in its files, and in their folders as well"),
    "others": ('"t/ward=*/*.parquet"', "its files differ in their columns"),
}


ENDS = ("csv", "parquet", "arrow")


@pytest.mark.parametrize("end", ENDS)
def test_no_name_below_a_source_is_told_where_files_differ(end: str, tmp_path: Path) -> None:
    """A folder may be called as a person is, whether or not its name is declared to be a value."""
    for i, person in enumerate(("jane", "richard")):
        folder = tmp_path / "t" / f"p={person}"
        folder.mkdir(parents=True)
        table = pa.table({"who": ["a"], **({"ward": ["A"]} if i else {})})
        path = str(folder / f"roe{i}.{end}")
        if end == "parquet":
            pq.write_table(table, path)
        elif end == "arrow":
            write_arrow(
                Path(path), table.column_names, list(zip(*table.to_pydict().values(), strict=True))
            )
        else:
            Path(path).write_text("who\na\n" if i else "who,ward\na,A\n", encoding="utf-8")
    for said in (f'"t/*/*.{end}"', f'{{ file = "t/*/*.{end}", partitions = "p" }}'):
        with dpsql.connect(catalog(tmp_path, said), epsilon=1) as connection:
            with pytest.raises(Error) as caught:
                connection.execute("SELECT COUNT(*) AS n FROM t")
            text = f"{caught.value} {caught.value.hint}"
            assert "differ in their columns" in text
            assert not any(each in text for each in ("jane", "richard", "roe")), text


@pytest.mark.parametrize("which", BAD)
def test_folders_that_do_not_fit_are_refused_without_their_names(
    which: str, tmp_path: Path
) -> None:
    (tmp_path / "t" / "ward=A").mkdir(parents=True)
    (tmp_path / "t" / "ward=hiv").mkdir(parents=True)
    write(tmp_path / "t" / "x.parquet", [("p", 1)])
    write(tmp_path / "t" / "ward=A" / "x.parquet", [("p", 1, "A", None)])
    write(tmp_path / "t" / "ward=hiv" / "x.parquet", [("p", 1)])
    file, why = BAD[which]
    path = catalog(tmp_path, f'{{ file = {file}, partitions = "ward" }}')
    with dpsql.connect(path, epsilon=1) as connection:
        with pytest.raises(Error) as caught:
            connection.execute("SELECT COUNT(*) AS n FROM t")
        assert why in f"{caught.value}"
        assert "hiv" not in f"{caught.value}"
        assert connection.budget.entries == 0


@pytest.mark.parametrize("said", ['["a/b"]', "[]", '["a", "A"]', "[1]", '"a=b"'])
def test_names_of_folders_are_names(said: str, tmp_path: Path) -> None:
    with pytest.raises(Error, match="partitions"):
        read_catalog(catalog(tmp_path, f'{{ file = "t/*/*.parquet", partitions = {said} }}'))
