"""A server that refuses, or goes away: what each surface says, and what is paid."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.privacy.vault.servers import postgresql, postgresql_rows
from dpsql.ui.cli import run_command_line
from tests.support.postgres import Server

CATALOG = """
[budget]
epsilon = 100
[table.visits]
source = {{ engine = "postgresql", dsn_env = "CLINIC_DSN", table = "lost.visits", {more} }}
privacy_unit = {{ column = "who", max_rows = 3 }}
[table.visits.column]
ward = {{ type = "integer", domain = [0, 4] }}
"""
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
FAILED = 3
"""The exit code of what failed through no fault of the statement."""


@pytest.fixture
def lost(database: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    database.run("DROP SCHEMA IF EXISTS lost CASCADE", "CREATE SCHEMA lost")
    rows = [(f"p{i % 30}", i % 5) for i in range(90)]
    database.store("lost.visits", {"who": "text", "ward": "int"}, rows)
    (tmp_path / "count.sql").write_text(f"{COUNT};", encoding="utf-8")
    return database


def losing(moment: str, server: Server, patched: pytest.MonkeyPatch) -> str:
    """End all sessions at a moment; returns how the table is read."""
    if moment == "while rows come":
        see = postgresql_rows._see

        def seeing(session: Any, snapshot: str) -> None:
            see(session, snapshot)
            server.end_sessions()

        patched.setattr(postgresql_rows, "_see", seeing)
        return "stream"
    name = "keep" if moment == "while codes are kept" else "rows"
    original = getattr(postgresql.PostgresCounter, name)

    def asking(self: Any, select: str) -> Any:
        server.end_sessions()
        return original(self, select)

    patched.setattr(postgresql.PostgresCounter, name, asking)
    return "push"


def said(
    surface: str, path: Path, capsys: pytest.CaptureFixture[str], patched: pytest.MonkeyPatch
) -> tuple[int, str]:
    """Ask by a surface; its exit code and what it says on stderr."""
    asked = {
        "run": ["run", "count.sql", "--catalog", str(path), "--epsilon", "1"],
        "command": [str(path), "--epsilon", "1", "-c", COUNT],
        "prompt": [str(path), "--epsilon", "1"],
        "check": ["check", str(path)],
        "init": ["init", "postgresql:lost.visits", "--with", "dsn_env=CLINIC_DSN"],
    }[surface]
    typed = f"{COUNT};\n".encode() if surface == "prompt" else b""
    patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8"))
    capsys.readouterr()
    status = run_command_line(asked)
    return status, capsys.readouterr().err


@pytest.mark.parametrize("surface", ["run", "command", "prompt"])
@pytest.mark.parametrize(
    "moment", ["while rows come", "while codes are kept", "while it is counted"]
)
def test_each_surface_says_once_what_is_paid(
    moment: str,
    surface: str,
    lost: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "visits.toml"
    is_paid = moment == "while it is counted"
    with monkeypatch.context() as patched:
        read = losing(moment, lost, patched)
        more = f'version = "1", read = "{read}"'
        path.write_text(CATALOG.format(more=more), encoding="utf-8")
        status, told = said(surface, path, capsys, patched)
    assert status == FAILED
    (error,) = [line for line in told.splitlines() if line.startswith("error:")]
    reason = "the charge stays" if is_paid else "details are withheld"
    assert reason in error
    assert "terminat" not in told
    with dpsql.connect(path, epsilon=1) as connection:
        assert connection.budget.entries == is_paid
    status, _ = said(surface, path, capsys, monkeypatch)
    assert status == 0


@contextmanager
def asking_for_passwords(server: Server, role: str) -> Iterator[None]:
    """Let the server ask one role for its password, as servers do that trust nobody."""
    rules = Path(server.ask("SHOW hba_file"))
    if not os.access(rules, os.W_OK):
        pytest.skip("the rules of this server cannot be changed from here")
    lines = "".join(f"{way} {role} {who} scram-sha-256\n" for way, who in WAYS.items())
    rules.write_text(lines + rules.read_text(encoding="utf-8"), encoding="utf-8")
    server.run("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        known = rules.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = "".join(line for line in known if role not in line)
        rules.write_text(kept, encoding="utf-8")
        server.run("SELECT pg_reload_conf()")


WAYS = {"local all": "", "host all": "all"}
GRANTS = ["GRANT USAGE ON SCHEMA lost TO %s", "GRANT SELECT ON lost.visits TO %s"]


def test_a_wrong_password_is_refused_by_the_server_itself(
    lost: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    right = lost.role("reader", GRANTS)
    role = right.partition("user=")[2].partition(" ")[0]
    path = tmp_path / "visits.toml"
    path.write_text(CATALOG.format(more='version = "1"'), encoding="utf-8")
    with asking_for_passwords(lost, role):
        for password, status in (("wrong", FAILED), ("", FAILED), ("secret", 0)):
            monkeypatch.setenv("CLINIC_DSN", lost.at(user=role, password=password))
            found, told = said("command", path, capsys, monkeypatch)
            assert found == status, told
            assert ("refuses the login" in told) == bool(status), told
            with dpsql.connect(path, epsilon=1) as connection:
                assert connection.budget.entries == (status == 0)


REFUSED: dict[str, tuple[Callable[[Server], str], str, str, str]] = {
    "down": (lambda s: s.at(host="127.0.0.1", port="1"), "", "be reached", "host and port"),
    "empty": (lambda s: "", "", "is not set", "export CLINIC_DSN"),
    "no database": (lambda s: s.at(dbname="no"), "", "no such database", "dbname in CLINIC_DSN"),
    "no table": (lambda s: s.address, "ALTER TABLE lost.visits RENAME TO v", "no such table", "`t"),
    "no column": (lambda s: s.address, "ALTER TABLE lost.visits DROP ward", "no such column", ""),
    "other type": (
        lambda s: s.address,
        "ALTER TABLE lost.visits ALTER ward TYPE text",
        "stored as text",
        "stored as integer",
    ),
    "no right": (lambda s: s.role("reader"), "", "permission denied", "GRANT USAGE"),
    "no grant": (lambda s: s.role("reader", GRANTS[:1]), "", "permission denied", "GRANT SELECT"),
}


@pytest.mark.parametrize("which", REFUSED)
def test_the_command_line_refuses_before_anything_is_paid(
    which: str,
    lost: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, statement, problem, hint = REFUSED[which]
    monkeypatch.setenv("CLINIC_DSN", address(lost))
    if statement:
        lost.run(statement)
    path = tmp_path / "visits.toml"
    path.write_text(CATALOG.format(more='version = "1"'), encoding="utf-8")
    for command in ("command", "check", "init"):
        status, told = said(command, path, capsys, monkeypatch)
        if command == "init" and which in FIT_TO_DRAFT:
            assert status == 0
            continue
        assert status == (MISUSED if command == "init" else FAILED), told
        (error,) = [line for line in told.splitlines() if line.startswith("error:")]
        assert problem in error
        assert hint in told
        assert "Traceback" not in told
    with dpsql.connect(path, epsilon=1) as connection:
        assert connection.explain(COUNT).statements
        assert connection.budget.entries == 0


FIT_TO_DRAFT = ("no column", "other type", "no grant")
"""What hinders nobody who drafts a catalog: names and types alone are read."""
MISUSED = 2
"""The exit code of a command that cannot do what it is asked."""
