"""``dpsql ledger``: the curator's acts and their refusals."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsql.dbapi.connection import connect
from dpsql.errors import LedgerError

pytestmark = pytest.mark.slow

Run = Callable[..., Any]

BY_SEX = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"


def kinds(dpsql: Run, catalog: Path) -> list[str]:
    done = dpsql("ledger", "show", catalog, "--format", "csv")
    assert done.status == 0, done.err
    return [row["kind"] for row in csv.DictReader(io.StringIO(done.out))]


@pytest.fixture
def charged(dpsql: Run, adult: Path) -> Path:
    """The catalog of Adult, total epsilon 3, with one charge of 1."""
    assert dpsql(adult, "-e", "1", "-c", BY_SEX).status == 0
    return adult


def test_a_sound_ledger_verifies(dpsql: Run, charged: Path) -> None:
    done = dpsql("ledger", "verify", charged)
    assert (done.status, done.out) == (0, "")
    assert "verified" in done.err
    assert "remaining ε 2" in done.err


def test_a_receipt_is_found_in_the_ledger(dpsql: Run, adult: Path) -> None:
    (adult.parent / "q.sql").write_text(BY_SEX)
    assert dpsql("run", "q.sql", "--catalog", adult, "-e", "0.5", "--out", "o").status == 0
    receipt = json.loads(Path("o/summary.json").read_text())["receipt"]
    done = dpsql("ledger", "verify", adult, "--receipt", receipt["head"])
    assert done.status == 0
    assert f"entry {receipt['seq']}, debit, ε 0.5" in done.err
    forged = dpsql("ledger", "verify", adult, "--receipt", "0" * 64)
    assert forged.status == 3
    assert "[E_RECEIPT]" in forged.err


def test_a_damaged_ledger_does_not_verify(dpsql: Run, charged: Path) -> None:
    ledger = charged.with_suffix(".ledger")
    ledger.write_bytes(ledger.read_bytes().replace(b"laplace", b"lap1ace"))
    done = dpsql("ledger", "verify", charged)
    assert done.status == 3
    assert "[E_LEDGER_TAMPERED]" in done.err


@pytest.mark.parametrize("act", ["verify", "migrate", "adopt"])
def test_acts_need_a_ledger_and_make_none(dpsql: Run, adult: Path, act: str) -> None:
    done = dpsql("ledger", act, adult)
    assert done.status == 3
    assert "[E_LEDGER_MISSING]" in done.err
    assert not adult.with_suffix(".ledger").exists()


def test_raising_changes_the_catalog_and_the_ledger(dpsql: Run, charged: Path) -> None:
    before = charged.read_text()
    done = dpsql("ledger", "raise", charged, "--epsilon", "4.5", "--note", "second wave")
    assert done.status == 0, done.err
    assert "total ε 4.5, remaining ε 3.5" in done.err
    assert charged.read_text() == before.replace("epsilon = 3.0", "epsilon = 4.5")
    assert kinds(dpsql, charged) == ["created", "debit", "policy"]
    assert dpsql(charged, "-e", "3.5", "-c", BY_SEX).status == 0


def test_a_raise_is_completed_when_the_catalog_says_it_already(dpsql: Run, charged: Path) -> None:
    charged.write_text(charged.read_text().replace("epsilon = 3.0", "epsilon = 4.0"))
    refused = dpsql(charged, "-e", "1", "-c", BY_SEX)
    assert refused.status == 3
    assert "[E_POLICY_CHANGED]" in refused.err
    assert dpsql("ledger", "raise", charged, "-e", "4").status == 0
    assert dpsql("ledger", "verify", charged).status == 0


@pytest.mark.parametrize("epsilon", ["3", "2", "0", "-1", "nan", "1e309", "x", "10000000"])
def test_a_raise_is_a_number_above_the_total(dpsql: Run, charged: Path, epsilon: str) -> None:
    before = charged.read_bytes()
    done = dpsql("ledger", "raise", charged, f"--epsilon={epsilon}")
    assert done.status == 2
    assert "[E_EPSILON]" in done.err
    assert charged.read_bytes() == before
    assert kinds(dpsql, charged) == ["created", "debit"]


def test_a_raise_does_not_hide_another_change(dpsql: Run, charged: Path) -> None:
    charged.write_text(charged.read_text().replace("domain = [17, 90]", "domain = [17, 95]"))
    done = dpsql("ledger", "raise", charged, "--epsilon", "5")
    assert done.status == 3
    assert "[E_POLICY_CHANGED]" in done.err
    assert "epsilon = 3.0" in charged.read_text()


def test_a_catalog_that_cannot_be_edited_is_left_alone(dpsql: Run, adult: Path) -> None:
    text = adult.read_text()
    start, end = text.index("[budget]"), text.index("[table")
    inline = "budget = { epsilon = 3.0, delta = 1e-9 }\n"
    adult.write_text(inline + text[:start] + text[end:])
    assert dpsql(adult, "-e", "1", "-c", BY_SEX).status == 0
    before = adult.read_bytes()
    done = dpsql("ledger", "raise", adult, "--epsilon", "5")
    assert done.status == 2
    assert "by hand" in done.err
    assert adult.read_bytes() == before
    assert [p.name for p in adult.parent.glob("*.new")] == []


def test_a_changed_catalog_is_refused_until_it_is_migrated(dpsql: Run, charged: Path) -> None:
    charged.write_text(charged.read_text().replace("domain = [17, 90]", "domain = [17, 95]"))
    refused = dpsql(charged, "-e", "1", "-c", BY_SEX)
    assert refused.status == 3
    assert "dpsql ledger migrate" in refused.err
    done = dpsql("ledger", "migrate", charged, "--note", "ages up to 95")
    assert done.status == 0
    assert "remaining ε 2" in done.err
    again = dpsql(charged, "-e", "1", "-c", BY_SEX)
    assert again.status == 0
    assert "charged ε 1" in again.err
    assert kinds(dpsql, charged) == ["created", "debit", "policy", "debit"]


def test_an_open_connection_does_not_outlive_its_catalog(dpsql: Run, charged: Path) -> None:
    with connect(charged, epsilon=1) as connection:
        charged.write_text(charged.read_text().replace("domain = [17, 90]", "domain = [17, 95]"))
        assert dpsql("ledger", "migrate", charged).status == 0
        with pytest.raises(LedgerError, match="E_POLICY_CHANGED"):
            connection.execute("SELECT race, COUNT(*) FROM adult GROUP BY race")
        assert connection.budget.entries == 1


def test_migrating_an_unchanged_catalog_logs_nothing(dpsql: Run, charged: Path) -> None:
    assert dpsql("ledger", "migrate", charged).status == 0
    assert kinds(dpsql, charged) == ["created", "debit"]


def test_a_budget_below_what_is_spent_is_refused(dpsql: Run, charged: Path) -> None:
    charged.write_text(charged.read_text().replace("epsilon = 3.0", "epsilon = 0.5"))
    done = dpsql("ledger", "migrate", charged)
    assert done.status == 3
    assert "[E_POLICY_CHANGED]" in done.err


def test_a_moved_ledger_is_adopted(
    dpsql: Run, charged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = charged.parent.with_name("elsewhere")
    shutil.move(charged.parent, moved)
    monkeypatch.chdir(moved)
    catalog = moved / charged.name
    refused = dpsql(catalog, "-e", "1", "-c", BY_SEX)
    assert refused.status == 3
    assert "[E_LEDGER_ROLLBACK]" in refused.err
    assert dpsql("ledger", "adopt", catalog).status == 0
    assert dpsql("ledger", "verify", catalog).status == 0
    assert kinds(dpsql, catalog) == ["created", "debit", "adopted"]


def test_an_older_copy_is_not_adopted_over_its_anchor(dpsql: Run, charged: Path) -> None:
    ledger = charged.with_suffix(".ledger")
    old = ledger.read_bytes()
    assert dpsql(charged, "-e", "1", "-c", BY_SEX.replace("sex", "race")).status == 0
    ledger.write_bytes(old)
    done = dpsql("ledger", "adopt", charged)
    assert done.status == 3
    assert "[E_LEDGER_ROLLBACK]" in done.err


def test_a_backup_is_recovered(dpsql: Run, charged: Path) -> None:
    """Charges since the copy count again, and what is still among the releases is free."""
    by_race = BY_SEX.replace("sex", "race")
    assert dpsql("ledger", "backup", charged, "copy").status == 0
    assert dpsql(charged, "-e", "1", "-c", by_race).status == 0
    assert sorted(each.name for each in Path("copy").iterdir()) == sorted(
        ["anchor", charged.name, f"{charged.stem}.ledger", f"{charged.stem}.releases"]
    )
    assert Path("copy").stat().st_mode & 0o077 == 0
    shutil.copy(Path("copy") / f"{charged.stem}.ledger", charged.parent)
    refused = dpsql(charged, "-e", "1", "-c", BY_SEX)
    assert "[E_LEDGER_ROLLBACK]" in refused.err
    assert "dpsql ledger recover" in refused.err
    done = dpsql("ledger", "recover", charged, "--note", "a disk was lost")
    assert done.status == 0
    assert "remaining ε 1" in done.err
    assert kinds(dpsql, charged) == ["created", "debit", "recovered"]
    shown = dpsql("ledger", charged, "--format", "csv").out
    assert "requests of before: 1, epsilon 1" in shown
    assert "a disk was lost" in shown
    assert dpsql(charged, "-e", "1", "-c", by_race).status == 0
    assert "remaining ε 1" in dpsql("ledger", "verify", charged).err
    again = dpsql("ledger", "recover", charged)
    assert (again.status, "nothing was logged" in again.err) == (0, True)


def test_a_folder_that_is_there_is_no_place_for_a_backup(dpsql: Run, charged: Path) -> None:
    Path("copy").mkdir()
    done = dpsql("ledger", "backup", charged, "copy")
    assert done.status == 2
    assert "[E_OUTPUT]" in done.err
    charged.with_suffix(".releases").write_text("no database at all")
    done = dpsql("ledger", "backup", charged, "other")
    assert done.status == 3
    assert "[E_LEDGER_TAMPERED]" in done.err
    assert [each.name for each in Path().glob("*other*")] == []
    assert dpsql("ledger", "backup", charged, "no/folder/copy").status == 3


@pytest.mark.parametrize("note", ["a\nb", "\x1b[2J", "x" * 501])
def test_a_note_is_short_and_printable(dpsql: Run, charged: Path, note: str) -> None:
    done = dpsql("ledger", "adopt", charged, "--note", note)
    assert done.status == 2
    assert "\x1b" not in done.err
    assert kinds(dpsql, charged) == ["created", "debit"]


def test_help_names_the_acts(dpsql: Run, adult: Path) -> None:
    done = dpsql("ledger", "--help")
    assert done.status == 0
    for act in ("verify", "raise", "migrate", "adopt", "backup", "recover"):
        assert act in done.out
        assert dpsql("ledger", act, "--help").status == 0
        assert dpsql("ledger", act).status == 2


def test_the_ledger_is_exported_line_by_line(dpsql: Run, charged: Path) -> None:
    assert dpsql("ledger", "raise", charged, "-e", "4", "--note", "more\n is needed").status == 2
    assert dpsql("ledger", "raise", charged, "-e", "4", "--note", "for May").status == 0
    done = dpsql("ledger", "export", charged, "--jsonl")
    assert done.status == 0, done.err
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [(each["entry"], each["kind"]) for each in found] == [
        (0, "created"),
        (1, "debit"),
        (2, "policy"),
    ]
    assert (found[1]["epsilon"], found[1]["sql"], found[1]["state"]) == ("1", BY_SEX, "released")
    assert (found[2]["note"], found[2]["change"]) == ("for May", "total: epsilon 3 -> 4")
    assert found[2]["head"] in dpsql("ledger", "verify", charged).err
    later = dpsql("ledger", "export", charged, "--jsonl", "--after", "1").out
    assert later == done.out.splitlines()[2] + "\n"
    assert dpsql("ledger", "export", charged).status == 2
    charged.unlink()
    gone = dpsql("ledger", "export", charged, "--jsonl")
    assert gone.out == done.out
    assert gone.status == 2
