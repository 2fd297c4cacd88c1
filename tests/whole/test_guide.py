"""Every SQL and Python example of the guide and the README works as it is written."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.sql.lexemes import split_statements
from tests.support.seam import zero_noise

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    """The fenced examples of a document in one language."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


STATEMENTS = [
    fragment.body
    for document in ("docs/guide.md", "README.md")
    for block in blocks(document, "sql")
    for fragment in split_statements(block)
]


def test_there_are_examples() -> None:
    assert len(STATEMENTS) >= 20
    assert blocks("docs/guide.md", "python")


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


@pytest.mark.parametrize("document", ["docs/guide.md", "README.md"])
def test_python_examples(
    demo: Path, document: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(demo)
    for block in blocks(document, "python"):
        exec(block.replace("build/demo/", ""), {})
    assert "Female" in capsys.readouterr().out
