"""Charts of a report: which one suits is a matter of the form; each is well-formed and whole."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from dpsql.ui.drawing import MAX_BARS, draw_column, draw_ratios, key_columns
from dpsql.ui.grid import Grid

KINDS = {"band": "lines", "cell": "heat", "minus": "heat", "whisker": "bars"}


def grid(*keys: tuple[str, list[object]], value: float = 5.0) -> Grid:
    """A column of one number, each with error 1, over some keys."""
    count = len(keys[0][1]) if keys else 1
    rows = [(*(values[i] for _, values in keys), value + i) for i in range(count)]
    names = tuple(f"k{j}" for j in range(len(keys)))
    types = tuple(kind for kind, _ in keys)
    errors = (*(None for _ in keys), (1.0,) * count)
    return Grid.of_rows((*names, "n"), (*types, "number"), tuple(rows), errors)


def drawn(table: Grid) -> str:
    column = len(table.columns) - 1
    text = draw_column(table, column, (None,) * len(table.columns))
    if text:
        ET.fromstring(text)
    return text


def kind_of(table: Grid) -> str:
    text = drawn(table)
    return next((kind for word, kind in KINDS.items() if f'class="{word}' in text), "none")


def pairs(rows: int, columns: int) -> list[tuple[str, list[object]]]:
    down: list[object] = [i for i in range(rows) for _ in range(columns)]
    across: list[object] = [f"c{j}" for _ in range(rows) for j in range(columns)]
    return [("integer", down), ("text", across)]


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        (grid(("text", ["a", "b", "c"])), "bars"),
        (grid(("integer", [1, 2, 3])), "bars"),
        (grid(("integer", list(range(50)))), "lines"),
        (grid(("text", [f"t{i}" for i in range(50)])), "bars"),
        (grid(("text", [f"t{i}" for i in range(MAX_BARS + 1)])), "none"),
        (grid(*pairs(20, 3)), "lines"),
        (grid(*pairs(20, 9)), "heat"),
        (grid(*pairs(4, 4)), "heat"),
        (grid(*pairs(50, 50)), "none"),
        (grid(("text", ["a"])), "none"),
        (grid(), "none"),
    ],
)
def test_the_form_of_a_result_decides_its_chart(table: Grid, kind: str) -> None:
    assert kind_of(table) == kind


def test_every_number_is_drawn_once_with_its_error() -> None:
    for table in (grid(*pairs(4, 4)), grid(("integer", list(range(50)))), grid(*pairs(20, 3))):
        assert len(re.findall("<title>", drawn(table))) == table.count
        assert drawn(table).count("± 1.0") == table.count
    bars = grid(("text", list("abc")))
    assert drawn(bars).count("± 1.0") == 3


def test_negative_and_missing_numbers_and_equal_ones() -> None:
    below = grid(("text", list("abcde")), value=-9.0)
    assert kind_of(below) == "bars"
    flat = Grid.of_rows(
        ("k", "n"), ("integer", "number"), tuple((i, 0.0) for i in range(12)), (None, (0.0,) * 12)
    )
    assert kind_of(flat) == "lines"
    gaps = Grid.of_rows(
        ("k", "n"),
        ("text", "number"),
        (("a", None), ("b", 1.0), ("c", 2.0)),
        (None, (None, 1.0, 1.0)),
    )
    assert drawn(gaps).count("±") == 2


def test_names_are_escaped_and_cannot_leave_their_place() -> None:
    table = grid(("text", ["<script>alert(1)</script>", "a&b", "x\x1b[2J"]))
    text = drawn(table)
    assert "<script" not in text
    assert "\x1b" not in text


def test_keys_are_what_stands_before_the_first_noisy_column() -> None:
    assert key_columns(grid(*pairs(4, 4))) == [0, 1]
    assert key_columns(Grid.of_rows(("a",), ("text",), [("x",)])) == []


def test_ratios_leave_out_what_is_not_known() -> None:
    text = draw_ratios([("this plan", 2.0, "2"), ("none", float("nan"), "?"), ("other", 4.0, "4")])
    ET.fromstring(text)
    assert text.count("<rect") == 2
