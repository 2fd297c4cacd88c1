"""The documentation site: these pages, and reference pages made from the code (`make docs`)."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from dpsql import __version__

HERE = Path(__file__).parent

project = "dpsql"
author = "the dpsql developers"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
exclude_patterns = ["forms.md", "decisions/README.md"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autoclass_content = "class"

html_theme = "furo"
html_title = "dpsql"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
# Pages link to files of the repository, which are no pages of the site.
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]

runpy.run_path(str(HERE / "reference.py"))["write_all"](HERE)

WORDS = {
    "analyst": "analysts?",
    "anchor": "anchors?",
    "bin": "bins?",
    "cell": "cells?",
    "curator": "curators?",
    "ledger": "ledgers?",
    "marginal": "marginals?",
    "measure": "measure[sd]?",
    "privacy-unit": "privacy units?",
    "public-table": "public tables?",
    "release": "release[sd]?",
    "standard-error": "standard errors?",
    "strategy": "strategy|strategies",
    "synthetic-table": "synthetic tables?",
    "workload": "workloads?",
}
"""Words of docs/words.md, by the anchor of their heading, as they stand in a text."""

UNLINKED = ("words", "architecture", "index", "decisions/", "reference/")


def link_words(name: str, text: str) -> str:
    """Make a link to its explanation of the first place of each of WORDS on a page.

    Code, headings, links and blocks stay as they are.
    """
    if name.startswith(UNLINKED):
        return text
    folder = "../" * name.count("/")
    left = dict(WORDS)

    def link(prose: str) -> str:
        for anchor, pattern in list(left.items()):
            found = re.search(rf"(?<![\w'-])(?:{pattern})(?![\w'-])", prose, re.IGNORECASE)
            if found is not None:
                del left[anchor]
                made = f"[{found[0]}]({folder}words.md#{anchor})"
                before, after = prose[: found.start()], prose[found.end() :]
                return link(before) + made + link(after)
        return prose

    kept = r"(^```.*?^```$|^#.*?$|^\|[-|]+\|$|`[^`\n]*`|!?\[[^\]]*\]\([^)]*\))"
    parts = re.split(kept, text, flags=re.MULTILINE | re.DOTALL)
    return "".join(link(part) if i % 2 == 0 else part for i, part in enumerate(parts))


def setup(app: Any) -> None:
    """Link words when a page is read."""

    def read(app: Any, name: str, source: list[str]) -> None:
        source[0] = link_words(name, source[0])

    app.connect("source-read", read)
