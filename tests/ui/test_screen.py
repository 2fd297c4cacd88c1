"""What a screen shows fits it: tables, carets and the toolbar, at any width."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsql.errors import ProgrammingError, Span, UsageError, text_width
from dpsql.ui.box import draw_box
from dpsql.ui.commands import run_command
from dpsql.ui.editor import edit_text
from dpsql.ui.grid import Grid
from dpsql.ui.pager import show_paged
from dpsql.ui.repl import Toolbar
from dpsql.ui.session import Session
from dpsql.ui.style import Style

Run = Callable[..., Any]
COUNT = "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex"
LETTERS = "ab c日é\x1b\u0301"


def grid_of(columns: int, rows: int, random_: random.Random) -> Grid:
    kinds = [random_.choice(["text", "integer", "number"]) for _ in range(columns)]
    body = [tuple(_value(kind, random_) for kind in kinds) for _ in range(rows)]
    errors = tuple(
        tuple(random_.choice([1.4, 0.03]) for _ in range(rows)) if kind == "number" else None
        for kind in kinds
    )
    names = tuple(_text(random_, 14) or "n" for _ in kinds)
    return Grid.of_rows(names, tuple(kinds), tuple(body), errors)


def _value(kind: str, random_: random.Random) -> object:
    if kind == "text":
        return random_.choice([None, _text(random_, 30)])
    return random_.randrange(10**6) if kind == "integer" else random_.uniform(-1e5, 1e5)


def _text(random_: random.Random, most: int) -> str:
    return "".join(random_.choices(LETTERS, k=random_.randrange(most)))


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_table_fits_and_says_what_it_leaves_out(width: int) -> None:
    random_ = random.Random(width)
    for _ in range(60):
        columns, rows = random_.randrange(1, 12), random_.randrange(0, 12)
        grid = grid_of(columns, rows, random_)
        unicode = random_.random() < 0.7
        lines = draw_box(grid, Style(width=width, rows=5, unicode=unicode)).splitlines()
        frame = [line for line in lines if line[0] in "┌│├└+|"]
        assert len({text_width(line) for line in frame}) == 1
        hidden = [line for line in lines if "shown" in line]
        wide = text_width(frame[0]) > width
        assert not wide or columns == 1 or f"{columns} columns (1 shown)" in hidden[0]
        assert (rows > 5) == (bool(hidden) and f"{rows} rows (5 shown)" in hidden[0])
        assert unicode or "".join(lines).isascii()


def test_numbers_are_never_cut_and_ends_are_kept() -> None:
    rows = tuple((f"key {i}", 1234567.5 + i, i) for i in range(7326))
    errors = (None, (1.5,) * 7326, None)
    grid = Grid.of_rows(
        ("a key of the table", "n", "last"), ("text", "number", "integer"), rows, errors
    )
    lines = draw_box(grid, Style(width=46, rows=40)).splitlines()
    assert lines[-1] == "7,326 rows (40 shown)"
    assert "1234567.5" in lines[3]
    assert "1241892.5" in lines[-3]
    assert len(lines) == 3 + 40 + 1 + 2
    cut = draw_box(grid, Style(width=24)).splitlines()
    assert cut[-1] == "3 columns (2 shown)"
    assert "key 7325" in cut[-3]
    assert cut[-3].endswith(" 7325 │")
    assert "shown" not in draw_box(grid, Style(rows=7326))


@pytest.mark.parametrize("width", [20, 80, 200])
def test_a_caret_stands_under_what_it_is_about(width: int) -> None:
    random_ = random.Random(width)
    for _ in range(300):
        text = "".join(random_.choices("abcd 日\x1b", k=random_.randrange(1, 400)))
        start = random_.randrange(len(text))
        end = min(len(text), start + random_.randrange(1, 30))
        shown, carets = Span(text, start, end).caret(width).split("\n")
        assert max(text_width(shown), len(carets)) <= max(width, 20)
        at = len(carets) - len(carets.lstrip())
        place = next(i for i in range(len(shown) + 1) if text_width(shown[:i]) == at)
        first = text[start]
        assert shown[place] == ("\\" if first == "\x1b" else first)


def test_a_short_line_is_shown_whole() -> None:
    text = "SELECT COUNT(*) FROM adlut WHERE sex = 'Male'"
    shown, carets = Span(text, 21, 26).caret().split("\n")
    assert shown == f"line 1: {text}"
    assert carets == " " * 29 + "^^^^^"
    error = ProgrammingError("E_X", "no", hint="yes", span=Span(text, 21, 26))
    assert str(error) == error.told(80)
    assert len(error.told(40).split("\n")[1]) <= 40


@pytest.fixture
def session(adult: Path) -> Any:
    from dpsql.dbapi.connection import connect

    opened = Session(connect(adult, epsilon=0.5), "adult", "box")
    yield opened
    opened.close()


def test_the_toolbar_fits_and_keeps_the_budget(session: Session) -> None:
    toolbar = Toolbar.of(session)
    for width in (20, 40, 80, 120, 200):
        text = toolbar.text(width)
        assert text_width(text) <= width
        assert "ε 3 of 3" in text
    assert "█" in toolbar.text(200)
    assert "epsilon 0.5" in toolbar.text(80)
    assert "nonnegative" not in toolbar.text(80)


def test_one_result_goes_to_a_file_and_the_last_is_shown_again(dpsql: Run, adult: Path) -> None:
    script = f".once n.csv\nSHOW nope;\n.timer off\n{COUNT};\n.last\n.once n.csv\n"
    script += ".maxrows 3\n.maxwidth x\n"
    done = dpsql(adult, "-e", "0.1", stdin=f".bail off\n{script}.pager less\n.edit\n")
    assert Path("n.csv").read_text() == done.out
    assert done.out.startswith("sex,n\nFemale,")
    for told in ("goes to n.csv", "written to n.csv", "it exists", "maxrows 3", "'x' is not a num"):
        assert told in done.err
    assert "pager less" in done.err
    assert "needs a terminal" in done.err
    assert sorted(path.name for path in Path.cwd().iterdir() if path.name.startswith(".n")) == []


def test_a_full_disk_loses_nothing(dpsql: Run, adult: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no full device here")
    done = dpsql(adult, "-e", "0.1", stdin=f".output /dev/full\n{COUNT};\n")
    assert done.status == 2
    assert "cannot write /dev/full: no space left on device" in done.err
    again = dpsql(adult, "-e", "0.1", stdin=f"{COUNT};\n")
    assert "free: answered" in again.err


def test_an_editor_gives_a_text_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "editor.py"
    script.write_text("import sys; open(sys.argv[1], 'a').write(' FROM adult;\\n')")
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    assert edit_text("SELECT 1") == "SELECT 1 FROM adult;"
    for bad in ("no-such-editor", "false", "'"):
        monkeypatch.setenv("VISUAL", bad)
        with pytest.raises(UsageError, match="gave no text"):
            edit_text("SELECT 1")


def test_a_pager_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot be run"):
        show_paged("text", "no-such-pager")
    show_paged("text\n" * 100_000, "head -c 0")  # left early


def test_help_needs_no_dot(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    run_command(session, ".help plot")
    assert ".plot [COLUMN]" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"unknown command \.nothing"):
        run_command(session, ".help nothing")
