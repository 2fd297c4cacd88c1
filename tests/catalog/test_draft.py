"""Drafted catalogs: what is guessed, what is left open, and that the rest is one step away."""

from __future__ import annotations

import tomllib
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.catalog.draft import DraftedTable, draft
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import CatalogError, UsageError


def decided(text: str, column: str) -> str:
    """A draft with the first line uncommented, in every table, that has a unit of this column."""
    wanted = f"# privacy_unit = {{ column = {column}"
    return "\n".join(line[2:] if line.startswith(wanted) else line for line in text.split("\n"))


def test_a_draft_is_refused_until_its_units_are_decided(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("visit_id,patientId,age,seen_at,ward\n1,7,30,,A\n")
    text = draft_catalog(tmp_path / "visits.csv", folder=tmp_path)
    catalog = tmp_path / "visits.toml"
    catalog.write_text(text)
    with pytest.raises(CatalogError, match="privacy_unit is missing"):
        dpsql.connect(catalog)
    columns = tomllib.loads(text)["table"]["visits"]["column"]
    assert {name: facts["type"] for name, facts in columns.items()} == {
        "age": "integer",
        "seen_at": "timestamp",
        "ward": "text",
    }
    catalog.write_text(decided(text, '"patientId"'))
    with dpsql.connect(catalog, epsilon=1) as connection:
        (count,) = connection.execute("SELECT COUNT(*) FROM visits").fetchone() or (None,)
        assert count is not None


def test_tables_of_files_and_folders_share_a_proposed_unit(tmp_path: Path) -> None:
    for name, header in (("people", "person_id,sex"), ("trips", "trip_id,person_id,km")):
        (tmp_path / f"{name}.csv").write_text(f"{header}\n")
    for given in ((tmp_path,), (tmp_path / "people.csv", tmp_path / "trips.csv")):
        text = draft_catalog(*given, folder=tmp_path)
        assert "# [unit.person]" in text
        assert tomllib.loads(text)["table"].keys() == {"people", "trips"}
        assert text.count('# privacy_unit = { column = "person_id"') == 2
        trips = text[text.index("[table.trips]") :]
        assert trips.index('"person_id"') < trips.index('"trip_id"')


@pytest.mark.parametrize("column", ["customer", "Customer", "customer_id", "CUSTOMER_KEY"])
def test_a_person_is_proposed_before_a_thing(tmp_path: Path, column: str) -> None:
    for name, measure in (("orders", "amount"), ("returns", "reason")):
        (tmp_path / f"{name}.csv").write_text(f"order_id,{column},{measure}\n")
    for given in ((tmp_path / "orders.csv",), (tmp_path,)):
        text = draft_catalog(*given, folder=tmp_path)
        units = [line for line in text.split("\n") if line.startswith("# privacy_unit")]
        assert f'"{column}"' in units[0]
        assert '"order_id"' in units[1]
    assert "# [unit.customer]" in text


def test_parts_of_one_table_in_a_folder_are_one_table(tmp_path: Path) -> None:
    for part in range(3):
        (tmp_path / f"part-{part}.csv").write_text("person_id,age\n")
    (found,) = tomllib.loads(draft_catalog(tmp_path, folder=tmp_path))["table"].values()
    assert found["source"] == "*.csv"


def test_all_tables_and_views_of_a_database_file(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(
            "CREATE TABLE orders (order_id INTEGER, tags VARCHAR[], hour TIME, u UUID)"
        )
        database.execute(
            "CREATE SCHEMA sales; CREATE TABLE sales.orders (customer_id INT, eur INT)"
        )
        database.execute("CREATE VIEW dear AS SELECT * FROM sales.orders WHERE eur > 5")
    text = draft_catalog(path, folder=tmp_path)
    tables = tomllib.loads(text)["table"]
    assert [found["source"] for found in tables.values()] == [
        {"file": "shop.duckdb", "table": "dear", "view": True},
        "shop.duckdb",
        {"file": "shop.duckdb", "table": "sales.orders"},
    ]
    assert list(tables) == ["dear", "orders", "orders_2"]
    assert "column" in tables["orders"]
    assert tables["orders"]["column"] == {"hour": {"type": "time"}}
    assert "# tags: a list, struct or map" in text


def test_sources_are_named_as_the_catalog_sees_them(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "a.csv").write_text("x\n")
    inside = tomllib.loads(draft_catalog(tmp_path / "in" / "a.csv", folder=tmp_path))
    assert inside["table"]["a"]["source"] == "in/a.csv"
    beside = tomllib.loads(draft_catalog(tmp_path / "in" / "a.csv", folder=tmp_path / "out"))
    assert Path(beside["table"]["a"]["source"]) == (tmp_path / "in" / "a.csv").resolve()


def test_another_delimiter_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age;sex\n30;f\n")
    for blind in (False, True):
        text = draft_catalog(tmp_path / "a.csv", folder=tmp_path, blind=blind)
        assert "between semicolons" in text
        (table,) = tomllib.loads(text)["table"].values()
        assert table["source"] == {"file": "a.csv", "delimiter": ";"}
        assert table["column"] == {"age": {"type": "integer"}, "sex": {"type": "text"}}
        assert "30" not in text.split("column]")[1]


def test_names_of_any_kind_are_valid_toml() -> None:
    names = ["a b", 'say "x"', "tab\there", "line\nbreak", "del\x7f", "ünïcode 🦆", "", "straße_id"]
    columns = [(name, family) for name in names for family in ("text", "nested")]
    text = draft([DraftedTable("🦆 of\n2024", "x\n.parquet", columns)])
    (table,) = tomllib.loads(text)["table"].values()
    usable = {name for name in names if name and name.isprintable()}
    assert set(table["column"]) == usable - {"straße_id"}


def test_data_are_no_catalog_and_no_data_cannot_be_drafted(tmp_path: Path) -> None:
    with pytest.raises(CatalogError) as caught:
        dpsql.connect(tmp_path / "visits.parquet")
    assert "dpsql init" in str(caught.value)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.duckdb").write_text("no database")
    for name in ("empty", "bad.duckdb", "none.csv", "x.txt"):
        with pytest.raises(UsageError):
            draft_catalog(tmp_path / name)


@pytest.mark.parametrize(
    "header", [",age", "sex,Sex,age", "age,AGE", '"a\u00a0b",age', "a b,c.d,sel ect,ñ,age"]
)
def test_a_draft_of_any_header_is_read_once_its_unit_is_decided(
    tmp_path: Path, header: str
) -> None:
    (tmp_path / "t.csv").write_text(f"{header}\n{',' * header.count(',')}\n")
    text = draft_catalog(tmp_path / "t.csv", folder=tmp_path)
    catalog = tmp_path / "t.toml"
    catalog.write_text(
        text.replace("# privacy_unit = ", "privacy_unit = ").replace(
            "privacy_unit = { column", "# privacy_unit = { column"
        )
    )
    with dpsql.connect(catalog, epsilon=1) as connection:
        assert connection.execute("SELECT COUNT(*) FROM t").fetchall()


@pytest.mark.parametrize(
    ("data", "hint"),
    [(b"", "a header and rows"), (b"PK\x03\x04\n", "give the file its ending, .xlsx")],
)
def test_a_csv_file_that_cannot_be_read_is_told_what_to_do(
    tmp_path: Path, data: bytes, hint: str
) -> None:
    (tmp_path / "t.csv").write_bytes(data)
    with pytest.raises(UsageError, match=hint):
        draft_catalog(tmp_path / "t.csv")


def test_what_is_not_there_is_no_matter_of_a_catalog(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file") as caught:
        draft_catalog(tmp_path / "gone.csv")
    assert "`source`" not in str(caught.value)
