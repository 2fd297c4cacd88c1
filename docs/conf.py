"""The documentation site: these pages, and reference pages made from the code (`make docs`)."""

from __future__ import annotations

import runpy
from pathlib import Path

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
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False
# Pages link to files of the repository, which are no pages of the site.
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]

runpy.run_path(str(HERE / "reference.py"))["write_all"](HERE)
