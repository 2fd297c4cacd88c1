"""Sources of servers in catalogs: what is said of them, and that no secret is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.catalog import Catalog
from dpsql.catalog.read import read_catalog
from dpsql.errors import CatalogError

CATALOG = """
[budget]
epsilon = 1

[table.visits]
source = {source}
{unit}

[table.visits.column]
age = {{ type = "integer", domain = [0, 99] }}
"""
GOOD = '{ engine = "postgresql", dsn_env = "D", table = "public.visits" }'


def load(folder: Path, source: str, unit: str = 'privacy_unit = "row"') -> Catalog:
    path = folder / "c.toml"
    path.write_text(CATALOG.format(source=source, unit=unit), encoding="utf-8")
    return read_catalog(path)


def test_a_table_of_a_server_is_named_without_how_it_is_reached(tmp_path: Path) -> None:
    catalog = load(tmp_path, GOOD)
    table = catalog.tables["visits"]
    assert (table.source, table.engine) == ("postgresql://public.visits", "postgresql")
    assert (table.option("dsn_env"), table.is_pushed) == ("D", False)
    for more in ('version = "2"', 'refresh = "hour"', 'read = "push"'):
        other = load(tmp_path, GOOD.replace(" }", f", {more} }}"))
        assert other.policy_hash() == catalog.policy_hash()
    assert load(tmp_path, GOOD.replace("visits", "other")).policy_hash() != catalog.policy_hash()


@pytest.mark.parametrize(
    ("options", "problem", "hint"),
    [
        ('delimeter = ";"', "unknown key 'delimeter'", "did you mean 'delimiter'"),
        ('quote = "x"', "unknown key 'quote'", "known keys: file, delimiter, encoding"),
        ('delimiter = ";;"', "delimiter = ';;'", "one character"),
        ('encoding = "cp125"', "encoding = 'cp125'", "did you mean 'cp1"),
        ('encoding = "iso2022_jp"', "encoding = 'iso2022_jp'", "iconv"),
        ('decimal = ",", thousands = ","', "both ','", 'decimal = ","'),
        ('dates = "%d.%B"', "dates = '%d.%B'", "%Y, %y, %m"),
        ("missing = [1]", "missing = [1]", "whole fields"),
        ("header = false", "header = False", "the names of all columns"),
        ("skip = -1", "skip = -1", "skip = 2"),
        ("quoted_newlines = 1", "quoted_newlines = 1", "line ends"),
        ('currency = "1"', "currency = '1'", "marks"),
    ],
)
def test_bad_forms_of_files_are_refused(
    options: str, problem: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(CatalogError) as caught:
        load(tmp_path, f'{{ file = "x.csv", {options} }}')
    assert problem in caught.value.message
    assert hint in str(caught.value.hint)


def test_a_declared_form_is_part_of_the_policy(tmp_path: Path) -> None:
    plain = load(tmp_path, '"x.csv"')
    assert load(tmp_path, '{ file = "x.csv", header = true }').policy_hash() == plain.policy_hash()
    declared = load(tmp_path, '{ file = "x.csv", decimal = "," }')
    assert declared.policy_hash() != plain.policy_hash()
    assert declared.tables["visits"].source == plain.tables["visits"].source
    with pytest.raises(CatalogError, match=r"has decimal, and 'x.parquet' is of parquet"):
        load(tmp_path, '{ file = "x.parquet", decimal = "," }')


@pytest.mark.parametrize(
    ("source", "problem", "hint"),
    [
        ('"postgresql://ann:secret@host/db"', "may hold a password", "dsn_env"),
        ('{ engine = "postgresql", table = "t", dsn = "secret" }', "'dsn'", "public"),
        ('{ engine = "postgresql", table = "t", password = "secret" }', "'password'", "public"),
        ('{ engine = "postgresql", table = "t", tabel = "t" }', "'tabel'", "dsn_env"),
        ('{ engine = "postgresql", dsn_env = "D" }', "no table", "table ="),
        ('{ table = "t" }', "engine = None", "postgresql"),
        ('{ engine = "x://", table = "t" }', "engine =", "postgresql"),
        ('{ engine = "postgresql", table = 7 }', "table = 7", "text"),
        ('{ engine = "postgresql", table = "t", version = "1", refresh = "day" }', "both", "one"),
        ('{ engine = "postgresql", table = "t", refresh = "often" }', "often", "hour, day"),
        ('{ engine = "postgresql", table = "t", read = "guess" }', "guess", "stream, push"),
        ('{ engine = "mine", table = "t", password = "secret" }', "'password'", "public"),
    ],
)
def test_bad_sources_are_refused_without_their_secrets(
    source: str, problem: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(CatalogError) as caught:
        load(tmp_path, source)
    error = caught.value
    assert problem in error.message
    assert hint in f"{error.hint}"
    assert "secret" not in f"{error}"


def test_public_tables_are_of_any_engine(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD, "public = true").tables["visits"].engine == "postgresql"
