"""Bars with whiskers."""

from __future__ import annotations

import pytest

from dpsql.errors import ProgrammingError, text_width
from dpsql.ui.chart import Bar, bars_of, draw_bars
from dpsql.ui.grid import Grid

GRID = Grid.of_rows(
    ("sex", "n", "share"),
    ("text", "number", "number"),
    (("F", 10.0, 0.4), (None, -3.0, None), ("日本", 1.0, 0.1)),
    (None, (1.0, 1.0, 1.0), (0.01, None, 0.01)),
)


def test_the_first_noisy_column_is_drawn_with_its_intervals() -> None:
    name, bars = bars_of(GRID, None, (None, ((8.0, 12.0), (-5.0, -1.0), (-1.0, 3.0)), None))
    assert name == "n"
    assert [bar.label for bar in bars] == ["F", "NULL", "日本"]
    assert bars[0] == Bar("F", 10.0, 1.0, 8.0, 12.0)


def test_labels_are_the_columns_before_the_first_noisy_one() -> None:
    grid = Grid.of_rows(
        ("sex", "n", "low"), ("text", "number", "number"), (("F", 1.0, 0.5),), (None, (1.0,), None)
    )
    assert bars_of(grid)[1][0].label == "F"


def test_a_column_can_be_named_and_null_rows_are_left_out() -> None:
    name, bars = bars_of(GRID, "SHARE")
    assert name == "share"
    assert [bar.label for bar in bars] == ["F", "日本"]


def test_only_noisy_columns_can_be_drawn() -> None:
    with pytest.raises(ProgrammingError, match="no noisy column 'sex'") as caught:
        bars_of(GRID, "sex")
    assert "n, share" in (caught.value.hint or "")


def test_all_lines_are_equally_wide_and_negative_bars_go_left() -> None:
    _, bars = bars_of(GRID)
    lines = draw_bars("n", bars, width=60).splitlines()[1:]
    assert {text_width(line) for line in lines} == {60}
    axis = [line.index("│") for line in lines[:2]]
    assert axis[0] == axis[1]
    assert "█" in lines[1][: axis[1]]
    assert "█" in lines[0][axis[0] :]


def test_ascii_and_nothing_to_draw() -> None:
    assert draw_bars("n", [Bar("a", 1.0, 0.0, 1.0, 1.0)], 40, unicode=False).isascii()
    assert "nothing to draw" in draw_bars("n", [])
    assert "0.0" in draw_bars("n", [Bar("", 0.0, 0.5, 0.0, 0.0)], 5)
