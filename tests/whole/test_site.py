"""The documentation site: every key, command and code is in it, its links lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import dpsql.ui.commands  # noqa: F401  registers them
from dpsql.catalog.read import BUDGET_KEYS, COLUMN_KEYS, TABLE_KEYS
from dpsql.ui.command import COMMANDS
from tests.support.pages import PAGES as WRITTEN
from tests.support.pages import ROOT, fences

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "decisions")
MADE = ("reference/", "decisions/index")


@pytest.mark.parametrize(
    ("heading", "keys"),
    [
        ("## [budget]", BUDGET_KEYS),
        ("## [table.NAME]", TABLE_KEYS),
        ("## [table.NAME.column]", COLUMN_KEYS),
    ],
)
def test_every_key_of_a_catalog_is_told(heading: str, keys: tuple[str, ...]) -> None:
    text = (DOCS / "catalog.md").read_text("utf-8")
    section = text.split(heading + "\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(keys)


def test_every_command_and_code_has_a_place() -> None:
    pages = runpy.run_path(str(DOCS / "reference.py"))["PAGES"]
    commands = pages["reference/commands.md"]()
    assert len(COMMANDS) > 15
    assert all(f"`.{name}" in commands for name in COMMANDS)
    errors = pages["reference/errors.md"]()
    assert errors.count("\n## E_") > 60
    assert errors.count("```sql") > 20
    assert "`epsilon`" in pages["reference/options.md"]()


def anchors(page: Path) -> set[str]:
    """The anchors of a page, one for each heading, as GitHub and the site write them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", head.replace("`", "").lower()) for head in heads]
    return {head.replace(" ", "-") for head in plain}


def test_links_and_contents_lead_to_places_that_are_there() -> None:
    for page in [*PAGES, DOCS.parent / "README.md"]:
        text = page.read_text("utf-8")
        links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", text)
        for block in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL):
            links += [(f"{line}.md", "") for line in block.split("\n") if line and line[0] != ":"]
        for link, anchor in links:
            if not link.startswith(MADE):
                target = page.parent / link if link else page
                assert target.exists(), (page.name, link)
                assert not anchor or anchor in anchors(target), (page.name, link, anchor)


def test_no_block_of_code_is_wider_than_the_site() -> None:
    """Long lines wrap there; a table in a box, or a picture, would fall apart."""
    for page in WRITTEN:
        if page.name in ("sql.md", "server.md"):
            continue  # made from grammar/, and a unit of systemd
        for _kind, text in fences(page):
            widest = max(text.split("\n"), key=len)
            drawn = re.search("[│┌▶]", widest)
            assert len(widest) <= (88 if drawn else 110), (page.name, widest)


def test_programs_that_print_figures_are_there() -> None:
    text = "\n".join(page.read_text("utf-8") for page in WRITTEN)
    named = set(re.findall(r"python -m ((?:benchmarks|tests)(?:\.\w+)*)", text))
    assert len(named) > 15
    for program in named:
        path = ROOT / program.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), program


def test_words_of_the_house_lead_to_their_explanation() -> None:
    conf = (DOCS / "conf.py").read_text("utf-8").split("\nWORDS = ")[1]
    made: dict[str, Any] = {"re": re, "Any": Any}
    exec("WORDS = " + conf, made)
    assert set(made["WORDS"]) <= anchors(DOCS / "words.md")
    text = "# A cell\n\n`cell` and [a cell](x.md)\n```\ncell\n```\nA Cell, a cell.\n"
    linked = text.replace("A Cell,", "A [Cell](../words.md#cell),")
    assert made["link_words"]("howto/any", text) == linked
    for page in PAGES:
        name = str(page.relative_to(DOCS).with_suffix(""))
        text = page.read_text("utf-8")
        there = re.sub(r"\[([^\]]*)\]\((?:\.\./)?words\.md#[\w-]+\)", r"\1", text)
        back = re.sub(
            r"\[([^\]]*)\]\((?:\.\./)*words\.md#[\w-]+\)", r"\1", made["link_words"](name, text)
        )
        assert back == there, name


def test_every_page_is_in_the_contents() -> None:
    listed = set(re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text("utf-8"), re.MULTILINE))
    names = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES}
    made = {name for name in names if name.startswith(MADE)}
    assert names - made - {"index", "forms"} <= listed
