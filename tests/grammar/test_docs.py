"""docs/sql.md and docs/grammar.svg are as `make docs` writes them."""

from __future__ import annotations

import runpy
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_reference_and_the_picture_are_current() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make.py"))
    assert (ROOT / "docs" / "sql.md").read_text("utf-8") == made["reference"]()
    drawn = made["picture"]()
    ET.fromstring(drawn)
    assert (ROOT / "docs" / "grammar.svg").read_text("utf-8") == drawn
