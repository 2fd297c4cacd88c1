"""Spark that refuses, or fails in the middle: what the command line says, and what is paid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.privacy.vault.servers.spark import SparkCounter
from dpsql.ui.cli import run_command_line
from tests.support.spark import MASTER

pytestmark = pytest.mark.usefixtures("spark")
SECRET = "Ann Example"
CATALOG = """
[budget]
epsilon = 100
[table.visits]
source = {{ engine = "spark", master = "{master}", path = "{path}", version = "1" }}
privacy_unit = {{ column = "who", max_rows = 3 }}
[table.visits.column]
ward = {{ type = "integer", domain = [0, 4] }}
"""
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
FAILED = 3
"""The exit code of what failed through no fault of the statement."""


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog of a file whose rows Spark counts."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rows = {"who": [f"p{i % 30}" for i in range(90)], "ward": [i % 5 for i in range(90)]}
    pq.write_table(pa.table(rows), tmp_path / "visits.parquet")
    return stated(tmp_path, tmp_path / "visits.parquet")


def stated(folder: Path, path: Path, master: str = MASTER) -> Path:
    found = folder / "visits.toml"
    found.write_text(CATALOG.format(master=master, path=path), encoding="utf-8")
    return found


def said(
    capfd: pytest.CaptureFixture[str], *asked: str, patched: dict[str, Any] | None = None
) -> tuple[int, str]:
    """Run a command; its exit code, and what is said on the terminal, also by Java."""
    capfd.readouterr()
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, work in (patched or {}).items():
            monkeypatch.setattr(SparkCounter, name, work)
        status = run_command_line([*asked])
    return status, "".join(capfd.readouterr())


def failing(self: SparkCounter, select: str) -> Any:
    """Fail on the cluster, with a value of a row in what it says."""
    return self._session.sql(f"SELECT CAST('{SECRET}' AS int)").collect()


def entries(path: Path) -> int:
    with dpsql.connect(path, epsilon=1) as connection:
        return connection.budget.entries


@pytest.mark.parametrize(("moment", "paid"), [("keep", 0), ("rows", 1)])
def test_what_is_paid_is_said_once(
    moment: str, paid: int, catalog: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = (str(catalog), "--epsilon", "1", "-c", COUNT)
    status, told = said(capfd, *asked, patched={moment: failing})
    assert status == FAILED
    (error,) = [line for line in told.splitlines() if "error" in line]
    assert ("the charge stays" if paid else "details are withheld") in error
    assert SECRET not in told
    assert entries(catalog) == paid
    status, told = said(capfd, *asked)
    assert (status, entries(catalog)) == (0, paid + 1)


@pytest.mark.parametrize("problem", ["no such file", "stored as text", "another master"])
def test_what_cannot_be_read_is_refused_by_every_command(
    problem: str, catalog: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = catalog.parent / "texts.parquet"
    if problem != "no such file":
        pq.write_table(pa.table({"who": [SECRET], "ward": [SECRET]}), path)
    stated(catalog.parent, path, "local[7]" if problem == "another master" else MASTER)
    said(capfd, "init", "spark:clinic.none", "--with", f"master={MASTER}")  # Spark has started
    for asked in ((str(catalog), "--epsilon", "1", "-c", COUNT), ("check", str(catalog))):
        status, told = said(capfd, *asked)
        assert status == FAILED
        (error,) = [line for line in told.splitlines() if line.startswith("error:")]
        assert problem in error
        assert SECRET not in told
    explained, told = said(capfd, str(catalog), "--epsilon", "1", "-c", f"EXPLAIN {COUNT}")
    assert (explained, "counted in spark" in told) == (0, True)
    assert entries(catalog) == 0


def test_a_draft_says_what_is_missing(capfd: pytest.CaptureFixture[str]) -> None:
    for name, problem in (("spark:clinic.none", "no such table"), ("spark:none.*", "no such")):
        status, told = said(capfd, "init", name, "--with", f"master={MASTER}")
        assert (status, problem in told) == (2, True)
