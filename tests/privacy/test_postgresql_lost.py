"""A server that goes away before and after the debit: what each surface says, and what is paid."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.privacy.vault import postgresql, postgresql_rows
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
