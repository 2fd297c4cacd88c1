"""The tokens of SQL at the prompt, and their colours."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dpsql.dbapi.keywords import FUNCTIONS, KEYWORDS, STARTERS

RESERVED = {
    word.lower().rstrip("(") for keyword in KEYWORDS + STARTERS for word in keyword.split()
} | {
    *("by", "on", "join", "values", "options", "null", "workload", "interval", "over", "all"),
    *("select", "distinct", "union", "using", "with", "left", "right", "full", "inner", "cross"),
}
_CALLS = {name.rstrip("(*)").lower() for name in FUNCTIONS}

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<string>'(?:[^']++|'')*+(?:'|\Z))
      | (?P<name>"(?:[^"]++|"")*+(?:"|\Z))
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
            kind = "keyword" if lowered in RESERVED else "function" if lowered in _CALLS else "word"
        yield kind, token
