"""Examples of the pages: catalogs read, statements are accepted, command lines are understood."""

from __future__ import annotations

import io
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import duckdb
import pandas
import pyreadstat
import pytest
import sqlalchemy

import dpsql
from dpsql.catalog.read import COLUMN_KEYS, TABLE_KEYS, read_catalog
from dpsql.dbapi.connection import Connection
from dpsql.sql.text.lexemes import split_statements
from dpsql.ui.cli import choose_command, run_command_line
from tests.support.pages import DOCS, PAGES, ROOT, blocks, commands, fences, name

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


README = ROOT / "README.md"
COMMANDED = [README, DOCS / "curator.md", DOCS / "install.md", *sorted(DOCS.glob("howto/*.md"))]
WAITS = ("serve",)
"""Commands that go on until they are ended: tests/server starts them."""

GUIDE = "tests/whole/test_guide.py"
HERE = "tests/whole/test_examples.py"
TUTORIAL = "tests/ui/test_tutorial.py"
CLIENTS = "tests/server/test_clients.py"
RUN_BY = {
    ("", "console"): HERE,
    ("", "toml"): HERE,
    ("", "{toctree}"): "tests/whole/test_site.py",
    **{("docs/tutorial.md", kind): TUTORIAL for kind in ("python", "sql", "")},
    **{
        (f"docs/{name}.md", "sql"): GUIDE
        for name in ("guide", "sums", "options", "analyst", "statistician")
    },
    **{(name, "python"): GUIDE for name in ("README.md", "docs/python.md", "docs/analyst.md")},
    ("README.md", ""): GUIDE,
    ("docs/index.md", ""): GUIDE,
    ("docs/synthetic.md", "sql"): "tests/whole/test_docs_synthetic.py",
    ("docs/synthetic.md", "python"): "tests/whole/test_docs_synthetic.py",
    ("docs/curator.md", "sql"): HERE,
    ("docs/keys.md", "sql"): HERE,
    ("docs/tables.md", "sql"): HERE,
    ("docs/engines.md", "sh"): HERE,
    ("docs/sql.md", "sql"): "tests/grammar/test_docs.py",
    ("docs/howto/tools.md", "python"): "tests/integrations/test_ibis.py",
    ("docs/howto/tools.md", ""): CLIENTS,
    ("docs/python.md", ""): "tests/integrations/test_magic.py",
    ("docs/analyst.md", ""): CLIENTS,
    ("docs/server.md", "text"): "tests/server/test_events.py",
    ("docs/server.md", ""): CLIENTS,
    ("docs/threat-model.md", ""): HERE,
    ("docs/options.md", "json"): GUIDE,
    ("docs/architecture.md", ""): HERE,
    ("docs/speed.md", ""): "tests/plan/test_cut_short.py",
}
"""The test that runs the blocks of a page, by page (any where it is empty) and language."""


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """The catalog of docs/tables.md, all of its blocks together, over one row a table."""
    folder = tmp_path_factory.mktemp("clinic")
    for table, row in STORED.items():
        duckdb.sql(f"COPY (SELECT {row}) TO '{folder / table}.parquet'")
    text = "\n".join(["[budget]\nepsilon = 1", *blocks(DOCS / "tables.md", "toml"), COLUMNS])
    (folder / "clinic.toml").write_text(text)
    with dpsql.connect(folder / "clinic.toml", epsilon=1) as connection:
        yield connection


@pytest.mark.parametrize(
    "sql",
    [
        fragment.body
        for block in blocks(DOCS / "tables.md", "sql")
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
        assert read_catalog(path).tables


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


def understand(line: str) -> None:
    """Fail unless a command line has a command, and options, that there are."""
    command, called, arguments = choose_command(shlex.split(line, comments=True))
    if arguments != ["--version"]:
        command.make_context(called, list(arguments))


def test_command_lines_are_understood() -> None:
    seen = 0
    for page in [*PAGES, README, ROOT / "CONTRIBUTING.md"]:
        for line in commands(page):
            try:
                understand(line)
            except click.UsageError as error:
                pytest.fail(f"{page.name}: dpsql {line}: {error.format_message()}")
            seen += 1
    assert seen > 20


def test_other_commands_are_known() -> None:
    """Beside dpsql: targets that the Makefile has, and programs that everybody has."""
    made = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for page in [*PAGES, README, ROOT / "CONTRIBUTING.md"]:
        for text in blocks(page, "console"):
            for line in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
                program, first, *_ = [*shlex.split(line, comments=True), ""]
                if program == "make":
                    assert first in made, (name(page), line)
                else:
                    known = ("dpsql", ".venv/bin/dpsql", "pip", "psql")
                    assert program in known, (name(page), line)


def write_codebooks() -> None:
    """Write a data dictionary of REDCap, and a file of SPSS with its labels."""
    heads = "Variable / Field Name,Form Name,Field Type,Field Label"
    heads += ',"Choices, Calculations, OR Slider Labels"'
    Path("dictionary.csv").write_text(f'{heads}\nward,visit,radio,Ward,"1, eye | 2, ear"\n')
    rows = pandas.DataFrame({"sex": [1.0, 2.0]})
    rows.to_csv("survey.csv", index=False)
    pyreadstat.write_sav(rows, "survey.sav", variable_value_labels={"sex": {1: "m", 2: "f"}})


@pytest.mark.parametrize("page", [page for page in COMMANDED if commands(page)], ids=name)
def test_command_lines_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after another over the clinic of the tutorial, in a folder with a report to write."""
    home = tmp_path / "clinic"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    exec(blocks(DOCS / "tutorial.md", "python")[0], {})
    duckdb.sql("COPY (FROM 'clinic.csv') TO 'visits.parquet'")
    (catalog,) = blocks(DOCS / "curator.md", "toml")
    (report,) = blocks(DOCS / "curator.md", "sql")
    Path("clinic.toml").write_text(catalog.replace("epsilon = 3", "epsilon = 99"))
    Path("tables.sql").write_text(report)
    Path("report.sql").write_text(report.replace("clinic", "visits"))
    assert run_command_line(["clinic.toml", "-e", "1", "-c", "SELECT COUNT(*) FROM clinic"]) == 0
    if page.name == "codebook.md":
        write_codebooks()
    for line in commands(page):
        arguments = shlex.split(line, comments=True)
        if arguments[0] in WAITS or "build/demo" in line:
            continue
        if arguments[:2] == ["ledger", "adopt"]:
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
        secret = io.TextIOWrapper(io.BytesIO(b"a long password\n"), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", secret)
        assert run_command_line(arguments) == 0, (line, capsys.readouterr().err)
        if arguments[0] == "init":  # and its reader decides
            source, drafted = arguments[1], Path(arguments[3])
            decided = catalog.replace("clinic.csv", source)
            drafted.write_text(decided.replace("table.clinic", f"table.{Path(source).stem}"))


def test_every_block_has_a_test_that_runs_it() -> None:
    """A block of another kind, or on another page, needs a test of its own and a line here."""
    for page in [*PAGES, README, ROOT / "CONTRIBUTING.md"]:
        for language, text in fences(page):
            runner = RUN_BY.get((name(page), language)) or RUN_BY.get(("", language))
            assert runner is not None, (name(page), language, text)


def test_the_tests_that_run_blocks_read_their_pages() -> None:
    for (page, _), runner in RUN_BY.items():
        text = (ROOT / runner).read_text("utf-8")
        assert not page or f'"{Path(page).stem}' in text or page in text or Path(page).name in text


def test_the_picture_of_the_house_shows_folders_and_modules_that_there_are() -> None:
    (picture,) = blocks(DOCS / "architecture.md", "")
    shown = re.findall(r"\b[a-z_]+/[a-z_]*", picture)
    assert len(shown) > 10
    for each in shown:
        path = ROOT / "dpsql" / each
        assert path.is_dir() or path.with_suffix(".py").is_file(), each


def test_a_notebook_of_another_package_reaches_a_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The magic of jupysql opens its address by SQLAlchemy, and runs what stands beside it."""
    monkeypatch.chdir(tmp_path)
    exec(blocks(DOCS / "tutorial.md", "python")[0], {})
    (catalog,) = blocks(DOCS / "curator.md", "toml")
    Path("clinic.toml").write_text(catalog)
    (cell,) = [each for each in blocks(DOCS / "howto" / "tools.md", "") if "%sql" in each]
    address, sql = re.findall(r"^%sql (.*)$", cell, re.MULTILINE)
    with sqlalchemy.create_engine(address).connect() as connection:
        assert connection.execute(sqlalchemy.text(sql)).fetchall()


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
    root = ROOT
    extras = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    offered = extras["optional-dependencies"].keys() - {"docs", "test", "release"}
    page = re.findall(r"dpsql\[(\w+)\]", (DOCS / "install.md").read_text("utf-8"))
    assert set(page) == offered
    for path in [*PAGES, *(root / "dpsql").rglob("*.py")]:
        named = re.findall(r"pip install '?(?:\./)?dpsql\[([\w,]+)\]", path.read_text("utf-8"))
        assert {each for one in named for each in one.split(",")} <= offered, path
