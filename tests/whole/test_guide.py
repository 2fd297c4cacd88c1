"""Every SQL and Python example about the demonstration data works as it is written."""

from __future__ import annotations

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
from dpsql.sql.lexemes import split_statements
from tests.support.pages import DOCS, ROOT, blocks, name
from tests.support.seam import zero_noise

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


def answered(connection: Connection, sql: str) -> Result | Error:
    """The answer to a statement, or its refusal."""
    try:
        return connection.execute(sql).result
    except Error as error:
        return error


def test_sessions_at_the_prompt(opened: Callable[[str], Connection]) -> None:
    """What is typed in a session has the columns, or the refusal, that are shown under it."""
    seen = 0
    for block in [each for page in DOCUMENTS for each in blocks(page, "") if "ε 99> " in each]:
        typed = re.findall(r"^(?:adult ε [\d.]+|   \.\.\.)> (.*)$", block, re.MULTILINE)
        for fragment in split_statements("\n".join(typed)):
            seen += 1
            answer = answered(opened("adult"), fragment.body)
            if isinstance(answer, Error):
                assert f"error: {answer.message} [{answer.code}]" in block
            else:
                shown = (*answer.columns, *(str(row[0]) for row in answer.rows))
                assert all(re.search(f"│ +{re.escape(each)} ", block) for each in shown)
    assert seen == 3


@pytest.mark.parametrize("document", [p for p in DOCUMENTS if blocks(p, "python")], ids=name)
def test_python_examples(
    demo: Path, document: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(demo)
    for block in blocks(document, "python"):
        exec(block.replace("build/demo/", ""), {})
    assert "Female" in capsys.readouterr().out
