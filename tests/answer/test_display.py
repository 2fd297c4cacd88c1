"""Results as notebooks, Python's prompt and pictures show them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from fractions import Fraction
from html.parser import HTMLParser
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.answer.display import MOST
from dpsql.answer.plots import MOST_BARS
from dpsql.answer.result import CostInfo, Result, message
from dpsql.dbapi.connection import Connection

COST = CostInfo(Fraction(1, 2), Fraction(0), "laplace", False)


def made(keys: list[tuple[Any, ...]], stddev: float | None = 1.41, **more: Any) -> Result:
    """A result with a row for every key, and a number with an error in each."""
    count = len(keys[0]) if keys else 1
    columns = (*(f"key{i}" for i in range(count)), "n")
    types = (*("text",) * count, "number")
    rows = tuple((*key, 10.04 + i) for i, key in enumerate(keys))
    errors = (*(None,) * count, (stddev,) * len(rows))
    return Result.of_rows(columns, types, rows, errors, "SELECT", cost=COST, **more)


class Balanced(HTMLParser):
    """Fails where an element is left open; ``cells`` are the texts of all td."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "br":
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open:
            self.cells[-1] += data


def test_a_table_has_errors_notes_and_cost() -> None:
    result = made([("<b>&",), (None,)], notes=("rows without </table> a key",))
    text = result._repr_html_()
    assert Balanced(text).cells == ["<b>&", "10.0 ± 1.4", "NULL", "11.0 ± 1.4"]
    assert "2 rows, 2 columns<br>cost: epsilon 0.5 (laplace)<br>note: rows without &lt;" in text
    assert str(result).splitlines() == [
        "key0           n",
        "<b>&  10.0 ± 1.4",
        "NULL  11.0 ± 1.4",
        "[2 rows, 2 columns]",
        "cost: epsilon 0.5 (laplace)",
        "note: rows without </table> a key",
    ]
    assert repr(result) == str(result)


@pytest.mark.parametrize("count", [0, 1, MOST, MOST + 1, 5000])
def test_long_results_are_cut_in_the_middle(count: int) -> None:
    result = made([(str(i),) for i in range(count)])
    cells = Balanced(result._repr_html_()).cells
    shown = count if count <= MOST else 21
    assert len(cells) == 2 * shown
    lines = str(result).splitlines()
    assert len(lines) == shown + 3
    if count > MOST:
        assert cells[20] == "…"
        assert lines[11].split() == ["...", "..."]
        assert f"{count:,} rows (20 shown)" in lines[-2]
        assert cells[-2] == str(count - 1)


def test_texts_cannot_drive_a_terminal() -> None:
    assert "\x1b" not in str(made([("a\x1b[31m",)])) + made([("a\x1b[31m",)])._repr_html_()


def test_messages_and_cursors_show_themselves(adult: Connection) -> None:
    assert str(message("epsilon = 1")) == "epsilon = 1"
    assert message("a < b")._repr_html_() == "<p>a &lt; b</p>"
    cursor = adult.cursor()
    assert cursor._repr_html_() is None
    cursor.execute("SELECT income, COUNT(*) AS n FROM adult GROUP BY income")
    assert cursor._repr_html_() == cursor.result._repr_html_()
    forecast = adult.explain("SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex")
    assert "n ± " in "".join(Balanced(forecast._repr_html_()).cells)


pyplot: Any = import_module("matplotlib.pyplot")


@pytest.fixture(scope="module", autouse=True)
def _without_screen() -> None:
    pyplot.switch_backend("Agg")


@pytest.fixture(autouse=True)
def _figures() -> Iterator[None]:
    yield
    pyplot.close("all")


def days(count: int) -> list[tuple[Any, ...]]:
    return [(dt.date(2024, 1, 1) + dt.timedelta(days=i),) for i in range(count)]


def test_ordered_keys_are_a_line_with_a_band() -> None:
    for keys in ([(i,) for i in range(5)], days(4), [(0.5 * i,) for i in range(100)]):
        ax = made(keys).plot()
        assert len(ax.lines) == 1
        assert len(ax.collections) == 1
        assert ax.get_ylabel() == "n"
        band = ax.collections[0].get_paths()[0].get_extents()
        assert band.y1 - band.y0 > len(keys) - 1


def test_names_are_bars_with_whiskers() -> None:
    ax = made([("b",), ("a",), (None,)]).plot()
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["b", "a", "NULL"]
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([10.04, 11.04, 12.04])
    (spans,) = next(each for each in ax.containers if hasattr(each, "has_xerr")).lines[2]
    low, high = (point[0] for point in spans.get_segments()[0])
    interval = made([("b",)]).intervals[1]
    assert interval is not None
    assert (low, high) == pytest.approx(interval[0])


def test_two_keys_are_a_heat_map() -> None:
    ax = made([(i, s) for i in range(3) for s in "ab"][:5]).plot()
    table = ax.images[0].get_array()
    assert table.shape == (3, 2)
    assert table[1, 1] == pytest.approx(13.04)
    assert np.ma.is_masked(table) or np.isnan(table[2, 1])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b"]


def test_pictures_of_any_result(adult: Connection) -> None:
    assert len(made([(str(i),) for i in range(200)]).plot().patches) == MOST_BARS
    assert made([("a",), ("b",)], stddev=None).plot() is not None
    assert made([("a", "b", i) for i in range(3)]).plot().patches
    _, ax = pyplot.subplots()
    assert made([("a",)]).plot("N", ax=ax) is ax


@pytest.mark.parametrize("column", ["key0", "nothing", "\x1b"])
def test_other_columns_are_refused(column: str) -> None:
    with pytest.raises(dpsql.ProgrammingError, match="E_PLOT") as caught:
        made([("a",)]).plot(column)
    assert "\x1b" not in str(caught.value)
    with pytest.raises(dpsql.ProgrammingError, match="nothing to plot"):
        made([]).plot()
    with pytest.raises(dpsql.ProgrammingError, match="nothing to plot"):
        message("SET").plot()
