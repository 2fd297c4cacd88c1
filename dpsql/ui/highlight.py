"""A light SQL lexer for the prompt: enough to colour words, strings, numbers and comments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.lexers import Lexer

from dpsql.ui.complete import FUNCTIONS, KEYWORDS, STARTERS

_WORDS = {word.lower() for keyword in KEYWORDS + STARTERS for word in keyword.split()} | {
    *("by", "on", "join", "values", "options", "null", "workload", "interval", "over", "all"),
    *("select", "distinct", "union", "using", "with"),
}
_CALLS = {name.rstrip("(*)").lower() for name in FUNCTIONS}

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<string>'(?:[^']|'')*(?:'|\Z))
      | (?P<name>"(?:[^"]|"")*(?:"|\Z))
      | (?P<number>\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)

STYLES = {
    "comment": "class:sql.comment",
    "string": "class:sql.string",
    "name": "",
    "number": "class:sql.number",
    "keyword": "class:sql.keyword",
    "function": "class:sql.function",
    "other": "",
    "word": "",
}


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) pairs that together spell the text.

    >>> list(tokens("SELECT 'a'"))
    [('keyword', 'SELECT'), ('other', ' '), ('string', "'a'")]
    """
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup or "other", match.group()
        if kind == "word":
            lowered = token.lower()
            kind = "keyword" if lowered in _WORDS else "function" if lowered in _CALLS else "word"
        yield kind, token


class SqlLexer(Lexer):
    """Colours SQL; commands of the prompt stay plain."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """Return the styled fragments of every line."""
        lines: list[StyleAndTextTuples] = [[]]
        for kind, token in tokens(document.text):
            first, *rest = token.split("\n")
            lines[-1].append((STYLES[kind], first))
            for part in rest:
                lines.append([(STYLES[kind], part)])
        return lambda number: lines[number] if number < len(lines) else []
