"""Every kind of row that is left out is named in the notes of every answer, and none besides.

The notes follow from the catalog alone; here they are compared with what the vault leaves out of
sources of every kind, one value or line at a time.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
import sqlite3
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.catalog.catalog import Column, Table
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.public_rows import read_public
from dpsql.privacy.vault.stored_rows import open_table, read_rows
from dpsql.privacy.vault.unit.rows import view
from dpsql.records import replace
from dpsql.relation.row_view import NO_LINES, RowView, leaves_out, left_out
from dpsql.ui.repl import run_prompt
from dpsql.ui.session import Session
from tests.support.packages import folder_of_packages, install
from tests.support.seam import zero_noise

Values = Sequence[Any]
STRANGER = Path(__file__).parents[1] / "plugins" / "sqlite_engine"
DELIMITERS = {"csv": ",", "csv.gz": ",", "tsv": "\t", "tsv.gz": "\t"}
KINDS = (*DELIMITERS, "glob", "parquet", "duckdb", "delta", "sqlite")
SQL_TYPES = {
    "text": "VARCHAR",
    "integer": "INTEGER",
    "number": "DOUBLE",
    "boolean": "INTEGER",
    "date": "DATE",
    "decimal": "DECIMAL(9, 2)",
}


def write(
    folder: Path, kind: str, name: str, columns: dict[str, str], rows: Sequence[Values]
) -> str:
    """Write rows as a source of a kind; return what the catalog calls it."""
    path = folder / f"{name}.{'csv' if kind == 'glob' else kind}"
    if kind == "sqlite":
        listed = ", ".join(f"{c} {SQLITE[t]}" for c, t in columns.items())
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(f"CREATE TABLE {name} ({listed})")
            database.executemany(
                f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows
            )
        return f'"sqlite://{path}#{name}"'
    if kind == "delta":
        write_delta(path, columns, rows)
        return f'{{ delta = "{path.name}", version = 0 }}'
    if kind in ("parquet", "duckdb"):
        listed = ", ".join(f"{c} {SQL_TYPES[t]}" for c, t in columns.items())
        with duckdb.connect(str(path) if kind == "duckdb" else ":memory:") as scribe:
            scribe.execute(f"CREATE TABLE {name} ({listed})")
            for row in rows:
                scribe.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
            if kind == "parquet":
                scribe.execute(f"COPY {name} TO '{path}'")
        return f'"{path.name}"'
    with gzip.open(path, "wt") if kind.endswith("gz") else open(path, "w") as file:
        cut = DELIMITERS.get(kind, ",")
        lines = csv.writer(file, delimiter=cut, lineterminator="\n")
        lines.writerow(columns)
        lines.writerows(["" if value is None else value for value in row] for row in rows)
    return f'"{path.stem}.c*"' if kind == "glob" else f'"{path.name}"'


SQLITE = {"text": "TEXT", "integer": "INTEGER", "number": "REAL", "date": "DATE"}


def write_delta(path: Path, columns: dict[str, str], rows: Sequence[Values]) -> None:
    pytest.importorskip("deltalake")
    with duckdb.connect() as database:
        listed = ", ".join(f"{c} {SQL_TYPES[t]}" for c, t in columns.items())
        database.execute(f"CREATE TABLE t ({listed})")
        for row in rows:
            database.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(row))})", row)
        from deltalake import write_deltalake

        write_deltalake(path, database.sql("FROM t").to_arrow_table())


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    project = tomllib.loads((STRANGER / "pyproject.toml").read_text("utf-8"))["project"]
    module = (STRANGER / "sqlite_engine.py").read_text("utf-8")
    with folder_of_packages(tmp_path / "site", monkeypatch) as folder:
        install(folder, "sqlite_engine", module, project["entry-points"])
        yield


TAIL = ("", "null = true")
COLUMNS = [
    *(("text", 'domain = ["a", "b"]', o, n) for o in ("", "other = true") for n in TAIL),
    *(("integer", "domain = [0, 9]", "", n) for n in TAIL),
    *(("integer", "domain = [0, 1, 2]", "other = 7", n) for n in TAIL),
    *(("integer", "bounds = [0, 9]", "", n) for n in TAIL),
    *(("number", "bounds = [0, 9]", "", n) for n in TAIL),
    *(("number", "domain = [0, 9], bins = 3", "", n) for n in TAIL),
    *(("number", "bounds = [0, 9], bins = 3", "", n) for n in TAIL),
    *(("boolean", "domain = [false, true]", "", n) for n in TAIL),
    *(("date", 'domain = ["2024-01-01", "2024-12-31"], by = "month"', "", n) for n in TAIL),
    *(("decimal", "domain = [0, 9], step = 0.5", "", n) for n in TAIL),
]
"""Every way to declare a column: its type, its values, ``other`` and ``null``."""
INSIDE = {"text": "a", "integer": 1, "number": 1.0, "boolean": 1, "date": "2024-02-03"}
BEYOND = {
    "text": "z",
    "integer": 99,
    "number": 99.0,
    "date": "1999-01-01",
    "decimal": 99,
    "boolean": 2,  # a whole number may be stored, of which 0 and 1 are truth values
}


def storable(kind: str, type_: str) -> dict[str, Any]:
    """A value of every class that a source of a kind can hold in a column."""
    found: dict[str, Any] = {"inside": INSIDE.get(type_, 1), "missing": None}
    if type_ in BEYOND:
        found["beyond"] = BEYOND[type_]
    if type_ == "number" and kind not in ("sqlite",):
        found["missing too"] = math.nan
    if type_ != "text" and (kind in DELIMITERS or kind in ("glob", "sqlite")):
        found["unread"] = "abc"
    return found


PHRASES = {
    r"with undeclared x": {"beyond", "unread"},
    r"whose x was not found": {"beyond", "unread"},
    r"without x": {"missing", "missing too"},
    r"whose x is no number": {"unread"},
}
"""What a note says of a column, and the classes of values that it means."""


def named(note: str, column: Column) -> list[set[str]]:
    """The classes of values that a note says are left out; NULL is undeclared without a cell."""
    found = [set(classes) for said, classes in PHRASES.items() if re.search(said, note)]
    is_listed = re.search("with undeclared x|whose x was", note) and not column.null
    return [each | {"missing", "missing too"} for each in found] if is_listed else found


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("kind", KINDS)
def test_values_that_are_left_out_are_named_and_no_others(kind: str, tmp_path: Path) -> None:
    seen = set()
    for number, (type_, values, other, null) in enumerate(COLUMNS):
        if kind == "sqlite" and type_ not in SQLITE:
            continue
        stored = storable(kind, type_)
        rows = [(value,) for value in stored.values()]
        source = write(tmp_path, kind, f"t{number}", {"x": type_}, rows)
        facts = ", ".join(filter(None, [f'type = "{type_}"', values, other, null]))
        path = tmp_path / f"c{number}.toml"
        path.write_text(
            f'[budget]\nepsilon = 1\n[table.t{number}]\nsource = {source}\nprivacy_unit = "row"\n'
            f"[table.t{number}.column]\nx = {{ {facts} }}\n"
        )
        (table,) = read_catalog(path).tables.values()
        kept = view(read_rows(open_table(table), table, ""), table, RowView(("x",)))
        gone = {name for name, is_kept in zip(stored, kept, strict=True) if not is_kept}
        for each in (table, found_of(table)):
            if each is None:
                continue
            note, where = left_out(each, RowView(("x",))) or "", (kind, facts, stored)
            classes = named(note, each.columns["x"])
            assert set().union(*classes) >= gone, (where, gone, note)
            assert all(gone & each for each in classes), (where, gone, note)
            assert leaves_out(each, each.columns["x"]) == ("rows " in note), (where, note)
        seen.add(frozenset(gone))
    assert len(seen) > 3


def found_of(table: Table) -> Table | None:
    """The same table as if the listed values had been found."""
    column = table.columns["x"]
    if column.bounds is not None or column.type not in ("text", "integer", "date"):
        return None
    return replace(table, columns={"x": replace(column, released="0123")})


FAULTS: dict[str, Callable[[str], bytes]] = {
    "Latin-1": lambda cut: f"p1{cut}\u00fc".encode("latin-1"),
    "one more field": lambda cut: f"p1{cut}a{cut}".encode(),
    "one less field": lambda cut: b"p1",
    "a line end within quotes": lambda cut: f'p1{cut}"a\nb"'.encode(),
    "an open quote": lambda cut: f'p1{cut}"a'.encode(),
    "a carriage return": lambda cut: f"p1{cut}a\rb".encode(),
}


def catalog_of(folder: Path, source: str, unit: str, more: str = "") -> Path:
    path = folder / "c.toml"
    path.write_text(
        f"[budget]\nepsilon = 100\n[unit.person]\n[table.t]\nsource = {source}\n"
        f'privacy_unit = {unit}\n[table.t.column]\nx = {{ type = "text", domain = ["a"] }}\n{more}'
    )
    return path


def asked(path: Path, sql: str = "SELECT COUNT(*) FROM t") -> tuple[Any, tuple[str, ...]]:
    """The exact answer, and the notes that anybody gets with it, also before it is asked."""
    with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
        connection.set("fresh", "on")
        said = [line for line in connection.explain(sql).lines() if line.startswith("left out")]
        result = connection.execute(sql).result
    assert [line.removeprefix("left out").strip() for line in said] == [*result.standing]
    assert [*result.notes[-len(said) :]] == [*result.standing]
    return result.rows[0][0], result.standing


ROW, PERSON = '"row"', '{ column = "who", max_rows = 2, unit = "person" }'


@pytest.mark.usefixtures("engines")
@pytest.mark.parametrize("kind", ["csv", "parquet", "delta", "sqlite"])
def test_rows_without_a_unit_and_beyond_max_rows_are_named(kind: str, tmp_path: Path) -> None:
    notes = []
    stored: dict[str, list[Values]] = {
        "sound": [("p1", "a"), ("p2", "a")],
        "nobody": [("p1", "a"), (None, "a")],
        "crowded": [("p1", "a")] * 4,
    }
    for name, rows in stored.items():
        folder = tmp_path / name
        folder.mkdir()
        source = write(folder, kind, "t", {"who": "text", "x": "text"}, rows)
        counted, said = asked(catalog_of(folder, source, PERSON))
        assert counted == {"sound": 2, "nobody": 1, "crowded": 2}[name]
        notes.append(said)
        again = tmp_path / f"{name} by row"
        again.mkdir()
        source = write(again, kind, "t", {"who": "text", "x": "text"}, rows)
        counted, said = asked(catalog_of(again, source, ROW))
        assert counted == len(rows)
        assert not any("of each" in each or "without one" in each for each in said)
    assert len(set(notes)) == 1, "the notes depend on the data"
    assert "at most 2 rows of each who count, none without one" in notes[0][0]


@pytest.mark.parametrize("kind", ["csv", "tsv.gz", "glob"])
def test_lines_that_are_no_rows_are_named(kind: str, tmp_path: Path) -> None:
    cut, notes = DELIMITERS.get(kind, ","), []
    for name, lines in {"sound": [], "broken": [make(cut) for make in FAULTS.values()]}.items():
        (tmp_path / name).mkdir()
        rows = [("p1", "a"), ("p2", "a")]
        source = write(tmp_path / name, kind, "t", {"who": "text", "x": "text"}, rows)
        (file,) = (tmp_path / name).iterdir()
        with gzip.open(file, "ab") if kind.endswith("gz") else open(file, "ab") as out:
            out.write(b"\n".join([*lines, b""]))
        counted, said = asked(catalog_of(tmp_path / name, source, PERSON))
        assert counted == 2
        notes.append(said)
    assert notes[0] == notes[1], "the notes depend on the data"
    where = "where files are CSV, " if kind == "glob" else ""
    assert f"t: {where}{NO_LINES}; " in notes[0][0]
    assert NO_LINES.partition("UTF-8")[2] in draft_catalog(file)
    assert NO_LINES[1:] in draft_catalog(file, blind=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_line_of_a_public_file_that_is_no_row_is_refused_by_number(
    fault: str, tmp_path: Path
) -> None:
    (tmp_path / "p.csv").write_bytes(b"x,y\na,b\n" + FAULTS[fault](",") + b"\n")
    path = tmp_path / "c.toml"
    path.write_text(
        '[budget]\nepsilon = 1\n[table.p]\nsource = "p.csv"\npublic = true\n'
        '[table.p.column]\nx = { type = "text" }\n'
    )
    with pytest.raises(DataUnavailable, match="line 3 is no row, it has ") as caught:
        read_public(read_catalog(path).tables["p"])
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["parquet", "duckdb"])
def test_sources_without_lines_name_none(kind: str, tmp_path: Path) -> None:
    source = write(tmp_path, kind, "t", {"who": "text", "x": "text"}, [("p1", "a")])
    _, said = asked(catalog_of(tmp_path, source, PERSON))
    assert not any("lines" in each for each in said)


THROUGH = """[table.b]
source = {}
privacy_unit = {{ through = "t", on = {{ ref = "id" }}, max_rows = 5 }}
[table.b.column]
y = {{ type = "text", domain = ["u"] }}
[table.c]
source = {}
privacy_unit = {{ column = "who", max_rows = 5 }}
references = {{ t = {{ on = {{ ref = "id" }} }} }}
[table.c.column]
y = {{ type = "text", domain = ["u"] }}
"""


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_references_that_lead_nowhere_are_named(kind: str, tmp_path: Path) -> None:
    """Bills of the persons of visits, and returns that another person may bring."""
    columns = {"who": "text", "id": "text", "x": "text"}
    source = write(tmp_path, kind, "t", columns, [("p1", "i1", "a"), ("p2", "i2", "a")])
    bills = [("i1", "u"), ("i2", "u"), ("i9", "u"), (None, "u")]
    other = write(tmp_path, kind, "b", {"ref": "text", "y": "text"}, bills)
    brought = [("p1", "i1", "u"), ("p2", "i1", "u"), ("p2", "i9", "u"), (None, "i1", "u")]
    third = write(tmp_path, kind, "c", {"who": "text", "ref": "text", "y": "text"}, brought)
    path = catalog_of(tmp_path, source, PERSON, THROUGH.format(other, third))
    counted, (said,) = asked(path, "SELECT COUNT(*) FROM b")
    assert counted == 2
    assert "none without one, none whose ref is in no row of t" in said
    counted, (said,) = asked(path, "SELECT COUNT(*) FROM c JOIN t ON c.ref = t.id")
    assert counted == 1
    assert "rows of different units never meet by ref or id" in said
    for sql in ("SELECT COUNT(*) FROM c", "SELECT COUNT(*) FROM t"):
        assert "never meet" not in asked(path, sql)[1][0]
        assert "in no row of" not in asked(path, sql)[1][0]


WITHIN = """
[budget]
epsilon = 100
[unit.person]
[table.p]
source = {}
privacy_unit = {{ column = "who", max_rows = 1 }}
[table.p.column]
sex = {{ type = "text", domain = ["m"] }}
[table.v]
source = {}
privacy_unit = {{ column = "who", max_rows = 3 }}
[table.v.column]
n = {{ type = "integer", domain = [0, 9] }}
"""


@pytest.mark.parametrize(
    ("sql", "counted"),
    [
        ("SELECT COUNT(*) FROM p WHERE EXISTS (SELECT 1 FROM v WHERE v.who = p.who AND n < 5)", 1),
        ("SELECT COUNT(*) FROM p WHERE who IN (SELECT who FROM v WHERE n < 5)", 1),
        ("SELECT SUM(s) FROM (SELECT who, SUM(n) AS s FROM v GROUP BY who) AS q", 3),
        ("SELECT COUNT(*) FROM p WHERE NOT EXISTS (SELECT 1 FROM v WHERE v.who = p.who)", 1),
    ],
)
def test_undeclared_values_within_a_relation_are_named(
    sql: str, counted: int, tmp_path: Path
) -> None:
    """A row in a sub-query whose value is not declared meets no condition."""
    v = [("p1", 3), ("p2", 99), ("p2", None)]
    rows = [("p1", "m"), ("p2", "m"), ("p3", "m")]
    people = write(tmp_path, "parquet", "p", {"who": "text", "sex": "text"}, rows)
    visits = write(tmp_path, "parquet", "v", {"who": "text", "n": "integer"}, v)
    (tmp_path / "c.toml").write_text(WITHIN.format(people, visits))
    found, said = asked(tmp_path / "c.toml", sql)
    assert round(found) == counted
    expected = "rows of v with undeclared n meet no condition and add to no sum"
    assert any(expected in each for each in said) == ("n" in re.findall(r"\w+", sql))


def test_a_link_to_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    """What is said of rows that are left out goes by the name in the catalog."""
    write(tmp_path, "csv", "real", {"who": "text", "x": "text"}, [("p1", "a")])
    (tmp_path / "t.parquet").symlink_to(tmp_path / "real.csv")
    with pytest.raises(DataUnavailable, match="its name says parquet, and it leads to csv"):
        asked(catalog_of(tmp_path, '"t.parquet"', PERSON))


def test_the_prompt_says_it_when_it_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leave(session: Session) -> str:
        raise EOFError

    monkeypatch.setattr("dpsql.ui.repl.read_plainly", leave)
    monkeypatch.setenv("TERM", "dumb")
    for kind in ("csv", "parquet"):
        (tmp_path / kind).mkdir()
        source = write(tmp_path / kind, kind, "t", {"who": "text", "x": "text"}, [("p1", "a")])
        with dpsql.connect(catalog_of(tmp_path / kind, source, PERSON)) as connection:
            run_prompt(Session(connection, "c", "csv"))
        assert (f"note: t: {NO_LINES}" in capsys.readouterr().err) == (kind == "csv")
