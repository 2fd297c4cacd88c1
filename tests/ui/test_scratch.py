"""Scratch mode: drafts are paid from a part of the real budget, marked, and kept out of files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from dpsql.answer.numbers import DRAFT
from dpsql.answer.result import Result
from dpsql.dbapi.connection import connect, verify_ledger
from dpsql.dbapi.scratch import connect_scratch
from dpsql.errors import BudgetExceeded, CatalogError, LedgerError
from dpsql.ui.formats import FORMATS, Style, encode
from dpsql.ui.grid import Grid

Run = Callable[..., Any]

BY_SEX = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"
COUNT_OLD = "SELECT COUNT(*) FROM adult WHERE age > 80"
BY_RACE = "SELECT race, COUNT(*) AS n FROM adult GROUP BY race"


@pytest.fixture
def drafts(adult: Path) -> Path:
    """A catalog with a total of 3, of which drafts may spend 0.5."""
    adult.write_text(adult.read_text() + "\n[scratch]\nepsilon = 0.5\n")
    return adult


def edit(catalog: Path, old: str, new: str) -> None:
    text = catalog.read_text()
    assert old in text
    catalog.write_text(text.replace(old, new, 1))


def test_drafts_are_charged_to_their_part_and_to_the_whole(dpsql: Run, drafts: Path) -> None:
    done = dpsql("--scratch", drafts, "-e", "0.3", "-c", BY_SEX)
    assert done.status == 0
    assert "note: scratch: a draft" in done.err
    over = dpsql("--scratch", drafts, "-e", "0.3", "-c", BY_RACE)
    assert over.status == 5
    assert "by scratch drafts" in over.err
    assert "Remaining 0.2" in over.err
    budget = dpsql("--scratch", drafts, "-c", "SHOW budget").out
    assert "largest epsilon of one more request,2.7" in budget
    assert "total epsilon of scratch drafts,0.5" in budget
    assert "largest epsilon of one more request on scratch drafts,0.2" in budget
    real = dpsql(drafts, "-e", "2.7", "-c", BY_RACE)
    assert real.status == 0
    assert "scratch" not in real.err
    assert dpsql("--scratch", drafts, "-e", "0.1", "-c", COUNT_OLD).status == 5
    assert verify_ledger(drafts).spent_epsilon == 3


def test_edits_of_a_draft_need_no_migration(dpsql: Run, drafts: Path) -> None:
    assert dpsql("--scratch", drafts, "-e", "0.1", "-c", BY_SEX).status == 0
    for last in (91, 92, 93):
        edit(drafts, f"domain = [17, {last - 1}]", f"domain = [17, {last}]")
        done = dpsql("--scratch", drafts, "-e", "0.1", "-c", BY_SEX)
        assert done.status == 0
        assert "in force now, and logged: column adult.age (changed)" in done.err
        assert "charged ε 0.1" in done.err
    assert dpsql(drafts, "-c", "SHOW budget").status == 0
    status = verify_ledger(drafts)
    assert status.spent_epsilon == Fraction("0.4")
    assert "draft: column adult.age (changed)" in dpsql("ledger", drafts, "--format", "box").out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon = 3.0", "epsilon = 30.0"),
        ("[scratch]\nepsilon = 0.5", "[scratch]\nepsilon = 2.5"),
        ('privacy_unit = "row"', 'privacy_unit = { column = "age", max_rows = 2 }'),
        ('privacy_unit = "row"', "public = true"),
        ("[scratch]\nepsilon = 0.5\n", ""),
        ("[table.adult]", "[table.adult]\nbudget = { epsilon = 1 }"),
    ],
)
def test_promises_are_never_changed_by_a_draft(drafts: Path, old: str, new: str) -> None:
    connection, change = connect_scratch(drafts, epsilon=0.1)
    with connection:
        connection.execute(BY_SEX)
    assert change == ""
    before = verify_ledger(drafts)
    assert old in drafts.read_text()
    edit(drafts, old, new)
    with pytest.raises((LedgerError, CatalogError)) as caught:
        connect_scratch(drafts, epsilon=0.1)
    assert caught.value.code in ("E_POLICY_CHANGED", "E_POLICY")
    edit(drafts, new, old) if new else drafts.write_text(drafts.read_text() + old)
    assert verify_ledger(drafts).head == before.head


def test_drafts_are_kept_out_of_files_unless_forced(dpsql: Run, drafts: Path) -> None:
    Path("q.sql").write_text(BY_SEX)
    run = ["run", "--scratch", "q.sql", "--catalog", drafts, "-e", "0.1"]
    for more in (["--out", "o"], ["--report", "r.html"]):
        refused = dpsql(*run, *more)
        assert (refused.status, refused.out) == (2, "")
        assert "are drafts" in refused.err
        assert "charged" not in refused.err
    for line in (".output n.csv", ".once n.csv"):
        assert dpsql("--scratch", drafts, stdin=f"{line}\n").status == 2
    assert not Path("n.csv").exists()
    assert dpsql(*run, "--out", "o", "--force").status == 0
    assert "scratch: a draft" in Path("o/summary.md").read_text()
    assert json.loads(Path("o/summary.json").read_text())["draft"] is True
    assert "draft" in Path("o/001_sex_n.draft.csv").read_text()
    assert dpsql("--scratch", drafts, stdin=f".output n.csv --force\n{BY_SEX};\n").status in (0, 1)


def test_every_row_of_a_draft_says_so_in_every_format() -> None:
    result = Result.of_rows(("sex", "n"), ("text", "number"), (("f", 1.5),), (None, (1.0,)), "")
    draft = replace(result, notes=(DRAFT,))
    assert Grid.of(result).columns == ("sex", "n")
    for name in FORMATS:
        data = encode(Grid.of(draft), name, Style(stddev=True))
        if name == "parquet":
            data = parquet.read_table(io.BytesIO(data)).to_pandas().to_csv().encode()
        assert b"scratch" in data, name
        assert b"draft" in data, name
    assert encode(Grid.of(draft), "csv", Style(stddev=True)).decode().splitlines() == [
        "sex,n,n_stddev,scratch",
        "f,1.5,1.0,draft",
    ]
    named = replace(draft, columns=("scratch", "n"))
    assert Grid.of(named).columns == ("scratch", "n", "scratch_")


def test_drafts_need_no_budget_of_their_own(dpsql: Run, adult: Path) -> None:
    done = dpsql("--scratch", adult, "-e", "0.1", "-c", BY_SEX)
    assert done.status == 0
    edit(adult, "domain = [17, 90]", "domain = [17, 91]")
    done = dpsql("--scratch", adult, "-e", "0.1", "-c", BY_RACE)
    assert "in force now, and logged: column adult.age (changed)" in done.err
    assert verify_ledger(adult).spent_epsilon == Fraction("0.2")
    adult.write_text(adult.read_text() + "\n[scratch]\nepsilon = 50\n")
    assert dpsql("--scratch", adult, "-c", BY_SEX).status == 2


def test_whatever_is_drafted_the_total_holds(drafts: Path) -> None:
    spent = Fraction(0)
    for turn in range(12):
        scratch = turn % 3 != 0
        opened = connect_scratch(drafts)[0] if scratch else connect(drafts)
        with opened as connection:
            amount = Fraction("0.15") if scratch else Fraction("0.7")
            sql = f"SELECT COUNT(*) AS n FROM adult WHERE age > {20 + turn}"
            try:
                found = connection.execute(sql, epsilon=amount).result
                assert found.cost is not None
                assert any("scratch" in note for note in found.notes) == scratch
                spent += amount
            except BudgetExceeded:
                pass
    status = verify_ledger(drafts)
    assert status.spent_epsilon == spent <= 3
    drafted = status.nested["scratch:drafts"]
    assert drafted.total_epsilon - drafted.remaining_epsilon <= Fraction("0.5")
