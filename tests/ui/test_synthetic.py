"""Synthetic tables at the prompt and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpsql as package
from dpsql.dbapi.connection import verify_ledger
from dpsql.ui.complete import complete_sql
from dpsql.ui.vocabulary import Vocabulary
from tests.ui.conftest import Run
from tests.ui.test_repl import Terminal

pytestmark = pytest.mark.slow

COLUMNS = "education, occupation, marital_status, relationship, race, sex"
MANY = f"SELECT {COLUMNS}, COUNT(*) FROM adult GROUP BY CUBE ({COLUMNS})"
LONG = f"CREATE SYNTHETIC TABLE s FROM adult OPTIONS (epsilon = 1, model = 'mixture') FOR ({MANY})"
SHORT = (
    "CREATE SYNTHETIC TABLE s FROM adult OPTIONS (epsilon = 1)"
    " FOR (SELECT sex, race, COUNT(*) FROM adult GROUP BY sex, race)"
)


def test_an_interrupt_at_the_prompt_keeps_what_was_learned(adult: Path) -> None:
    (adult.parent / "rows").mkdir()
    terminal = Terminal(adult, "xterm-256color", "-e", "0.5", "--files", "rows")
    terminal.see("adult ε 3>")
    terminal.enter(LONG + ";")
    terminal.see("round ")
    terminal.process.sendintr()
    terminal.see("note: interrupted: the table holds", "charged ε 1", "adult ε 2>")
    terminal.enter("SELECT race, COUNT(*) AS n FROM s GROUP BY race;")
    terminal.see("White", "of a run that was interrupted", "free:", "adult ε 2>")
    terminal.enter(".tables")
    terminal.see("synthetic, from adult", "adult ε 2>")
    terminal.enter("\\d s")
    terminal.see("race", "adult ε 2>")
    terminal.type("MATERIALIZE SYNTHETIC TABLE \t")
    terminal.see("s")
    terminal.enter(" INTO 'rows.csv' ROWS = 3;")
    terminal.see("3 rows in rows.csv", "adult ε 2>")
    assert terminal.leave() == 0
    verify_ledger(adult)
    with package.connect(adult) as connection:
        (entry,) = [e for e in connection.entries() if e.kind == "debit"]
        assert entry.state == "released"


def test_an_interrupt_before_the_first_model(adult: Path) -> None:
    terminal = Terminal(adult, "dumb", "-e", "0.5")
    terminal.see("adult ε 3>")
    terminal.enter(".confirm on")
    terminal.see("confirm on", "adult ε 3>")
    terminal.enter(SHORT + ";")
    terminal.see("rule", "cost", "run this? [y/N]")
    terminal.enter("n")
    terminal.see("nothing charged", "adult ε 3>")
    assert terminal.leave() == 0


@pytest.mark.parametrize("way", ["-c", "-f", "run"])
def test_a_batch_makes_asks_and_writes(adult: Path, dpsql: Run, way: str) -> None:
    folder = adult.parent
    text = (
        f"{SHORT};\nSELECT sex, COUNT(*) AS n FROM s GROUP BY sex;\n"
        "MATERIALIZE SYNTHETIC TABLE s INTO 'rows.csv' ROWS = 5;\n"
    )
    (folder / "make.sql").write_text(text)
    (folder / "own").mkdir()
    if way == "run":
        ran = dpsql(
            "run",
            "make.sql",
            "--catalog",
            adult,
            "--files",
            "own",
            "--out",
            "answers",
            "--report",
            "r.html",
        )
        assert "mechanism   marginals" in ran.err
        names = sorted(p.name for p in (folder / "answers").iterdir())
        assert names == ["001_sex_n.csv", "summary.json", "summary.md"]
        assert "charged: ε 1" in (folder / "answers" / "summary.md").read_text()
    else:
        ran = dpsql(
            adult, way, text if way == "-c" else "make.sql", "--files", "own", "--format", "csv"
        )
        assert "Female," in ran.out
        assert "biased" in ran.err
    assert (ran.status, ran.err.count("charged")) == (0, 1)
    assert "charged ε 1" in ran.err
    assert len((folder / "own" / "rows.csv").read_text().splitlines()) == 6


def test_a_run_of_private_and_synthetic_answers_tells_both_charges(adult: Path, dpsql: Run) -> None:
    text = f"SELECT COUNT(*) AS n FROM adult; {SHORT}; SELECT race, COUNT(*) FROM s GROUP BY race"
    (adult.parent / "both.sql").write_text(text)
    dry = dpsql("run", "both.sql", "--catalog", adult, "-e", "0.5", "--dry-run")
    assert dry.status == 0
    assert "epsilon 0.5" in dry.out
    assert "epsilon 1;" in dry.out
    ran = dpsql("run", "both.sql", "--catalog", adult, "-e", "0.5", "--out", "answers")
    assert ran.status == 0
    assert "charged ε 0.5" in ran.err
    assert "charged ε 1 " in ran.err
    assert "remaining ε 1.5" in ran.err
    assert "charged: ε 1.5" in (adult.parent / "answers" / "summary.md").read_text()


def test_completion_knows_the_statements_and_the_tables() -> None:
    words = Vocabulary(["adult", "s"], {}, ["s"])

    def offered(text: str) -> list[str]:
        return [each.text for each in complete_sql(text, words)]

    assert offered("CRE") == ["CREATE SYNTHETIC TABLE", "CREATE DOMAIN", "CREATE BOUNDS"]
    assert offered("mat") == ["materialize synthetic table"]
    assert offered("MATERIALIZE SYNTHETIC TABLE ") == ["s"]
    assert offered("CREATE SYNTHETIC TABLE x FROM ") == ["adult", "s"]
    assert offered("CREATE SYNTHETIC TABLE x FROM adult OPTIONS (model = 'm") == [
        "'mwem'", "'marginals'", "'mixture'",
    ]  # fmt: skip
    assert "OPTIONS (" in offered("CREATE SYNTHETIC TABLE x FROM adult OPT")


def test_progress_says_what_a_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    from io import StringIO

    from dpsql.ui.narration import Progress

    class Screen(StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    import time

    screen: Any = Screen()
    with Progress(screen, "measuring", delay=0.01) as progress:
        time.sleep(0.15)
        progress.say("round 1: \x1b[31msex " + "x" * 500)
        time.sleep(0.25)
    text = screen.getvalue()
    assert "measuring 0 s" in text
    assert "round 1: \\x1b[31msex" in text
    assert "\x1b" not in text
    assert max(map(len, text.split("\r"))) <= 120
