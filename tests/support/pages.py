"""Pages of the documentation: where they are, and the fenced blocks on them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    path
    for path in sorted(DOCS.rglob("*.md"))
    if path.parent.name not in ("decisions", "reference")
]


def name(page: Path) -> str:
    """The path of a page in the repository."""
    return str(page.relative_to(ROOT))


def fences(page: Path) -> list[tuple[str, str]]:
    """The fenced blocks of a page in order, as (language, text)."""
    text = page.read_text("utf-8")
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in some languages."""
    return [text for language, text in fences(page) if language in languages]


def commands(page: Path) -> list[str]:
    """The command lines of dpsql on a page, in order, without the name of the command."""
    text = "\n".join(blocks(page, "console", "sh", ""))
    return re.findall(r"^(?:\$ )?(?:\.venv/bin/)?dpsql (.*)$", text, re.MULTILINE)
