"""Labels of stored codes: a list of texts to statements, whatever codes are stored as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import CatalogError, Error
from tests.support.formats import write_sheet
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 100
[table.t]
source = "{file}"
privacy_unit = "row"
[table.t.column]
sex = {{ type = "text", labels = {labels}, {more} }}
"""
NUMBERS = '{ 1 = "male", 2 = "female", -9 = "refused" }'
STORED = {
    "BIGINT": (NUMBERS, "1, 2, 2, -9, 7, NULL"),
    "DOUBLE": (NUMBERS, "1, 2.0, 2, -9, 1.5, NULL"),
    "DECIMAL(4,1)": (NUMBERS, "1, 2.0, 2, -9, 1.5, NULL"),
    "VARCHAR": (NUMBERS, "'1', '2', '2.0', '-9', 'x', NULL"),
    "TEXT": ('{ m = "male", f = "female", "01" = "refused" }', "'m', 'f', 'f', '01', '1', NULL"),
}

CODES = {"1": "male", "-9": "refused", "'2'": "female"}
WRITTEN = (
    *(f"SELECT COUNT(*) FROM t WHERE {each}" for each in ("sex = {}", "{} <> sex", "NOT sex < {}")),
    *(f"SELECT COUNT(*) FROM t WHERE sex {each}" for each in ("IN ({}, 7)", "BETWEEN {} AND 9")),
    "SELECT CASE sex WHEN {} THEN 'a' ELSE 'b' END AS x, COUNT(*) FROM t GROUP BY x",
    "SELECT COUNT(*) FILTER (WHERE sex = {}) FROM t",
    "SELECT SUM(CASE WHEN sex = {} THEN 1 END) FROM t",
)
"""Where a code may stand for the label that is meant."""


def catalog(folder: Path, file: str, labels: str, more: str = "null = true, other = true") -> Path:
    path = folder / "t.toml"
    path.write_text(CATALOG.format(file=file, labels=labels, more=more))
    return path


@pytest.mark.parametrize("end", ["parquet", "csv"])
@pytest.mark.parametrize("kind", STORED)
def test_labels_are_what_statements_are_about(kind: str, end: str, tmp_path: Path) -> None:
    labels, codes = STORED[kind]
    rows = f"SELECT unnest([{codes}]::{kind}[]) AS sex, 1 AS one"
    duckdb.sql(f"COPY ({rows}) TO '{tmp_path / f't.{end}'}'")
    path = catalog(tmp_path, f"t.{end}", labels)
    with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
        found = connection.execute("SELECT sex, COUNT(*) AS n FROM t GROUP BY sex").fetchall()
        assert found == [("male", 1), ("female", 2), ("refused", 1), ("other", 1), (None, 1)]
        some = "SELECT COUNT(*) AS n FROM t WHERE sex IN ('female', 'refused')"
        assert connection.execute(some).fetchall() == [(3,)]


def test_codes_are_stored_as_they_are_declared(tmp_path: Path) -> None:
    duckdb.sql(f"COPY (SELECT 1 AS sex) TO '{tmp_path / 't.parquet'}'")
    path = catalog(tmp_path, "t.parquet", STORED["TEXT"][0])
    with (
        dpsql.connect(path, epsilon=1) as connection,
        pytest.raises(Error, match="declared text but stored as integer"),
    ):
        connection.execute("SELECT COUNT(*) FROM t WHERE sex = 'male'")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ('{ type = "text", labels = {} }', "labels = "),
        ('{ type = "integer", labels = { 1 = "a" } }', "labels on a integer column"),
        ('{ type = "text", labels = { 1 = "a", 2 = "a " } }', "are the same text"),
        ('{ type = "text", labels = { 1 = 2 } }', "is not text"),
        ('{ type = "text", labels = { 1 = "a" }, domain = ["a"] }', "exclude each other"),
    ],
)
def test_wrong_labels_are_refused(facts: str, why: str, tmp_path: Path) -> None:
    path = catalog(tmp_path, "t.csv", "{}")
    head = path.read_text().rpartition("sex")[0]
    path.write_text(f"{head}sex = {facts}\n")
    with pytest.raises(CatalogError, match=why):
        read_catalog(path)


def test_other_labels_are_another_policy(tmp_path: Path) -> None:
    found = set()
    for labels in ('{ 1 = "a", 2 = "b" }', '{ 2 = "a", 1 = "b" }', '{ 1 = "a", 3 = "b" }'):
        found.add(read_catalog(catalog(tmp_path, "t.csv", labels)).policy_hash())
    assert len(found) == 3


def test_labels_and_missing_values_of_a_file_draft_its_domains(tmp_path: Path) -> None:
    import pandas as pd
    import pyreadstat

    frame = pd.DataFrame(
        {
            "sex": [1.0, 2.0, 9.0, 2.0],
            "mood": [0.0, 3.0, 10.0, 7.0],
            "age": [30.0, 40.0, 50.0, 999.0],
            "ward": ["A", "B", "", "A"],
        }
    )
    labels: dict[str, Any] = {
        "sex": {1: "male", 2: "female", 9: "refused"},
        "mood": {0: "low", 10: "high"},
        "age": {999: "unknown"},
        "ward": {"A": "surgery", "B": "medicine"},
    }
    pyreadstat.write_sav(
        frame,
        str(tmp_path / "t.sav"),
        variable_value_labels=labels,
        missing_ranges={"sex": [9]},
        variable_measure={"age": "scale"},
    )
    drafted = draft_catalog(tmp_path / "t.sav", folder=tmp_path)
    lines = {line.partition(" ")[0]: line for line in drafted.splitlines() if " = { type" in line}
    assert 'labels = { 1 = "male", 2 = "female" }, null = true }' in lines["sex"]
    assert '{ type = "integer", domain = [0, 10] }' in lines["mood"]
    assert '{ type = "number" } #' in lines["age"]
    assert 'labels = { A = "surgery", B = "medicine" } }' in lines["ward"]
    assert "999" not in drafted
    path = tmp_path / "t.toml"
    drafted = drafted.replace('# privacy_unit = "row"', 'privacy_unit = "row"')
    path.write_text(drafted.replace("epsilon = 1.0", "epsilon = 9.0"))
    with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
        found = connection.execute("SELECT sex, COUNT(*) AS n FROM t GROUP BY sex").fetchall()
        assert found == [("male", 1), ("female", 2), (None, 1)]
        found = connection.execute("SELECT ward, COUNT(*) AS n FROM t GROUP BY ward").fetchall()
        assert found == [("surgery", 2), ("medicine", 1)]


def test_a_workbook_is_drafted_and_asked(tmp_path: Path) -> None:
    write_sheet(
        tmp_path / "clinic.xlsx",
        ["ward", "cost"],
        [["A", "1.234,50"], ["B", "7,25"], ["A", None]],
    )
    drafted = draft_catalog(tmp_path / "clinic.xlsx", folder=tmp_path)
    assert 'decimal = ",", thousands = "."' in drafted
    drafted = drafted.replace('# privacy_unit = "row"', 'privacy_unit = "row"')
    drafted = drafted.replace(
        'ward = { type = "text" }', 'ward = { type = "text", domain = ["A"] }'
    )
    drafted = drafted.replace('"number" }', '"number", bounds = [0, 2000] }')
    (tmp_path / "t.toml").write_text(drafted)
    with zero_noise(), dpsql.connect(tmp_path / "t.toml", epsilon=1) as connection:
        found = connection.execute("SELECT ward, SUM(cost) AS s FROM clinic GROUP BY ward")
        ((ward, total),) = found.fetchall()
    assert ward == "A"
    assert total == pytest.approx(1234.5, abs=1)


@pytest.mark.parametrize("code", [*CODES])
@pytest.mark.parametrize("form", WRITTEN)
def test_a_code_is_refused_with_its_label(form: str, code: str, tmp_path: Path) -> None:
    duckdb.sql(f"COPY (SELECT 1 AS sex) TO '{tmp_path / 't.parquet'}'")
    path = catalog(tmp_path, "t.parquet", NUMBERS)
    with dpsql.connect(path, epsilon=1) as connection, pytest.raises(Error) as caught:
        connection.execute(f"EXPLAIN {form.format(code)}")
    assert caught.value.code == "E_NOT_IN_DOMAIN"
    assert CODES[code] in str(caught.value.hint)
