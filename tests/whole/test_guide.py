"""Every SQL and Python example of the guide and the README works as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dpsql
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


@pytest.mark.parametrize("sql", STATEMENTS)
def test_sql_examples(demo: Path, sql: str) -> None:
    found = re.search(r"FROM (\w+)", sql)
    assert found is not None
    with zero_noise(), dpsql.connect(demo / f"{found.group(1)}.toml", epsilon=0.5) as connection:
        assert connection.execute(sql).fetchall()


@pytest.mark.parametrize("document", ["docs/guide.md", "README.md"])
def test_python_examples(
    demo: Path, document: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(demo)
    for block in blocks(document, "python"):
        exec(block.replace("build/demo/", ""), {})
    assert "Female" in capsys.readouterr().out
