"""Completion and highlighting, as functions of the text before the cursor."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dpsql.catalog.read import read_catalog
from dpsql.ui.complete import complete_sql
from dpsql.ui.highlight import tokens
from dpsql.ui.streams import file_names
from dpsql.ui.vocabulary import Vocabulary

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
    return Vocabulary.of(read_catalog(tmp_path / "people.toml"))


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


MORE = """
[budget]
epsilon = 1.0
delta = 0.0
[table.people]
source = "people.csv"
privacy_unit = "row"
[table.people.column]
age = { type = "integer", domain = [17, 90] }
zip = { type = "integer", domain = [10000, 99999] }
note = { type = "text", domain = ["Oz", "a  b", "it's"] }
[table.visits]
source = "visits.csv"
privacy_unit = "row"
[table.visits.column]
age_at_visit = { type = "integer", domain = [0, 9] }
ward = { type = "text", domain = ["A", "B"] }
[view.old]
sql = "SELECT * FROM people WHERE age > 80"
"""


@pytest.fixture
def two(tmp_path: Path) -> Vocabulary:
    for name in ("people", "visits"):
        (tmp_path / f"{name}.csv").write_text("age\n")
    (tmp_path / "two.toml").write_text(MORE)
    return Vocabulary.of(read_catalog(tmp_path / "two.toml"))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("SELECT ag", " FROM visits", ["age_at_visit"]),
        ("SELECT ag", " FROM people;", ["age"]),
        ("SELECT ag", "; SELECT ward FROM visits", ["age", "age_at_visit"]),
        ("SELECT 1 FROM visits; SELECT ag", " FROM people", ["age"]),
        ("SELECT COUNT(*) FROM visits v WHERE v.w", "", ["ward"]),
        ("SELECT COUNT(*) FROM visits AS v JOIN people p ON p.", "", ["age", "zip", "note"]),
        ("SELECT COUNT(*) FROM visits v WHERE v.ward = ", "", ["'A'", "'B'"]),
        ("SELECT 'FROM people', wa", " FROM visits", ["ward"]),
        ("SELECT COUNT(*) FROM o", "", ["old"]),
        ("... WHERE zip = 9999", "", [f"9999{i}" for i in range(10)]),
        ("... WHERE note = 'a  ", "", ["'a  b'"]),
        ("... WHERE note = 'it", "", ["'it''s'"]),
        ("SELECT COUNT(*) FROM people;", "", []),
        ("SELECT COUNT(*) FROM people WHERE note = 'Oz'", "", []),
        ("SELECT COUNT(*) FROM people -- a", "", []),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(max_s", "", ["max_stddev = "]),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, cl", "", ["clip = "]),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(noise = 'l", "", ["'laplace'"]),
        ("CREATE SYNTHETIC TABLE s FROM people OPTIONS (mod", "", ["model = "]),
        ("CREATE DOMAIN d FROM people (note) OPTIONS (disc", "", ["discovery_delta = "]),
    ],
)
def test_names_are_those_of_the_tables_that_are_asked(
    two: Vocabulary, before: str, after: str, expected: list[str]
) -> None:
    assert [found.text for found in complete_sql(before, two, after)] == expected


def test_no_text_stops_completion(two: Vocabulary) -> None:
    random_ = random.Random(5)
    pieces = [
        "SELECT ",
        "people ",
        "'",
        '"',
        "(",
        "OPTIONS",
        "v.",
        "=",
        ";",
        "--",
        "/*",
        "zip",
        "\n",
    ]
    for _ in range(300):
        text = "".join(random_.choices(pieces, k=random_.randrange(9)))
        assert all(len(c.text) >= 1 for c in complete_sql(text, two, text))


def test_files_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b.sql").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / ".hidden").write_text("")
    monkeypatch.chdir(tmp_path)
    assert file_names("") == ["'a b.sql'", "folder/"]
    assert file_names(".h") == [".hidden"]
    assert file_names("fol") == ["folder/"]
    assert file_names(f"{tmp_path}/f") == [f"{tmp_path}/folder/"]
    assert file_names("no/such/place") == []


def test_a_completion_replaces_what_was_typed(words: Vocabulary) -> None:
    (only,) = complete_sql("... sex = 'Fe", words)
    assert (only.replaces, only.kind) == (3, "value")


@pytest.mark.parametrize(
    "text", ["SELECT 'it''s' -- x\nFROM \"a b\" /* y */ WHERE n > 1.5e3;", "'open", "/* open", "é$"]
)
def test_tokens_spell_the_text(text: str) -> None:
    assert "".join(token for _, token in tokens(text)) == text
