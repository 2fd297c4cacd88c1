"""Every SQL and Python example about the demonstration data works as it is written."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

import dpsql
from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection
from dpsql.errors import Error
from dpsql.sql.text.lexemes import split_statements
from dpsql.ui.formats import Style, encode
from dpsql.ui.grid import Grid
from tests.support.pages import DOCS, ROOT, blocks, fences, name
from tests.support.seam import zero_noise
from tests.support.shown import WIDE, assert_shown

pytestmark = pytest.mark.slow

README = ROOT / "README.md"
NAMES = ("guide", "sums", "options", "python", "analyst", "statistician", "index")
DOCUMENTS = [README, *(DOCS / f"{name}.md" for name in NAMES)]

STATEMENTS = [
    fragment.body
    for document in DOCUMENTS
    for block in blocks(document, "sql")
    for fragment in split_statements(block)
]


def test_there_are_examples() -> None:
    assert len(STATEMENTS) >= 40


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Connection]]:
    """A connection to each demonstration catalog, opened once, that measures all anew."""
    folder = tmp_path_factory.mktemp("guide") / "demo"
    shutil.copytree(ROOT / "demo_data", folder)
    with ExitStack() as stack:

        @cache
        def connect(name: str) -> Connection:
            found = stack.enter_context(dpsql.connect(folder / f"{name}.toml", epsilon=0.5))
            found.set("fresh", "on")
            return found

        yield connect


@pytest.mark.parametrize("sql", STATEMENTS)
def test_sql_examples(opened: Callable[[str], Connection], sql: str) -> None:
    found = re.search(r"FROM (\w+)", sql)
    assert found is not None
    with zero_noise():
        assert opened(found.group(1)).execute(sql).fetchall()


def printed(connection: Connection, sql: str) -> str:
    """The answer to a statement, or its refusal, as the prompt prints it."""
    try:
        answer = connection.execute(sql).result
    except Error as error:
        return f"error: {error}"
    assert isinstance(answer, Result)
    notes = [f"note: {note}" for note in answer.notes]
    table = encode(Grid.of(answer), "box", Style()).decode()
    return "\n".join([table, *notes, "charged ε 0.5 (laplace)"])


def shown(page: Path) -> Iterator[tuple[str, str]]:
    """Yield statements of a page, each with what the page shows under it."""
    asked = ""
    for language, text in fences(page):
        if language == "sql":
            asked = text
        elif language == "" and (typed := re.split(r"^adult ε [\d.]+> ", text, flags=re.M)[1:]):
            for each in typed:
                lines = each.splitlines(keepends=True)
                end = next(i for i, line in enumerate(lines, 1) if line.endswith(";\n"))
                yield "".join(lines[:end]).replace("   ...> ", ""), "".join(lines[end:])
        elif language == "" and "┌" in text:
            yield asked, text


SHOWN = [(name(page), *each) for page in DOCUMENTS for each in shown(page)]


@pytest.mark.parametrize(("page", "sql", "answer"), SHOWN)
def test_answers_are_those_on_the_page_but_for_the_noise(
    opened: Callable[[str], Connection], page: str, sql: str, answer: str
) -> None:
    with zero_noise():
        assert_shown(answer, printed(opened("adult"), sql))


def test_answers_are_shown_on_three_pages() -> None:
    assert {page for page, _, _ in SHOWN} == {"README.md", "docs/analyst.md", "docs/index.md"}


def test_a_report_is_the_one_on_the_page_but_for_the_noise(
    opened: Callable[[str], Connection],
) -> None:
    page = DOCS / "options.md"
    ((sql, wanted),) = [
        (before, text)
        for (_, before), (language, text) in itertools.pairwise(fences(page))
        if language == "json"
    ]
    with zero_noise():
        ((told,),) = opened("adult").execute(sql).fetchall()
    report, found = json.loads(wanted), json.loads(told)
    error = report["result"]["standard_deviation"]
    assert abs(report["result"].pop("value") - found["result"].pop("value")) < WIDE * error
    assert report["bounding_report"] == found["bounding_report"]
    for part, facts in report["result"].items():
        assert facts == pytest.approx(found["result"][part], rel=1e-5)


@pytest.mark.parametrize("document", [p for p in DOCUMENTS if blocks(p, "python")], ids=name)
def test_python_examples(
    demo: Path, document: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(demo)
    for block in blocks(document, "python"):
        exec(block.replace("build/demo/", ""), {})
    assert "Female" in capsys.readouterr().out
