"""Words of other databases that are no SQL to DuckDB, cut out or replaced before it is parsed."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.sql.text.lexemes import Lexeme, blank_out

_WORDS = {"safe_cast": "TRY_CAST"}
"""Words that DuckDB has a shorter one for, so that positions stay."""
_PLACES = {"offset": 1, "safe_offset": 1, "ordinal": 0, "safe_ordinal": 0}
"""BigQuery's words for a place of a list, and how far DuckDB, which counts from 1, is ahead."""


def take_top(text: str, lexemes: Sequence[Lexeme]) -> tuple[str, int | None]:
    """Cut TOP n out of a SELECT, which others have for LIMIT n; blanks take its place.

    >>> from dpsql.sql.text.lexemes import lex
    >>> text = "SELECT TOP 3 a, COUNT(*) FROM t GROUP BY a"
    >>> solid = [item for item in lex(text) if item.kind != "space"]
    >>> body, count = take_top(text, solid)
    >>> " ".join(body.split()), count
    ('SELECT a, COUNT(*) FROM t GROUP BY a', 3)
    """
    words = [lexeme.text.lower() for lexeme in lexemes]
    place = 2 if words[1:2] == ["distinct"] else 1
    is_top = words[:1] == ["select"] and words[place : place + 1] == ["top"]
    if not is_top:
        return text, None
    count, after = lexemes[place + 1 : place + 2], words[place + 2 : place + 3]
    if not count or not count[0].text.isdigit() or after == [","]:
        return text, None
    return blank_out(text, lexemes[place].start, count[0].end), int(count[0].text)


def respelled(text: str, lexemes: Sequence[Lexeme]) -> str:
    """Replace words that mean the same; blanks make up for what is shorter.

    >>> from dpsql.sql.text.lexemes import lex
    >>> text = "SELECT SAFE_CAST(a AS BIGINT) FROM t"
    >>> respelled(text, [item for item in lex(text) if item.kind != "space"])
    'SELECT TRY_CAST (a AS BIGINT) FROM t'
    >>> text = "SELECT x[OFFSET(0)]"
    >>> respelled(text, [item for item in lex(text) if item.kind != "space"])
    'SELECT x[1        ]'
    """
    for place, lexeme in enumerate(lexemes):
        called = lexeme.text.lower()
        word, end = _WORDS.get(called) if lexeme.kind == "word" else None, lexeme.end
        if called in _PLACES and lexemes[place - 1].text == "[":
            rest = [each.text for each in lexemes[place + 1 : place + 5]]
            if rest[:1] + rest[2:] == ["(", ")", "]"] and rest[1].isdigit():
                word, end = str(int(rest[1]) + _PLACES[called]), lexemes[place + 3].end
        if word is not None:
            text = text[: lexeme.start] + word.ljust(end - lexeme.start) + text[end:]
    return text
