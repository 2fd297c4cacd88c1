"""Texts of the data where they are drawn: nothing drives a terminal, hides, or turns what follows.

Every character of the categories that are not seen is put into names, keys, notes and messages, and
looked for in every output. Texts that spreadsheets compute are looked for in every file of them.
"""

from __future__ import annotations

import base64
import csv
import io
import random
import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction

import pytest

from dpsql.answer.display import LabelledFacts, result_html, result_text
from dpsql.answer.result import CostInfo, Result, message
from dpsql.answer.synthetic_tables import find_synthetic
from dpsql.engine.explanation import Explanation
from dpsql.errors import Error, ProgrammingError, Span, printable
from dpsql.server.copy_rows import copied
from dpsql.server.messages import Notice
from dpsql.server.result_stream import ResultTable
from dpsql.server.statements import _notices
from dpsql.ui.chart import bars_of, draw_bars
from dpsql.ui.formats import FORMATS, encode
from dpsql.ui.grid import Grid
from dpsql.ui.narration import tell, tell_error, tell_note
from dpsql.ui.report import BatchAnswer, BatchReport, summary_json, summary_markdown
from dpsql.ui.report_page import render_report
from dpsql.ui.style import Style
from dpsql.vectors import Vector

IGNORABLE = frozenset(
    (
        *(0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0),
        *(*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
    )
)
"""Letters and marks that Unicode calls ignorable by default, besides controls and formats."""
INSTRUCTIONS = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
UNSEEN = frozenset(
    character
    # what follows is unassigned but for ignorable characters of plane 14, and private from 15 on
    for character in map(chr, (*range(0x33480), *range(0xE0000, 0xE1000)))
    if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")
    or ord(character) in IGNORABLE
    or unicodedata.bidirectional(character) in INSTRUCTIONS
)
LAYOUT = frozenset("\n\t")
HOSTILE = "".join(sorted(UNSEEN))
BEGINNINGS = ("=", "+", "-", "@", "\t", "\r")
COST = CostInfo(Fraction(1, 2), Fraction(0), "laplace", False)


def made(text: str) -> Result:
    """A result with a text as a name, as keys and in notes."""
    return Result(
        (f"key{text}", f"n{text}"),
        ("text", "number"),
        (Vector.of((f"1{text}", f"2{text}")), Vector.of((11.5, 12.5))),
        (None, Vector.of((1.5, 1.5))),
        f"SELECT '{text}'",
        cost=COST,
        notes=(f"note {text}", f"standing {text}"),
        standing=(f"standing {text}",),
    )


def forecast(text: str) -> Explanation:
    return Explanation(
        (), f"method {text}", "laplace", Fraction(1), Fraction(0), 1.0, (), False, False,
        Fraction(1), details=((f"label{text}", f"detail {text}"),),
    )  # fmt: skip


def batch(text: str) -> BatchReport:
    answer = BatchAnswer("001_a", None, made(text))
    names = (f"w{text}.sql", f"c{text}.toml")
    return BatchReport(*names, forecast(text), (answer,), "1", "2024-01-01", (f"whose {text}",))


def error(text: str) -> Error:
    sql = f"SELECT {text}x"
    span = Span(sql, len(sql) - 1, len(sql))
    return ProgrammingError("E_X", f"no {text}", hint=f"hint {text}", span=span)


class Facts(LabelledFacts):
    """Labels and texts of no kind in particular."""

    def __init__(self, text: str) -> None:
        self.text = text

    def rows(self) -> tuple[tuple[str, str], ...]:
        return ((f"label{self.text}", f"said {self.text}"),)


def _page(text: str) -> str:
    return re.sub(r"base64,[^\"]*", "", render_report(batch(text)).decode())


def _refusal(text: str) -> str:
    with pytest.raises(ProgrammingError) as caught:
        find_synthetic({}, text)
    return str(caught.value)


DRAWN: dict[str, Callable[[str], str]] = {
    **{
        name: lambda t, name=name: encode(  # type: ignore[misc]
            Grid.of(made(t)), name, Style(stddev=True, terminal=True, width=400)
        ).decode()
        for name, each in FORMATS.items()
        if each.encode is None
    },
    "prompt": lambda t: result_text(made(t)),
    "message": lambda t: result_text(message(t)),
    "notebook": lambda t: result_html(made(t)),
    "notebook message": lambda t: result_html(message(t)),
    "facts": lambda t: str(Facts(t)),
    "facts in a notebook": lambda t: Facts(t)._repr_html_(),
    "forecast": lambda t: "\n".join(forecast(t).lines()),
    "bars": lambda t: draw_bars(*bars_of(Grid.of(made(t))), 100),
    "report": _page,
    "summary": lambda t: summary_markdown(batch(t)).decode(),
    "summary of programs": lambda t: summary_json(batch(t)).decode(),
    "error": lambda t: error(t).told(),
    "refusal": _refusal,
    "notices": lambda t: "".join(
        each.encode()[5:].decode().replace("\0", "") for each in _notices(made(t), set())
    ),
    "error over the wire": lambda t: (
        Notice("ERROR", "0A000", t, t, t, 3).encode()[5:].decode().replace("\0", "")
    ),
}


@pytest.mark.parametrize("output", DRAWN)
def test_what_is_not_seen_is_drawn_by_its_number(output: str) -> None:
    draw = DRAWN[output]
    assert set(draw(HOSTILE)) & UNSEEN <= LAYOUT
    plain, turned = draw("abc"), draw("a\u202ebc")
    assert plain.count("\n") == turned.count("\n") == draw("a\u2028b\x0bc").count("\n")
    assert "202e" in turned
    assert "202e" not in plain
    assert "Łódź 東京 שלום" in draw("Łódź 東京 שלום")


def test_narration_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    tell(HOSTILE)
    tell_note(HOSTILE)
    tell_error(error(HOSTILE))
    said = capsys.readouterr().err
    assert set(said) & UNSEEN <= LAYOUT
    assert "202e" in said


def test_pictures_are_drawn_of_any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    for text in ("\u202e\u200b", "$\\frac{", "$x$ and $", "a_b^c"):
        ax = made(text).plot()
        ax.figure.canvas.draw()  # where a formula is read
        labels = [each.get_text() for each in ax.get_yticklabels()]
        found = "".join([*labels, ax.get_xlabel(), ax.get_ylabel()])
        assert not set(found) & UNSEEN
        assert printable(text).replace("$", r"\$") in found
        pyplot.close(ax.figure)


def test_the_escape_of_a_text_is_seen_and_kept() -> None:
    chosen = random.Random(3)
    alphabet = [*UNSEEN, *"abc =\\é東"]
    for _ in range(300):
        text = "".join(chosen.choices(alphabet, k=6))
        once = printable(text)
        assert not set(once) & UNSEEN
        assert printable(once) == once
        assert set(text) - UNSEEN - set(once) == set()


def _inside(result: Result) -> bytes:
    """The file that is carried by the page of a report."""
    report = BatchReport(
        "w", "c", forecast(""), (BatchAnswer("001_a", None, result),), "1", "2024-01-01", ()
    )
    (found,) = re.findall(r"base64,([^\"]*)", render_report(report).decode())
    return base64.b64decode(found)


FILES: dict[str, Callable[[Result, bool], bytes]] = {
    "csv": lambda r, f: encode(Grid.of(r), "csv", Style(stddev=True, formulas=f)),
    "tsv": lambda r, f: encode(Grid.of(r), "tsv", Style(formulas=f)),
    "page": lambda r, f: b"".join(copied(ResultTable(r, errors=True), "csv", True, f)),
    "report": lambda r, f: _inside(r),
}


@pytest.mark.parametrize("name", FILES)
def test_no_spreadsheet_computes_what_a_file_holds(name: str) -> None:
    delimiter = "\t" if name == "tsv" else ","
    for begin in BEGINNINGS:
        text = f'{begin}HYPERLINK("evil","a")'
        result = Result(
            (text, "n"),
            ("text", "number"),
            (Vector.of((text, "b-=")), Vector.of((-7.0, None))),
            (None, Vector.of((1.0, None))),
            "",
        )
        for formulas in (False, True) if name != "report" else (False,):
            body = FILES[name](result, formulas).decode()
            rows = list(csv.reader(io.StringIO(body, newline=""), delimiter=delimiter))
            cells = [rows[0][0], rows[1][0]]
            kept = name == "tsv" and begin in "\t\r"  # written as two characters there
            if formulas:
                assert all(kept or cell[0] == begin for cell in cells)
            else:
                assert not any(cell.startswith(BEGINNINGS) for cell in cells)
                told = text.replace("\r", "\\r")
                assert all(kept or cell[1:] == told for cell in cells)
            assert float(rows[1][1]) == -7
            assert rows[2][0] == "b-="


@pytest.mark.parametrize("name", FILES)
def test_what_is_not_seen_stands_in_files_by_its_number(name: str) -> None:
    texts = Vector.of((f"1{HOSTILE}", "2")), Vector.of(([f"1{HOSTILE}"], None))
    result = Result((HOSTILE, "n"), ("text", "text[]"), texts, (None, None), "")
    told = FILES[name](result, False).decode()
    assert set(told) & UNSEEN <= LAYOUT
    assert told.count("202e") >= 3
    if name != "report":
        assert set(FILES[name](result, True).decode()) >= UNSEEN - {"\t", "\r", "\n"}


def test_copy_gives_programs_what_is_there() -> None:
    result = Result(("t",), ("text",), (Vector.of(("=1+1",)),), (None,), "")
    assert b"".join(copied(ResultTable(result), "csv", False)) == b"=1+1\n"
