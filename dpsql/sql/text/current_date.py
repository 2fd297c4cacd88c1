"""CURRENT_DATE is the day on which a statement is read: its text says that day from then on.

So what is stored, planned or asked again later is about the day that it was measured for, and the
same statement on another day is another request.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from dpsql.records import replace
from dpsql.sql.text.lexemes import Fragment, Lexeme


def today() -> dt.date:
    """The day here and now."""
    return dt.date.today()


def dated(fragment: Fragment, lexemes: Sequence[Lexeme]) -> Fragment:
    """A statement with the day written out instead of CURRENT_DATE; as it is where there is none.

    >>> from dpsql.sql.text.lexemes import lex
    >>> solid = [each for each in lex("SELECT d < current_date") if each.kind != "space"]
    >>> dated(Fragment("SELECT d < current_date", 0, 23), solid).body[:16]
    'SELECT d < DATE '
    """
    body, shift = fragment.body, 0
    for start, end in _mentions(lexemes):
        day = f"DATE '{today().isoformat()}'"
        body = body[: start + shift] + day + body[end + shift :]
        shift += len(day) - (end - start)
    if body == fragment.body:
        return fragment
    text = fragment.text[: fragment.start] + body + fragment.text[fragment.end :]
    return replace(fragment, text=text, end=fragment.start + len(body))


def _mentions(lexemes: Sequence[Lexeme]) -> list[tuple[int, int]]:
    """Positions of CURRENT_DATE, with or without parentheses, and of today()."""
    found = []
    words = [each.text.lower() for each in lexemes]
    for place, lexeme in enumerate(lexemes):
        called = words[place + 1 : place + 3] == ["(", ")"]
        named = lexeme.kind == "word" and words[place - 1 : place] not in (["."], ["as"])
        if named and (words[place] == "current_date" or (words[place] == "today" and called)):
            found.append((lexeme.start, lexemes[place + 2].end if called else lexeme.end))
    return found
