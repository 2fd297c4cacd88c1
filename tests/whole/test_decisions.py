"""Records of decisions: half a page each, in the index once, about files that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.pages import DOCS, ROOT

FOLDER = DOCS / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
INDEX = (FOLDER / "README.md").read_text("utf-8")
PARTS = ["Status", "Context", "Decision", "Consequences"]
MOST_WORDS = 260
VAGUE = ("Whether", "How", "What", "That", "It", "All")
"""First words of a title that tells no decision."""

PLACES = (ROOT, ROOT / "dpsql", DOCS)
"""Folders that a path in a record may be relative to."""


def title(text: str) -> str:
    """The title of a record, without its number."""
    found = re.match(r"# \d+\. (.+)\n", text)
    assert found, text[:60]
    return found[1]


def words(text: str) -> int:
    """The number of words of a record; marks alone are none."""
    return sum(bool(re.search(r"\w", each)) for each in text.split())


def anchors(page: Path) -> set[str]:
    """The anchors of a page, one for each heading."""
    heads = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def paths(text: str) -> list[str]:
    """The paths among the names in backticks; those of requests begin with a slash."""
    return re.findall(r"`([A-Za-z_][\w.-]*(?:/[\w.-]+)+/?|\w+\.py|[a-z]+/)`", text)


def test_each_has_four_parts_a_title_and_half_a_page() -> None:
    assert len(RECORDS) > 150
    for record in RECORDS:
        text = record.read_text("utf-8")
        assert text.startswith(f"# {int(record.name[:4])}. "), record.name
        assert title(text).split()[0] not in VAGUE, record.name
        assert re.findall(r"^\*\*(\w[\w ]*)\.\*\*", text, re.MULTILINE) == PARTS, record.name
        assert words(text) <= MOST_WORDS, (record.name, words(text))


def test_each_is_in_the_index_once_in_a_room_that_there_is() -> None:
    listed = re.findall(r"^- \[(\d+)\]\(([\w-]+\.md)\) (.+)$", INDEX, re.MULTILINE)
    assert sorted(name for _, name, _ in listed) == [record.name for record in RECORDS]
    assert len({record.name[:4] for record in RECORDS}) == len(RECORDS)
    for number, name, line in listed:
        assert name.startswith(f"{number:0>4}-"), name
        assert line.startswith(title((FOLDER / name).read_text("utf-8"))), name
    rooms = re.findall(r"^## `([\w/]+)`", INDEX, re.MULTILINE)
    assert len(rooms) > 15
    assert [room for room in rooms if not (ROOT / "dpsql" / room).is_dir()] == []


def test_what_is_superseded_says_by_what_here_and_in_the_index() -> None:
    seen = 0
    for record in RECORDS:
        status = record.read_text("utf-8").split("**Context.**")[0]
        superseded = "Superseded" in status
        assert not superseded or re.search(r"Superseded[^.]*\]\(\d", status), record.name
        assert superseded == bool(re.search(rf"\({record.name}\).*\(superseded", INDEX))
        seen += superseded
    assert seen > 5


def test_paths_programs_and_links_lead_to_what_is_there() -> None:
    assert (
        len(paths("`sql/names.py`, `logical/bind/`, `settings/table.py`; `/health`, `a / b`")) == 3
    )
    faults = list[tuple[str, str]]()
    for record in RECORDS:
        text = record.read_text("utf-8")
        named = [name for name in paths(text) if not any((at / name).exists() for at in PLACES)]
        for module in re.findall(r"`python -m ([\w.]+)", text):
            at = ROOT / module.replace(".", "/")
            named += [module] * (not at.is_dir() and not at.with_suffix(".py").exists())
        for link, anchor in re.findall(r"\]\((?!http)([^)#\s]+)(?:#([^)\s]*))?\)", text):
            page = FOLDER / link
            if not page.exists() or (anchor and anchor not in anchors(page)):
                named.append(f"{link}#{anchor}")
        for name, module in re.findall(r"`(\w+)` (?:in|of) `([\w/.]+\.py)`", text):
            for at in (folder / module for folder in PLACES if (folder / module).exists()):
                known = re.findall(r"\w+", at.read_text("utf-8"))
                named += [f"{module}: {name}"] * (name not in known)
        faults += [(record.name, name) for name in named]
    assert faults == []
