"""Tables of any schema, and views, of a DuckDB file."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.errors import CatalogError, DataUnavailable, Error
from tests.support.seam import zero_noise

COLUMN = 'eur = { type = "integer", domain = [0, 9] }'


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as database:
        database.execute("CREATE SCHEMA sales")
        database.execute("CREATE TABLE orders AS SELECT 1 AS who, 3 AS eur")
        database.execute("CREATE TABLE sales.orders AS SELECT range AS who, 5 AS eur FROM range(7)")
        database.execute("CREATE VIEW few AS SELECT * FROM sales.orders WHERE who < 4")
        (tmp_path / "out.csv").write_text("eur\n1\n")
        database.execute(f"CREATE VIEW outside AS SELECT * FROM read_csv('{tmp_path}/out.csv')")
    return tmp_path


def catalog(folder: Path, *sources: str, unit: str = '"row"') -> Path:
    text = "[budget]\nepsilon = 9\n"
    for i, source in enumerate(sources):
        text += f"[table.t{i}]\nsource = {source}\nprivacy_unit = {unit}\n[table.t{i}.column]\n"
        text += f"{COLUMN}\n"
    path = folder / "shop.toml"
    path.write_text(text)
    return path


def count(path: Path, table: str = "t0") -> object:
    with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
        return (connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone() or (None,))[0]


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        ('{ file = "shop.duckdb", table = "sales.orders" }', 7),
        ('{ file = "shop.duckdb", table = "ORDERS" }', 1),
        ('{ file = "shop.duckdb", table = "main.orders" }', 1),
        ('{ file = "shop.duckdb", table = "few", view = true }', 4),
        ('"shop.duckdb"', 1),
    ],
)
def test_the_table_that_is_named_is_counted(shop: Path, source: str, rows: int) -> None:
    assert count(catalog(shop, source)) == rows


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('{ file = "shop.duckdb", table = "few" }', "view = true"),
        ('{ file = "shop.duckdb", table = "outside", view = true }', "E_DATA"),
        ('{ file = "shop.duckdb", table = "none" }', "no table or view 'none'"),
        ('{ file = "shop.duckdb" }', "names no table"),
        ('{ file = "shop.duckdb", tabel = "few" }', "did you mean 'table'"),
        ('{ file = "postgresql://x", table = "few" }', "file = "),
        ('{ file = "shop.csv", table = "few" }', "source has table, and"),
    ],
)
def test_what_is_not_there_is_named(shop: Path, source: str, said: str) -> None:
    (shop / "shop.csv").write_text("eur\n1\n")
    with pytest.raises(Error) as caught:
        count(catalog(shop, source))
    assert isinstance(caught.value, CatalogError | DataUnavailable)
    assert said in f"{caught.value} {caught.value.hint}"


def test_a_view_is_of_the_same_rows_as_any_table_of_its_file(shop: Path) -> None:
    view = '{ file = "shop.duckdb", table = "few", view = true }'
    path = catalog(shop, view, '{ file = "shop.duckdb", table = "sales.orders" }')
    path.write_text(path.read_text().replace('"row"', '{ column = "who", max_rows = 2 }', 1))
    with pytest.raises(CatalogError, match="of one file, and they protect different"):
        count(path)


def test_another_table_of_the_file_is_another_policy(shop: Path) -> None:
    first = catalog(shop, '{ file = "shop.duckdb", table = "sales.orders" }')
    assert count(first) == 7
    with pytest.raises(Error, match="E_POLICY_CHANGED"):
        count(catalog(shop, '{ file = "shop.duckdb", table = "main.orders" }'))
