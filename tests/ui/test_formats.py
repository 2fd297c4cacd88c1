"""Every output format on one small result with all that is awkward in it."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json

import pytest

from dpsql.errors import UsageError
from dpsql.ui.formats import FORMATS, Style, encode, find_format
from dpsql.ui.grid import Grid

DAY = dt.date(2024, 2, 1)
GRID = Grid.of_rows(
    ("sex", "day", "n", "ratio"),
    ("text", "date", "number", "number"),
    (("F", DAY, 1203.3671, 0.251), (None, DAY, -0.02, None), ('a,"b"|\x1b[31m', None, 3.0, 0.5)),
    (None, None, (1.41, 1.41, 86.0), (0.0031, None, 0.01)),
)
EMPTY = Grid.of_rows(("n",), ("number",), (), ((),))


def text_of(name: str, grid: Grid = GRID, style: Style | None = None) -> str:
    return encode(grid, name, style or Style()).decode()


def test_box_has_an_error_column_and_sensible_digits() -> None:
    lines = text_of("box").splitlines()
    assert lines[1].split("│")[2:-1] == [
        " day        ", "      n ", "    ± ", "  ratio ", "      ± ",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[3].split("│")[3:7]] == [
        "1203.4", "1.4", "0.2510", "0.0031",
    ]  # fmt: skip
    assert [cell.strip() for cell in lines[4].split("│")[1:7]] == [
        "NULL", "2024-02-01", "0.0", "1.4", "NULL", "",
    ]  # fmt: skip
    assert len({len(line) for line in lines}) == 1


def test_box_without_unicode_is_ascii() -> None:
    assert text_of("box", style=Style(unicode=False)).isascii()


def test_box_gives_way_to_a_narrow_terminal() -> None:
    grid = Grid.of_rows(("name", "n"), ("text", "number"), (("x" * 60, 1.0),), (None, (1.4,)))
    lines = text_of("box", grid, Style(width=40)).splitlines()
    assert {len(line) for line in lines} == {40}
    assert "…" in lines[3]


TEXTS = [name for name, found in FORMATS.items() if found.render]
VERBATIM = ("csv", "tsv")
"""Formats of files that hold values as they are where `--formulas` asks for that."""


@pytest.mark.parametrize("name", TEXTS)
def test_control_characters_never_reach_a_terminal(name: str) -> None:
    assert "\x1b" not in text_of(name)
    assert "\x1b" not in text_of(name, style=Style(terminal=True, formulas=True))
    assert ("\x1b" in text_of(name, style=Style(formulas=True))) == (name in VERBATIM)


def test_colour_is_only_used_when_wanted() -> None:
    assert "\x1b" in text_of("box", style=Style(colour=True))
    assert "\x1b" not in text_of("box")


def test_csv_keeps_full_precision_and_leaves_null_empty() -> None:
    rows = list(csv.reader(io.StringIO(text_of("csv", style=Style(formulas=True)))))
    assert rows[0] == ["sex", "day", "n", "ratio"]
    assert rows[1] == ["F", "2024-02-01", "1203.3671", "0.251"]
    assert rows[2] == ["", "2024-02-01", "-0.02", ""]
    assert rows[3][0] == 'a,"b"|\x1b[31m'


def test_csv_tells_null_from_empty_text_and_keeps_the_line_of_a_lone_null() -> None:
    grid = Grid.of_rows(("a", "b"), ("text", "text"), [("", None)])
    assert text_of("csv", grid) == 'a,b\n"",\n'
    assert text_of("csv", Grid.of_rows(("a",), ("text",), [(None,)])) == 'a\n""\n'


def test_csv_adds_error_columns_when_asked() -> None:
    rows = list(csv.reader(io.StringIO(text_of("csv", style=Style(stddev=True)))))
    assert rows[0] == ["sex", "day", "n", "n_stddev", "ratio", "ratio_stddev"]
    assert rows[1][2:] == ["1203.3671", "1.41", "0.251", "0.0031"]


def test_tsv_escapes_tabs_and_line_breaks() -> None:
    grid = Grid.of_rows(("a", "b"), ("text", "text"), [("x\ty\nz\\", None)])
    assert text_of("tsv", grid) == "a\tb\nx\\ty\\nz\\\\\t\n"


def test_json_and_jsonl_hold_the_same_records() -> None:
    records = json.loads(text_of("json"))
    assert records == [json.loads(line) for line in text_of("jsonl").splitlines()]
    assert records[0] == {"sex": "F", "day": "2024-02-01", "n": 1203.3671, "ratio": 0.251}
    assert records[2]["sex"] == 'a,"b"|\x1b[31m'
    not_finite = Grid.of_rows(("x",), ("number",), [(float("inf"),), (float("nan"),)])
    assert json.loads(text_of("json", not_finite)) == [{"x": None}, {"x": "NaN"}]


def test_markdown_escapes_pipes() -> None:
    lines = text_of("markdown").splitlines()
    assert lines[1].replace("-", "").replace(" ", "") == "|||:|:|:|:|"
    assert "\\|" in lines[4]


def test_html_escapes_markup() -> None:
    grid = Grid.of_rows(("<b>",), ("text",), [("<script>",)])
    assert "<script>" not in text_of("html", grid)
    assert "<th>&lt;b&gt;</th>" in text_of("html", grid)


def test_line_separates_records() -> None:
    assert text_of("line").count("\n\n") == 2
    assert "    n = 1203.4\n" in text_of("line")


@pytest.mark.parametrize("name", TEXTS)
def test_no_rows_is_no_problem(name: str) -> None:
    assert isinstance(text_of(name, EMPTY), str)
    assert isinstance(text_of(name, Grid.of_rows((), (), (), ())), str)


@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_columnar_formats_round_trip(name: str) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import BufferReader, ipc, parquet

    data = BufferReader(encode(GRID, name, Style(stddev=True)))
    table = parquet.read_table(data) if name == "parquet" else ipc.open_file(data).read_all()
    assert table.column_names == ["sex", "day", "n", "n_stddev", "ratio", "ratio_stddev"]
    assert table.to_pylist()[0]["day"] == DAY
    assert table.to_pylist()[1]["sex"] is None


def test_integers_beyond_64_bits_become_doubles_in_arrow() -> None:
    pytest.importorskip("pyarrow")
    from dpsql.ui.columnar import arrow_table

    grid = Grid.of_rows(("a", "b"), ("integer", "integer"), [(2**70, 7)])
    assert [str(field.type) for field in arrow_table(grid).schema] == ["double", "int64"]


def test_an_unknown_format_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="unknown format 'xls'") as caught:
        find_format("xls")
    assert caught.value.exit_code == 2
    assert "parquet" in (caught.value.hint or "")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs the package pyarrow"):
        find_format("parquet")
