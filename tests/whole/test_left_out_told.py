"""Rows that are left out are named by every way out of an answer, and no others are.

Every kind of left-out row has a statement of its own, over files that hold such rows. What is named
of each follows from the catalog: ``tests/catalog/test_left_out.py`` compares it with the vault.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.relation.row_view import NO_LINES
from dpsql.server.users import Users
from dpsql.ui.cli import run_command_line
from dpsql.ui.repl import run_prompt
from dpsql.ui.session import Session
from tests.support.paged import Knocker, paged
from tests.support.served import PASSWORD, Client, served, told

Capture = pytest.CaptureFixture[str]
Ask = Callable[[str], list[str]]
CATALOG = """
[budget]
epsilon = 1000
delta = 1e-6
discovery_delta = 1e-7
[analyst.ana]
epsilon = 1000
[unit.person]

[table.whole]
source = "whole.parquet"
privacy_unit = "row"
[table.whole.column]
x = { type = "text", domain = ["a"] }

[table.lines]
source = "lines.csv"
privacy_unit = "row"
[table.lines.column]
x = { type = "text", domain = ["a"] }

[table.persons]
source = "persons.parquet"
privacy_unit = { column = "who", max_rows = 2, unit = "person" }
[table.persons.column]
x = { type = "text", domain = ["a"] }
k = { type = "integer", domain = "discover" }
y = { type = "number", bounds = "discover" }

[table.bills]
source = "bills.parquet"
privacy_unit = { through = "persons", on = { ref = "id" }, max_rows = 5 }
[table.bills.column]
x = { type = "text", domain = ["a"] }
"""
KINDS = {
    "line": NO_LINES,
    "no unit": "none without one",
    "no unit of keys": "none of rows without one",
    "beyond max_rows": "at most 2 rows of each who count",
    "beyond max_keys": "at most 2 keys of k count of each who",
    "undeclared": "with undeclared x are left out",
    "no key": "rows whose k is not a whole number of at most 2^53 have no key",
    "no number": "rows whose y is not a number from -9.0072e+15 to 9.0072e+15 are left out",
    "not found": "whose k was not found are left out",
    "dangling": "none whose ref is in no row of persons",
}
"""Notes of rows of every kind."""
UNIT = {"no unit", "beyond max_rows"}
FIND = "CREATE {} FROM persons ({}) OPTIONS (epsilon = 1)"
STATEMENTS = {
    "SELECT COUNT(*) AS n FROM whole": set[str](),
    "SELECT x, COUNT(*) AS n FROM whole GROUP BY x": {"undeclared"},
    "SELECT COUNT(*) AS n FROM lines": {"line"},
    "SELECT x, COUNT(*) AS n FROM lines GROUP BY x": {"line", "undeclared"},
    "SELECT COUNT(*) AS n FROM persons": UNIT,
    "SELECT COUNT(*) AS n FROM bills": {"no unit", "dangling"},
    FIND.format("DOMAIN keys", "k"): {"no unit of keys", "beyond max_keys", "no key"},
    "SELECT k, COUNT(*) AS n FROM persons GROUP BY k": {*UNIT, "not found"},
    FIND.format("BOUNDS ends", "y"): {*UNIT, "no number"},
}
"""Statements and the kinds of rows that each leaves out; one statement after the other."""
TABLES = {
    "whole": "SELECT CASE i % 5 WHEN 0 THEN 'z' ELSE 'a' END AS x FROM range(50) r(i)",
    "persons": "SELECT CASE i % 9 WHEN 0 THEN NULL ELSE 'p' || i // 4 END AS who, i AS id,"
    " CASE i % 5 WHEN 0 THEN 'z' ELSE 'a' END AS x, i % 3 AS k, i / 7 AS y"
    " FROM range(900) r(i)",
    "bills": "SELECT i AS ref, 'a' AS x FROM range(800, 1000) r(i)",
}
LINES = "x\n" + "a\nz\n" * 20 + "a,\n" + '"a\nb"\n'


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clinic.toml").write_text(CATALOG)
    (tmp_path / "lines.csv").write_bytes(LINES.encode() + "\u00fc\n".encode("latin-1"))
    with duckdb.connect() as scribe:
        for name, sql in TABLES.items():
            scribe.execute(f"COPY ({sql}) TO '{tmp_path / name}.parquet'")
    return tmp_path / "clinic.toml"


def kinds(text: str) -> set[str]:
    """The kinds of left-out rows that a text names, however its lines are broken."""
    said = re.sub(r"\s+", " ", unescape(text))
    return {kind for kind, phrase in KINDS.items() if phrase in said}


@contextmanager
def session(catalog: Path, capture: Capture, patch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """A connection: the plan, its answer as it is read, and as it is asked for again."""
    with dpsql.connect(catalog, epsilon=1, analyst="ana") as connection:

        def messages(cursor: Any) -> str:
            return "\n".join(str(said) for _, said in cursor.messages)

        def ask(sql: str) -> list[str]:
            plan, cursor = connection.explain(sql).lines(), connection.execute(sql)
            attrs = json.dumps(cursor.df().attrs, default=str)
            found = ["\n".join(plan), messages(cursor), attrs, str(cursor._repr_html_())]
            more = [messages(connection.execute(sql))] if sql.startswith("SELECT") else []
            return found + more

        yield ask


@contextmanager
def command(catalog: Path, capture: Capture, patch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """``dpsql CATALOG -c SQL``, and the same once more, in other forms of output."""
    patch.setattr(sys, "stdin", io.StringIO())

    def ask(sql: str) -> list[str]:
        found = []
        for form in ("csv", "box", "json") if sql.startswith("SELECT") else ("csv",):
            given = ["-c", sql, "-e", "1", "--analyst", "ana", "--format", form]
            assert run_command_line([str(catalog), *given]) == 0
            found.append(capture.readouterr().err)
        return found

    yield ask


@contextmanager
def batch(catalog: Path, capture: Capture, patch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """``dpsql run``; what only a session runs is run in one."""

    def ask(sql: str) -> list[str]:
        if not sql.startswith("SELECT"):
            with session(catalog, capture, patch) as door:
                return door(sql)
        (catalog.parent / "w.sql").write_text(sql)
        given = "run w.sql -e 1 --analyst ana --force --out out --report page.html --catalog"
        assert run_command_line([*given.split(), str(catalog)]) == 0
        files = [catalog.parent / name for name in ("out/summary.md", "out/summary.json")]
        written = [each.read_text("utf-8") for each in (*files, catalog.parent / "page.html")]
        return [capture.readouterr().err, *written]

    yield ask


@contextmanager
def prompt(catalog: Path, capture: Capture, patch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """A prompt for each statement, without what it tells of sources when it opens."""
    patch.setenv("TERM", "dumb")
    patch.setattr("dpsql.relation.row_view.of_sources", lambda _: [])
    typed: list[str] = []

    def read(session: Session) -> str:
        if not typed:
            raise EOFError
        return typed.pop()

    patch.setattr("dpsql.ui.repl.read_plainly", read)
    with dpsql.connect(catalog, epsilon=1, analyst="ana") as connection:

        def ask(sql: str) -> list[str]:
            typed.append(sql)
            run_prompt(Session(connection, "c", "csv"))
            return [capture.readouterr().err]

        yield ask


@contextmanager
def wire(catalog: Path, capture: Capture, patch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Notices of a server."""
    Users(catalog.with_suffix(".users")).put("ana", PASSWORD, new=True)
    with served(catalog) as server, Client(server.port) as client:
        client.start()
        client.ask("SET epsilon = 1")
        yield lambda sql: ["\n".join(each["M"] for each in told(client.ask(sql), b"N"))]


@contextmanager
def page(catalog: Path, capture: Capture, patch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Notes that the page is sent; ``tests/page/test_browser.py`` sees them."""
    Users(catalog.with_suffix(".users")).put("ana", PASSWORD, new=True)
    with paged(catalog) as found:
        ana = Knocker(found.port)
        ana.enter()
        yield lambda sql: ["\n".join(ana.run(sql, "1")["results"][0]["notes"])]


@pytest.mark.parametrize("door", [session, command, batch, prompt, wire, page])
def test_every_way_out_names_what_is_left_out(
    door: Any, catalog: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with door(catalog, capsys, monkeypatch) as ask:
        for sql, named in STATEMENTS.items():
            for said in ask(sql):
                assert kinds(said) == named, (sql, said)
