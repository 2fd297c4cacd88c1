"""Completion and highlighting, as functions of the text before the cursor."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.catalog import Catalog
from dpsql.ui.complete import Vocabulary, complete_sql, tokens

CATALOG = """
[budget]
epsilon = 1.0
delta = 0.0
[table.people]
source = "people.csv"
privacy_unit = "row"
[table.people.column]
sex = { type = "text", domain = ["Female", "Male"], null = true }
name = { type = "text", domain = ["O'Neil", "Oz"] }
age = { type = "integer", domain = [17, 90] }
seen = { type = "date", domain = ["2024-01-01", "2024-03-31"], by = "month" }
"""


@pytest.fixture
def words(tmp_path: Path) -> Vocabulary:
    (tmp_path / "people.csv").write_text("sex\n")
    (tmp_path / "people.toml").write_text(CATALOG)
    return Vocabulary.of(Catalog.load(tmp_path / "people.toml"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SEL", ["SELECT"]),
        ("SELECT 1; sh", ["show"]),
        ("SELECT fi", ["filter"]),
        ("sel", ["select"]),
        ("SELECT ag", ["age"]),
        ("SELECT COUNT(*) FROM ", ["people"]),
        ("SELECT COUNT(*) FROM pe", ["people"]),
        ("... WHERE sex = ", ["'Female'", "'Male'"]),
        ("... WHERE sex = 'F", ["'Female'"]),
        ("... WHERE SEX <> 'm", ["'Male'"]),
        ("... WHERE name IN ('O", ["'O''Neil'", "'Oz'"]),
        ("... WHERE name IN ('Oz', ", ["'O''Neil'", "'Oz'"]),
        ("... WHERE name NOT LIKE 'Oz", ["'Oz'"]),
        ("... WHERE age >= 8", ["80", "81", "82", "83", "84", "85", "86", "87", "88", "89"]),
        ("... WHERE seen < '2024-02", ["'2024-02-01'"]),
        ("... WHERE height = 'F", []),
        ("SET no", ["noise", "nonnegative"]),
        ("SET noise = ", ["'laplace'", "'gaussian'", "'auto'"]),
        ("SHOW bu", ["budget"]),
        ("", []),
    ],
)
def test_what_can_come_next(words: Vocabulary, text: str, expected: list[str]) -> None:
    found = [c.text for c in complete_sql(text, words)]
    assert [one for one in found if one not in ("8",)] == expected


def test_a_completion_replaces_what_was_typed(words: Vocabulary) -> None:
    (only,) = complete_sql("... sex = 'Fe", words)
    assert (only.replaces, only.kind) == (3, "value")


@pytest.mark.parametrize(
    "text", ["SELECT 'it''s' -- x\nFROM \"a b\" /* y */ WHERE n > 1.5e3;", "'open", "/* open", "é$"]
)
def test_tokens_spell_the_text(text: str) -> None:
    assert "".join(token for _, token in tokens(text)) == text
