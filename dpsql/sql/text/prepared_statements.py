"""Statements made of parts that were read before: they need neither the parser nor the binder.

Files of many statements differ in simple conditions on single columns, joined by AND. A pattern
cuts their text; what a part means is never worked out here, but taken from statements with the
same frame that the parser and the binder have read in full.
"""

from __future__ import annotations

import re
from functools import cache

from dpsql.records import dataclass, replace
from dpsql.sql.query import Condition, Query

MOST_TEXT, MOST_TESTS = 4096, 64
"""Longer statements, and those of more conditions, are read in full: limits are for the parser."""

_S = r"[ \t\r\n]"
_VALUE = r"(?:-?\d+(?:\.\d+)?|'[^']*')"
_TEST = (
    rf"[A-Za-z_]\w*(?:{_S}*(?:=|<>|!=|<=|>=|<|>){_S}*{_VALUE}"
    rf"|{_S}+BETWEEN{_S}+{_VALUE}{_S}+AND{_S}+{_VALUE}"
    rf"|{_S}+(?:NOT{_S}+)?IN{_S}*\({_S}*{_VALUE}(?:{_S}*,{_S}*{_VALUE})*{_S}*\)"
    rf"|{_S}+IS{_S}+(?:NOT{_S}+)?NULL)"
)
_STATEMENT = (
    rf"(SELECT\b[\w \t\r\n,.()*]*?){_S}WHERE{_S}+({_TEST}(?:{_S}+AND{_S}+{_TEST})*)"
    rf"({_S}+(?:GROUP|ORDER){_S}+BY{_S}[\w \t\r\n,.()*]*)?"
)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """A pattern, compiled where a statement has a WHERE: that takes 2 ms."""
    return re.compile(text, re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TextParts:
    """A text cut up: the ``frame`` before and after WHERE, and the tests that AND joins."""

    frame: tuple[str, str]
    tests: tuple[str, ...]


def split_at_conditions(text: str) -> TextParts | None:
    """Cut a statement up at its WHERE and its ANDs; None where its conditions are not all simple.

    >>> split_at_conditions("SELECT COUNT(*) FROM t WHERE a = 1 AND b BETWEEN 2 AND 3").tests
    ('a = 1', 'b BETWEEN 2 AND 3')
    >>> split_at_conditions("SELECT COUNT(*) FROM t WHERE a = 1 OR b = 2")
    """
    may_have = len(text) <= MOST_TEXT and "where" in text.lower()
    found = _pattern(_STATEMENT).fullmatch(text) if may_have else None
    if found is None:
        return None
    before, tests, after = found.groups("")
    each = tuple(_pattern(_TEST).findall(tests))
    return TextParts((before, after), each) if len(each) <= MOST_TESTS else None


class StatementParts:
    """The parts of statements read in full: texts that were parsed, and what was bound of them."""

    def __init__(self) -> None:
        self._parsed: set[tuple[tuple[str, str], str]] = set()
        self._queries: dict[tuple[str, str], Query] = {}
        self._tests: dict[tuple[tuple[str, str], str], Condition] = {}

    def note(self, parts: TextParts) -> None:
        """Note the parts of a text that was parsed in full."""
        self._parsed.update((parts.frame, test) for test in parts.tests)

    def is_parsed(self, parts: TextParts) -> bool:
        """True if every condition was parsed before, within the same frame."""
        return all((parts.frame, test) in self._parsed for test in parts.tests)

    def learn(self, parts: TextParts, query: Query) -> None:
        """Learn what the parts of a text mean from its query, which has a condition for each."""
        self._queries[parts.frame] = query
        pairs = zip(parts.tests, query.where, strict=True)
        self._tests.update(((parts.frame, test), condition) for test, condition in pairs)

    def query(self, parts: TextParts, text: str) -> Query | None:
        """The query of a text whose parts are known, None for any other."""
        query = self._queries.get(parts.frame)
        where = [self._tests.get((parts.frame, test)) for test in parts.tests]
        known = tuple(test for test in where if test is not None)
        if query is None or len(known) < len(where):
            return None
        return replace(query, where=known, text=text)
