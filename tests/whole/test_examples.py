"""Examples of the pages: catalogs read, statements are accepted, command lines are understood."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import duckdb
import pytest

import dpsql
from dpsql.catalog.catalog import Catalog
from dpsql.catalog.read import COLUMN_KEYS, TABLE_KEYS
from dpsql.dbapi.connection import Connection
from dpsql.sql.lexemes import split_statements
from dpsql.ui.cli import choose_command

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [path for path in DOCS.rglob("*.md") if path.parent.name not in ("decisions", "reference")]

COLUMNS = """
[table.patients.column]
sex = { type = "text", domain = ["f", "m"] }
age = { type = "integer", domain = [0, 110] }
[table.visits.column]
ward = { type = "text", domain = ["a", "b"] }
day = { type = "date", domain = ["2024-01-01", "2024-03-31"] }
discharged = { type = "date", domain = ["2024-01-01", "2024-03-31"] }
cost = { type = "integer", domain = [0, 50] }
[table.prescriptions.column]
drug = { type = "text", domain = ["insulin", "other"] }
[table.bills.column]
paid = { type = "boolean", domain = [false, true] }
"""
STORED = {
    "patients": "1 AS patient_id, 'f' AS sex, 70 AS age",
    "visits": "1 AS patient_id, 1 AS visit_id, 'a' AS ward, DATE '2024-01-02' AS day,"
    " DATE '2024-01-03' AS discharged, 5 AS cost",
    "prescriptions": "1 AS visit_id, 'insulin' AS drug",
    "bills": "1 AS who, true AS paid",
}


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in some languages."""
    listed = "|".join(languages)
    text = page.read_text("utf-8")
    return re.findall(rf"^```(?:{listed})\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """The catalog of docs/tables.md, all of its blocks together, over one row a table."""
    folder = tmp_path_factory.mktemp("clinic")
    for name, row in STORED.items():
        duckdb.sql(f"COPY (SELECT {row}) TO '{folder / name}.parquet'")
    text = "\n".join(["[budget]\nepsilon = 1", *blocks(DOCS / "tables.md", "toml"), COLUMNS])
    (folder / "clinic.toml").write_text(text)
    with dpsql.connect(folder / "clinic.toml", epsilon=1) as connection:
        yield connection


@pytest.mark.parametrize(
    "sql",
    [
        fragment.body
        for block in blocks(DOCS / "tables.md", "text")
        for fragment in split_statements(block)
    ],
)
def test_statements_over_several_tables_are_accepted(clinic: Connection, sql: str) -> None:
    assert clinic.describe(sql)


def test_whole_catalogs_are_read(tmp_path: Path) -> None:
    whole = [each for page in PAGES for each in blocks(page, "toml") if "[budget]" in each]
    whole = [each for each in whole if "[table." in each and "domain_file" not in each]
    assert len(whole) >= 3
    for text in whole:
        if "source" not in text:
            text = '[table.sales]\nsource = "s.csv"\nprivacy_unit = "row"\n' + text
        path = tmp_path / "any.toml"
        path.write_text(text)
        assert Catalog.load(path).tables


def test_parts_of_catalogs_have_known_keys() -> None:
    for page in PAGES:
        for text in blocks(page, "toml"):
            found = tomllib.loads(text)
            for table in found.get("table", {}).values():
                assert table.keys() <= set(TABLE_KEYS)
                for facts in table.get("column", {}).values():
                    assert facts.keys() <= set(COLUMN_KEYS)
            for key, value in found.items():
                if isinstance(value, dict) and "type" in value:
                    assert value.keys() <= set(COLUMN_KEYS), (page.name, key)


def test_command_lines_are_understood() -> None:
    seen = 0
    for page in [*PAGES, DOCS.parent / "README.md"]:
        for text in blocks(page, "console", "sh"):
            for line in re.findall(r"^(?:\$ )?(?:\.venv/bin/)?dpsql (.*)$", text, re.MULTILINE):
                command, name, arguments = choose_command(shlex.split(line, comments=True))
                if arguments == ["--version"]:
                    continue
                try:
                    command.make_context(name, list(arguments))
                except click.UsageError as error:
                    pytest.fail(f"{page.name}: dpsql {line}: {error.format_message()}")
                seen += 1
    assert seen > 20


def test_the_statements_about_keys_run(tmp_path: Path) -> None:
    duckdb.sql(
        "COPY (SELECT ['tea', 'cake', 'nut'][1 + i % 3] AS product, i % 90 / 10.0 AS price,"
        " ['north', 'south'][1 + i % 2] AS region"
        f" FROM range(3000) r(i)) TO '{tmp_path / 'sales.parquet'}'"
    )
    (text,) = blocks(DOCS / "keys.md", "toml")
    table = '[table.sales]\nsource = "sales.parquet"\nprivacy_unit = "row"\n\n[table.sales.column]'
    (tmp_path / "sales.toml").write_text(
        text.replace("epsilon = 3.0", "epsilon = 50").replace("[table.sales.column]", table)
    )
    with dpsql.connect(tmp_path / "sales.toml", epsilon=5, delta=1e-10) as connection:
        for block in blocks(DOCS / "keys.md", "sql"):
            for fragment in split_statements(block):
                assert connection.execute(fragment.body).result is not None


def test_what_can_be_installed_is_on_the_page_and_is_all_there_is() -> None:
    root = DOCS.parent
    extras = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    offered = extras["optional-dependencies"].keys() - {"docs", "test"}
    page = re.findall(r"dpsql\[(\w+)\]", (DOCS / "install.md").read_text("utf-8"))
    assert set(page) == offered
    for path in [*PAGES, *(root / "dpsql").rglob("*.py")]:
        named = re.findall(r"pip install '?dpsql\[([\w,]+)\]", path.read_text("utf-8"))
        assert {each for one in named for each in one.split(",")} <= offered, path
