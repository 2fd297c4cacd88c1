"""The page in a real browser: one of them, on one server, from signing in to what was charged.

A browser costs ten CPU seconds: what can be seen without one is in ``test_page``.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from dpsql.dbapi.connection import Connection
from dpsql.interrupts import check
from dpsql.page import workers
from dpsql.page.json_shapes import Shape
from dpsql.page.serving import Page
from dpsql.relation.row_view import NO_LINES
from dpsql.server.users import Users
from tests.support.browser import open_browser, require_browser
from tests.support.paged import Knocker, paged
from tests.support.served import PASSWORD
from tests.support.tables import write_tables

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

pytestmark = pytest.mark.slow
T = TypeVar("T")
EVIL = "<img src=x onerror=window.caught=1>"
CATALOG = f"""
[budget]
epsilon = 100

[ledger]
anchor = "anchors"

[analyst.ana]
epsilon = 20

[analyst.bo]
epsilon = 5

[table.visits]
source = "visits.parquet"
privacy_unit = "row"

[table.visits.column]
ward = {{ type = "text", domain = ["eye", "surgery", "{EVIL}"] }}
day = {{ type = "date", domain = ["2024-01-01", "2024-12-31"], by = "month" }}

[table.letters]
source = "letters.csv"
privacy_unit = "row"

[table.letters.column]
ward = {{ type = "text", domain = ["eye", "surgery"] }}
"""
LETTERS = "ward,day\n" + "eye,1\n" * 50 + "eye,1,\n" * 9 + '"eye\n",1\n' + "eye\n"
"""The last eleven lines are no rows, nor is one in Latin-1."""
ROWS = {
    "visits": "SELECT CASE i % 3 WHEN 0 THEN 'eye' ELSE 'surgery' END AS ward,"
    " DATE '2024-01-01' + CAST(i % 366 AS INTEGER) AS day FROM range(1000) v(i)"
}
COUNT = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"


class Reader:
    """Somebody in front of the page, with eyes, a keyboard and patience."""

    def __init__(self, browser: Chrome, url: str, folder: Path) -> None:
        self.browser, self.url, self.folder = browser, url, folder

    def see(self, selector: str) -> WebElement:
        """What is shown by now under a selector."""

        def shown() -> WebElement | None:
            found = self.browser.find_elements("css selector", selector)
            return next((each for each in found if each.is_displayed()), None)

        return self.wait(shown, selector)

    def wait(self, look: Callable[[], T | None], what: str = "") -> T:
        from selenium.common.exceptions import StaleElementReferenceException

        end = time.monotonic() + 15
        while time.monotonic() < end:
            try:
                if found := look():
                    return found
            except StaleElementReferenceException:
                pass
            time.sleep(0.02)
        raise AssertionError(f"not seen: {what}")

    def text(self, selector: str) -> str:
        found: str = self.run(
            "return document.querySelector(arguments[0])?.innerText ?? ''", selector
        )
        return found

    def run(self, script: str, *given: object) -> Any:
        return self.browser.execute_script(script, *given)

    def type(self, *keys: str) -> None:
        """Press keys wherever the cursor is."""
        self.browser.switch_to.active_element.send_keys(*keys)

    def tab(self) -> None:
        """Go on by the keyboard alone, from an element that may not be on the screen, too."""
        from selenium.webdriver import ActionChains

        ActionChains(self.browser).send_keys(TAB).perform()

    def write(self, sql: str) -> None:
        """Put SQL into the editor, in place of what is there."""
        self.run(
            "document.querySelector('#editor').shadowRoot.querySelector('.cm-content').focus()"
        )
        self.type(CONTROL + "a")
        self.type(DELETE, sql, ESCAPE)

    def inside(self, script: str) -> Any:
        """Look into the editor."""
        return self.run(f"const it = document.querySelector('#editor').shadowRoot; return {script}")

    def enter(self, name: str, password: str = PASSWORD) -> None:
        self.see("[name=name]").send_keys(name)
        self.see("[name=password]").send_keys(password, ENTER)

    def offered(self) -> list[str]:
        """What completion offers, once it does."""
        listed = "[...it.querySelectorAll('.cm-completionLabel')].map((each) => each.textContent)"
        found = list(self.wait(lambda: self.inside(listed), "completion"))
        time.sleep(0.15)  # it takes no key before it has been there for a moment
        return found

    def overflows(self) -> list[str]:
        """What is wider than the window, of all that is shown."""
        found: list[str] = self.run(
            """const wide = document.documentElement.clientWidth;
            if (document.scrollingElement.scrollWidth <= wide) return [];
            const right = (each) => each.getBoundingClientRect().right;
            return [...document.querySelectorAll("*")].filter((each) => right(each) > wide + 1)
              .map((each) => each.outerHTML.slice(0, 80))"""
        )
        return found


CONTROL, DELETE, ENTER, ESCAPE, TAB = "\ue009", "\ue017", "\ue007", "\ue00c", "\ue004"
RIGHT = "\ue014"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    require_browser()
    folder = tmp_path_factory.mktemp("browsed")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STATE", "CACHE"):
            patch.setenv(f"XDG_{name}_HOME", str(folder / name))
        write_tables(folder, CATALOG, ROWS).close()
        (folder / "letters.csv").write_bytes(
            LETTERS.encode() + "f\u00fc\u00df,1\n".encode("latin-1")
        )
        (folder / "t.toml").rename(folder / "clinic.toml")
        users = Users(folder / "clinic.users")
        for name in ("ana", "bo"):
            users.put(name, PASSWORD, new=True)
        with paged(folder / "clinic.toml") as found:
            yield found


@pytest.fixture(scope="module")
def reader(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("browser")
    with open_browser(folder) as browser:
        yield Reader(browser, f"http://127.0.0.1:{page.port}/", folder)


def signing_in(reader: Reader) -> None:
    reader.browser.get(reader.url)
    reader.enter("ana", "wrong")
    assert "not right" in reader.wait(lambda: reader.text("#enter .wrong"))
    reader.run("document.querySelector('#enter').reset()")
    reader.enter("ana")
    assert reader.see("#gauge").text == "ε 20 of 20 left"
    assert reader.run("return document.cookie") == ""
    reader.wait(
        lambda: (
            "cm-content"
            in str(reader.run("return document.activeElement.shadowRoot?.activeElement?.className"))
        )
    )


def completion_knows_tables_columns_and_values(reader: Reader) -> None:
    reader.type("sel")
    assert "SELECT" in reader.offered()
    reader.type(ESCAPE, "ect ward, COUNT(*) AS n FROM vis")
    assert reader.offered() == ["visits"]
    reader.type(ENTER, " v WHERE v.w")
    assert reader.offered() == ["ward"]
    reader.type(ENTER, " = 's")
    assert reader.offered()[0] == "'surgery'"
    reader.type(ENTER)
    line = "it.querySelector('.cm-line').textContent"
    reader.wait(lambda: str(reader.inside(line)).endswith("WHERE v.ward = 'surgery'"), "surgery")
    reader.write("SELECT COUNT(*) FROM visits WHERE ward = ")
    reader.type("'")
    assert f"'{EVIL}'" in reader.offered()


def a_forecast_comes_by_itself_and_costs_nothing(reader: Reader) -> None:
    reader.write(COUNT)
    first = reader.see("#forecast .figure").text
    assert reader.see("#curve svg")
    reader.run(
        """const slide = document.querySelector("#slide");
        slide.value = 900; slide.dispatchEvent(new Event("input"))"""
    )
    second = reader.wait(lambda: {reader.text("#forecast .figure")} - {first, ""}).pop()
    amounts = [float(each.strip("± ").replace(",", "")) for each in (first, second)]
    assert amounts[0] > 10 * amounts[1]
    assert reader.text("#gauge").startswith("ε 20 of 20")
    epsilon = reader.see("#epsilon")
    epsilon.clear()
    epsilon.send_keys("50")
    assert "more than is left" in reader.see("#forecast .wrong").text
    epsilon.clear()
    epsilon.send_keys("0.1")
    reader.wait(lambda: reader.text("#forecast .figure") == first)


def what_is_wrong_is_underlined(reader: Reader) -> None:
    reader.write("SELECT COUNT(*) FROM visits WHERE nope = 1")
    assert "nope" in reader.see("#forecast .wrong").text
    assert reader.inside("it.querySelector('.cm-wrong').textContent") == "nope"


def running_shows_a_table_a_chart_and_a_file(reader: Reader) -> None:
    reader.write(COUNT)
    reader.type(CONTROL + ENTER)
    reader.see(".result table")
    reader.wait(lambda: reader.text("#gauge").startswith("ε 19.9 of 20"))
    cells = reader.run(
        "return [...document.querySelectorAll('.result tbody tr')].map((row) => row.innerText)"
    )
    assert [row.split("\t")[0] for row in cells] == ["eye", "surgery", EVIL]
    assert all("±" in row for row in cells)
    reader.see(".result [role=tab]").send_keys(RIGHT)
    reader.see(".result .plot svg")
    drawn = "return document.querySelectorAll('.plot {}').length"
    assert reader.run(drawn.format("path.whisker")) == 3
    assert reader.run(drawn.format("rect.bar")) == 3
    reader.see(".save").click()
    saved = reader.folder / "clinic-1.csv"
    lines = reader.wait(lambda: saved.read_text().splitlines() if saved.exists() else None)
    assert lines[0] == "ward,n,n__stddev"
    assert lines[3].startswith(EVIL)
    reader.type(CONTROL)  # nothing
    reader.write(COUNT)
    assert reader.wait(lambda: reader.text("#forecast .figure") == "Free")


def a_price_is_that_of_what_is_written(
    reader: Reader, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forecast that takes as long as it likes, and one that is not true."""
    figure = "return [...document.querySelectorAll('#forecast .figure, #curve svg')].length"
    reader.write(COUNT)
    reader.wait(lambda: reader.text("#forecast .figure") == "Free")
    slow = threading.Event()
    known = workers._forecast

    def wait(connection: Connection, text: str, epsilon: str) -> Shape:
        while not slow.is_set():
            check()
            slow.wait(0.01)
        return known(connection, text, epsilon)

    before = reader.text("#gauge")
    with monkeypatch.context() as patch:
        patch.setattr(workers, "_forecast", wait)
        reader.type(" WHERE day < '2024-07-01'")  # after GROUP BY: whatever it is, it is not free
        assert reader.run(figure) == 0
        reader.write("SELECT COUNT(*) AS unseen FROM visits")
        assert reader.run(figure) == 0
        slow.set()
        reader.wait(lambda: reader.run(figure))
        assert reader.text("#forecast .figure").startswith("±")
    with monkeypatch.context() as patch:
        patch.setattr(
            workers, "_forecast", lambda *given: known(*given) | {"free": True, "price": "0"}
        )
        reader.write("SELECT COUNT(*) AS unseen, 1 AS one FROM visits")
        reader.wait(lambda: reader.text("#forecast .figure") == "Free")
        reader.type(CONTROL + ENTER)
        assert "not 0 as was shown" in reader.wait(lambda: reader.text("#results .wrong"))
    assert reader.text("#gauge") == before
    reader.write(COUNT)


def a_script_and_what_charts_stand_upright(reader: Reader) -> None:
    reader.write("SELECT day, COUNT(*) AS n FROM visits GROUP BY day; SHOW tables")
    reader.see("#run").click()
    reader.wait(lambda: len(reader.browser.find_elements("css selector", ".result")) == 2)
    reader.browser.find_elements("css selector", ".result [role=tab]")[1].click()
    reader.see(".plot svg")
    assert reader.run("return document.querySelectorAll('.plot path.whisker').length") == 12


def hostile_words_stay_words(reader: Reader) -> None:
    for sql in (
        f'SELECT COUNT(*) AS "{EVIL}" FROM visits',
        f"SELECT {EVIL}",
        f"-- {EVIL}\n{COUNT}",
        'SELECT COUNT(*) AS "a\u202eb\u200b\u3164" FROM visits',
    ):
        reader.write(sql)
        reader.see("#run").click()
        reader.wait(lambda: not reader.run("return document.querySelector('#run').disabled"))
    assert "a\\u202eb\\u200b\\u3164" in reader.text("#results")
    reader.see("#to-history").click()
    assert EVIL in reader.wait(lambda: reader.text("#history .ledger"))
    assert not {"\u202e", "\u200b", "\u3164"} & set(reader.text("main"))
    reader.see("#to-ask").click()
    assert reader.run("return [window.caught, document.querySelectorAll('main img').length]") == [
        None,
        1,
    ]
    told = reader.run(
        """const told = [], script = document.createElement("script");
        const tries = [() => { document.body.innerHTML = "<b>x</b>"; },
          () => { script.text = "window.caught = 2"; document.head.append(script); }];
        for (const each of tries)
          try { each(); told.push("done"); } catch (error) { told.push("refused"); }
        const style = document.createElement("style");
        style.textContent = "body { display: none }";
        document.head.append(style);
        return [told, window.caught, getComputedStyle(document.body).display]"""
    )
    assert told == [["refused"] * 2, None, "block"]


def nothing_is_wider_than_the_window(reader: Reader, width: int) -> None:
    narrow = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    reader.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    for view in ("history", "ask"):
        reader.see(f"#to-{view}").click()
        reader.see(f"#{view}")
        assert reader.overflows() == []
    reader.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def keys_reach_everything(reader: Reader) -> None:
    reader.write(COUNT)
    reached = set()
    for _ in range(30):
        reader.tab()
        reached.add(
            reader.run("return document.activeElement.id || document.activeElement.tagName")
        )
    assert {"slide", "epsilon", "run", "to-history", "theme", "leave"} <= reached


def an_answer_names_lines_that_are_no_rows(reader: Reader, table: str) -> None:
    """Of CSV they are named, and of Parquet, which has no lines, they are not."""
    reader.write(f"SELECT ward, COUNT(*) AS of_{table} FROM {table} GROUP BY ward")
    reader.type(CONTROL + ENTER)
    reader.wait(lambda: f"of_{table}" in reader.text(".result table"), table)
    notes = [each.text for each in reader.browser.find_elements("css selector", ".notes li")]
    undeclared = "rows with undeclared ward are left out"
    lines = f"{NO_LINES}; " if table == "letters" else ""
    assert f"{table}: {lines}{undeclared}" in notes
    assert sum(NO_LINES in each for each in notes) == (table == "letters")


def a_visit_that_has_ended_leads_back_to_the_door(reader: Reader, page: Page) -> None:
    reader.run(
        "fetch('/api/leave', {method: 'POST', body: '{}', headers: {'X-Dpsql': 'page',"
        " 'Content-Type': 'application/json'}})"
    )
    reader.wait(lambda: len(page.visits) == 0)
    # A forecast under way may have led there by now: a script clicks on what is hidden too.
    reader.run("document.querySelector('#to-history').click()")
    reader.see("#door")
    assert reader.run("return document.querySelector('.result')") is None


def the_curator_sees_budgets_and_requests(reader: Reader, page: Page) -> None:
    bo = Knocker(page.port)
    bo.enter("bo")
    bo.run("SELECT COUNT(*) AS of_bo FROM visits", "0.5")
    reader.enter("cora")
    reader.wait(lambda: "of_bo" in reader.text("#curator .ledger"))
    assert "ε 4.5 of 5 left" in reader.text("#curator .budgets")
    assert not reader.browser.find_element("css selector", "#to-ask").is_displayed()
    reader.see("#filter").send_keys("of_bo")
    reader.wait(lambda: len(reader.text("#curator tbody").splitlines()) == 1)


def nothing_was_asked_of_another_machine_nor_against_the_policy(reader: Reader) -> None:
    log = [json.loads(each["message"])["message"] for each in reader.browser.get_log("performance")]  # type: ignore[no-untyped-call]
    sent = {
        each["params"]["request"]["url"]
        for each in log
        if each["method"] == "Network.requestWillBeSent"
    }
    assert len(sent) > 10
    assert {
        each
        for each in sent
        if not each.startswith((reader.url, "data:", "chrome:", "chrome-untrusted:"))
    } == set()
    said = [each["message"] for each in reader.browser.get_log("browser")]  # type: ignore[no-untyped-call]
    planted = ("innerHTML", "Trusted", "inline", "401")
    assert [each for each in said if not any(word in each for word in planted)] == []


def test_the_page_from_the_door_to_the_curator(
    reader: Reader, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One visit, each part of which begins where the one before has left the page."""
    signing_in(reader)
    completion_knows_tables_columns_and_values(reader)
    a_forecast_comes_by_itself_and_costs_nothing(reader)
    what_is_wrong_is_underlined(reader)
    running_shows_a_table_a_chart_and_a_file(reader)
    a_price_is_that_of_what_is_written(reader, page, monkeypatch)
    a_script_and_what_charts_stand_upright(reader)
    hostile_words_stay_words(reader)
    for width in (360, 700, 1360):
        nothing_is_wider_than_the_window(reader, width)
    keys_reach_everything(reader)
    for table in ("letters", "visits"):
        an_answer_names_lines_that_are_no_rows(reader, table)
    a_visit_that_has_ended_leads_back_to_the_door(reader, page)
    the_curator_sees_budgets_and_requests(reader, page)
    nothing_was_asked_of_another_machine_nor_against_the_policy(reader)
