"""Files of SAS itself (.sas7bdat) are read as the same rows in Parquet are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.catalog.catalog import Table, Unit
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.data_engine import RequestedColumn
from dpsql.privacy.vault.files.duckdb import FILES
from tests.support.sas_files import PACKED, PLAIN, sas7bdat
from tests.support.seam import zero_noise

pytest.importorskip("pyreadstat")
FIRST, DAY = dt.datetime(1959, 12, 31, 23, 59), dt.date(2024, 1, 1)
ROWS: dict[str, list[Any]] = {
    "who": [f"p{i % 7}" for i in range(40)],
    "ward": [None if i % 11 == 0 else "ABé"[i % 3] for i in range(40)],
    "age": [None if i % 13 == 0 else i for i in range(40)],
    "cost": [i * 1.25 - 3 for i in range(40)],
    "day": [None if i % 17 == 0 else DAY + dt.timedelta(days=i) for i in range(40)],
    "seen": [FIRST + dt.timedelta(hours=i * 9000) for i in range(40)],
    "at": [dt.time(i % 24, i % 60) for i in range(40)],
}
CATALOG = """
[budget]
epsilon = 1000
[table.t]
source = "{}"
privacy_unit = {{ column = "who", max_rows = 9 }}
[table.t.column]
ward = {{ type = "text", domain = ["A", "é"], other = true, null = true }}
age = {{ type = "integer", domain = [0, 39], null = true }}
cost = {{ type = "number", bounds = [0, 40] }}
day = {{ type = "date", domain = ["2024-01-01", "2024-02-29"], by = "day", null = true }}
seen = {{ type = "timestamp", domain = ["1950-01-01", "2010-12-31"], by = "month" }}
at = {{ type = "time", domain = ["00:00", "23:59"], by = "15 minutes" }}
"""
STATEMENTS = [
    "SELECT COUNT(*), COUNT(DISTINCT who), SUM(cost), AVG(age) FROM t",
    *(
        f'SELECT "{c}", COUNT(*) FROM t GROUP BY "{c}"'
        for c in ("ward", "age", "day", "seen", "at")
    ),
]


def answers(folder: Path, name: str, body: bytes) -> list[Any]:
    (folder / name).write_bytes(body)
    path = folder / f"{name}.toml"
    path.write_text(CATALOG.format(name), encoding="utf-8")
    with zero_noise(), dpsql.connect(path, epsilon=10) as connection:
        return [connection.execute(sql).result.rows for sql in STATEMENTS]


def test_a_file_of_sas_holds_the_rows_of_a_parquet_file(tmp_path: Path) -> None:
    pq.write_table(pa.table(ROWS), tmp_path / "p.parquet")
    expected = answers(tmp_path, "t.parquet", (tmp_path / "p.parquet").read_bytes())
    for name, packed in (("utf8", PLAIN), ("cp1252", PACKED)):
        assert answers(tmp_path, f"{name}.sas7bdat", sas7bdat(packed)) == expected
        drafted = draft_catalog(tmp_path / f"{name}.sas7bdat", folder=tmp_path)
        kinds = {"who": "text", "age": "number", "day": "date", "seen": "timestamp", "at": "time"}
        for column, kind in kinds.items():
            assert f'{column.ljust(4)} = {{ type = "{kind}"' in drafted


@pytest.mark.parametrize("packed", [PLAIN, PACKED], ids=["utf-8", "packed cp1252"])
def test_a_file_of_sas_that_was_cut_off_loses_no_row(packed: str, tmp_path: Path) -> None:
    body, path = sas7bdat(packed), tmp_path / "t.sas7bdat"
    table = Table("t", str(path), Unit(), {})
    for cut in (*range(0, len(body), 20_000), len(body) - 4, len(body)):
        path.write_bytes(body[:cut])
        try:
            found = [*FILES.open(table).read([RequestedColumn("cost", "number")], None)]
        except (DataUnavailable, OSError):
            assert cut < len(body)
            continue
        costs = [each for batch in found for each in batch.columns[0].numbers.tolist()]
        assert costs == ROWS["cost"], f"rows are lost that end beyond {cut}"
