"""The report in a real browser: wide and narrow, light and dark, and on paper."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dpsql
from dpsql.ui.report import BatchAnswer, BatchReport, name_answer
from dpsql.ui.report_page import render_report
from tests.support.browser import open_browser
from tests.support.seam import zero_noise

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.slow

SQL = """
SELECT sex, COUNT(*) AS people FROM adult GROUP BY sex;
SELECT age, COUNT(*) AS people FROM adult GROUP BY age;
SELECT education, occupation, COUNT(*) AS people FROM adult GROUP BY education, occupation;
"""
OVERFLOW = "return document.scrollingElement.scrollWidth - window.innerWidth"
INK = "return getComputedStyle(document.body)[arguments[0]].match(/\\d+/g).map(Number)"


@pytest.fixture
def browser(adult: Path, tmp_path: Path) -> Iterator[Chrome]:
    """A browser that shows the report of three statements."""
    with zero_noise(), dpsql.connect(adult, epsilon=1) as connection:
        forecast = connection.explain(SQL)
        cursor = connection.executescript(SQL)
        results = [cursor.result]
        while cursor.nextset():
            results.append(cursor.result)
    answers = tuple(
        BatchAnswer(name_answer(number, result), None, result)
        for number, result in enumerate(results, start=1)
    )
    facts = ("2", "2026-01-31", ("each row of adult",))
    page = tmp_path / "report.html"
    page.write_bytes(
        render_report(BatchReport("tour.sql", "adult.toml", forecast, answers, *facts))
    )
    with open_browser(tmp_path) as browser:
        browser.get(page.as_uri())
        yield browser


def test_the_page(browser: Chrome) -> None:
    check_screens(browser)
    check_links(browser)
    said: list[object] = browser.get_log("browser")  # type: ignore[no-untyped-call]
    assert said == []


def check_screens(browser: Chrome) -> None:
    charts = browser.execute_script("return document.querySelectorAll('figure svg').length")
    assert charts == 4  # the forecast, bars, a line and a heat map
    for width in (1360, 360):
        browser.set_window_size(width, 900)
        assert browser.execute_script(OVERFLOW) <= 0, width
        assert len(base64.b64decode(browser.get_screenshot_as_base64())) > 20_000
    for scheme, is_dark in (("light", False), ("dark", True)):
        wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
        back, ink = (
            sum(browser.execute_script(INK, name)) for name in ("backgroundColor", "color")
        )
        assert (back < ink) == is_dark
        assert abs(back - ink) > 450
    paper = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    assert base64.b64decode(paper["data"]).startswith(b"%PDF")


def check_links(browser: Chrome) -> None:
    links = "return [...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))"
    found = browser.execute_script(links)
    there = "return arguments[0].filter(id => document.getElementById(id)).length"
    assert browser.execute_script(there, found) == len(found) == 3
    carried = browser.execute_script("return document.querySelector('a.csv').href").split(",")[1]
    rows = base64.b64decode(carried).decode().split()
    assert rows[0] == "sex,people,people_stddev"
    assert len(rows) == 3
