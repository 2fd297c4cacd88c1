"""The documentation site: every key, command and code is in it, its links lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import dpsql.ui.commands  # noqa: F401  registers them
from dpsql.catalog.read import BUDGET_KEYS, COLUMN_KEYS, TABLE_KEYS
from dpsql.ui.command import COMMANDS

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


def test_links_and_contents_lead_to_pages_that_are_there() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        links = re.findall(r"\]\((?!https?:)([^)#\s]+)[^)\s]*\)", text)
        for block in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL):
            links += [f"{line}.md" for line in block.split("\n") if line and line[0] not in ":"]
        for link in links:
            if not link.startswith(MADE):
                assert (page.parent / link).exists(), (page.name, link)


def test_every_page_is_in_the_contents() -> None:
    listed = set(re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text("utf-8"), re.MULTILINE))
    names = {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES}
    made = {name for name in names if name.startswith(MADE)}
    assert names - made - {"index", "forms"} <= listed
