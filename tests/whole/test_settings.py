"""Every option is declared once, in dpsql/settings/table.py, and everything else follows."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.settings.kinds import Kind
from dpsql.settings.table import SETTINGS, OptionPlace, Setting, options_of, shown
from dpsql.ui.complete import complete_sql
from dpsql.ui.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
CATALOG = """
[budget]
epsilon = 1.0
delta = 0.0
[table.people]
source = "people.csv"
privacy_unit = "row"
[table.people.column]
sex = { type = "text", domain = ["F", "M"] }
"""


@pytest.fixture
def people(tmp_path: Path) -> Connection:
    (tmp_path / "people.csv").write_text("sex\nF\nM\n")
    (tmp_path / "people.toml").write_text(CATALOG)
    return dpsql.connect(tmp_path / "people.toml")


def listed(tree: ast.AST) -> list[list[str]]:
    """The tuples, lists and sets of two constants or more that are all names of options."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            constants = [each.value for each in node.elts if isinstance(each, ast.Constant)]
            if len(constants) > 1 and all(each in SETTINGS for each in constants):
                found.append([str(each) for each in constants])
    return found


def test_no_other_module_lists_options() -> None:
    assert listed(ast.parse("OPTIONS = (*SHARED, 'weight', 'clip')")) == [["weight", "clip"]]
    found = {
        str(path.relative_to(ROOT)): names
        for path in (ROOT / "dpsql").rglob("*.py")
        if path != ROOT / "dpsql" / "settings/table.py"
        and sum(f'"{name}"' in (text := path.read_text()) for name in SETTINGS) > 1
        and (names := listed(ast.parse(text)))
    }
    assert found == {}


def test_what_python_takes_is_declared() -> None:
    keywords = [*inspect.signature(dpsql.connect).parameters][1:-1]
    assert tuple(keywords) == options_of(OptionPlace.CONNECT)


def test_the_documents_name_every_option() -> None:
    """Beside the table that is made from the settings."""
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name != "sql.md"]
    guide = "".join(page.read_text("utf-8") for page in pages)
    named = r"`(--|SET |OPTIONS\(.*)?{}\b"
    assert [name for name in SETTINGS if not re.search(named.format(name), guide)] == []


def test_defaults_are_shown_and_can_be_set_again(people: Connection) -> None:
    before = people.settings
    assert [*before] == [*options_of(OptionPlace.SET)]
    assert before["epsilon"] == "not set"
    for name, text in before.items():
        if name != "epsilon":
            people.set(name, text)
    assert people.settings == before


def test_what_the_prompt_offers_is_taken(people: Connection) -> None:
    for name in options_of(OptionPlace.SET):
        for text in SETTINGS[name].kind.offered():
            people.set(name, text.strip("'"))
            assert people.settings[name] == text.strip("'")
            people.set("fresh", "off")


def plain(text: str, given: object) -> str | None:
    return text.lower() if text.lower() in ("plain", "fancy") else None


def test_a_new_option_is_one_entry(monkeypatch: pytest.MonkeyPatch, people: Connection) -> None:
    kind = Kind(plain, "one of plain, fancy", offered=lambda: ("'plain'", "'fancy'"), is_word=True)
    colour = Setting("colour", "how it looks", OptionPlace.SET | OptionPlace.SELECT, kind, "plain")
    monkeypatch.setitem(SETTINGS, "colour", colour)
    with dpsql.connect(people.catalog.path) as again:
        assert again.execute("SHOW colour").fetchall() == [("plain",)]
        again.execute("SET colour = Fancy")
        assert again.execute("SHOW colour").fetchall() == [("fancy",)]
        assert again.terms.values["colour"] == "fancy"
        with pytest.raises(dpsql.DataError, match="colour = red") as caught:
            again.execute("SET colour = 'red'")
        assert caught.value.hint == "one of plain, fancy"
        dp = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({}) COUNT(*) FROM people"
        with pytest.raises(dpsql.NotSupportedError) as near:
            again.execute(dp.format("color = 'plain'"))
        assert near.value.hint == "did you mean colour?"
        with pytest.raises(dpsql.NotSupportedError) as far:
            again.execute(dp.format("zzz = 1"))
        assert str(far.value.hint).endswith(", colour")
        with pytest.raises(dpsql.DataError, match="colour = red"):
            again.explain(dp.format("colour = 'red'"))
        script = f"{dp.format('colour = fancy')}; {dp.format('colour = plain')}"
        with pytest.raises(dpsql.ProgrammingError, match="differ in colour"):
            again.explain(script)
    assert "colour" in shown()
    words = Vocabulary()
    assert [c.text for c in complete_sql("SET col", words)] == ["colour"]
    assert [c.text for c in complete_sql("SHOW colo", words)] == ["colour"]
    assert [c.text for c in complete_sql("SET colour = ", words)] == ["'plain'", "'fancy'"]
