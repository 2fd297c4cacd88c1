"""Where a statement goes: to dpsql, to the twin, or to the session itself.

A statement that names a declared table, view or model, or has a form of dpsql's own, is dpsql's.
The twin holds no row of data, so nothing that goes there needs to be judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from dpsql.records import dataclass
from dpsql.settings import Taker, taken_by
from dpsql.sql.lexemes import Fragment, Lexeme, lex
from dpsql.sql.mentions import tables_of

SELECTS = frozenset({"select", "with", "from", "values", "table", "pivot", "unpivot", "("})
SHOWN = frozenset({"tables", "budget", "ledger", "domains"})
KEPT = frozenset({"show_stddev", "statement_timeout", "last_charge"})
"""What a session keeps by itself."""
CATALOGS = ("pg_", "information_schema")
"""What the names of PostgreSQL's own schemas and tables begin with."""
NOTHING = {
    "set": "SET",
    "reset": "RESET",
    "discard": "DISCARD ALL",
    "deallocate": "DEALLOCATE",
    "listen": "LISTEN",
    "unlisten": "UNLISTEN",
    "savepoint": "SAVEPOINT",
    "release": "RELEASE",
    "lock": "LOCK TABLE",
}
"""What is said to be done where there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What a statement asks for, of whom, and the words or the name that it comes with.

    ``kind`` is ask, twin, nothing, begin, commit, rollback, declare, fetch, close, copy, set, show.
    """

    kind: str
    fragment: Fragment
    tag: str = ""
    name: str = ""
    inner: str = ""
    number: int | None = None
    words: tuple[str, ...] = ()


Knows = Callable[[tuple[str, ...]], bool]
"""Whether a name in parts is that of a declared table, a view or a model."""


def route(fragment: Fragment, knows: Knows) -> Errand:
    """Say what a statement asks for."""
    words = [each for each in lex(fragment.body) if each.kind not in ("space", "comment")]
    first = words[0].text.lower() if words else ""
    second = words[1].text.lower() if len(words) > 1 else ""
    if first in SELECTS:
        return Errand("ask" if _is_ours(fragment.body, knows) else "twin", fragment, "SELECT")
    if first == "explain":
        ours = second == "run" or _is_ours(_after(fragment, words, 1), knows)
        return Errand("ask" if ours else "twin", fragment, "EXPLAIN")
    if first == "show":
        if second in KEPT:
            return Errand("show", fragment, "SHOW", second)
        ours = second in SHOWN | set(taken_by(Taker.SET)) or _shows_columns(words, knows)
        return Errand("ask" if ours else "twin", fragment, "SHOW", second)
    if first in ("begin", "start", "commit", "end", "rollback", "abort"):
        return _transaction(fragment, first, second, words)
    if first in ("set", "reset"):
        return _set(fragment, first, words)
    if first in ("declare", "fetch", "move", "close", "copy"):
        return _cursor(fragment, first, words)
    if first in NOTHING:
        return Errand("nothing", fragment, NOTHING[first])
    return Errand(
        "ask", fragment, f"{first.upper()} WORKLOAD" if first == "cancel" else first.upper()
    )


def _shows_columns(words: list[Lexeme], knows: Knows) -> bool:
    """Whether it is SHOW COLUMNS FROM a table of dpsql's; SHOW ALL is PostgreSQL's own."""
    if [each.text.lower() for each in words[1:3]] != ["columns", "from"]:
        return False
    return knows(tuple(each.name for each in words[3:] if each.text != "."))


def _is_ours(sql: str, knows: Knows) -> bool:
    """Whether a query is dpsql's: it has a table, and not only those of PostgreSQL's own."""
    tables = tables_of(sql)
    if tables is None:
        return any(knows((each.name,)) for each in lex(sql) if each.kind in ("word", "quoted"))
    return any(knows(parts) or not _is_catalog(parts) for parts in tables)


def _is_catalog(parts: tuple[str, ...]) -> bool:
    """Whether a table is one of PostgreSQL's own."""
    schema = parts[-2] if len(parts) > 1 else parts[-1]
    return schema.casefold().startswith(CATALOGS)


def _after(fragment: Fragment, words: list[Lexeme], count: int) -> str:
    return fragment.body[words[count].start :] if len(words) > count else ""


def _transaction(fragment: Fragment, first: str, second: str, words: list[Lexeme]) -> Errand:
    if first == "begin" and second == "workload":
        return Errand("ask", fragment, "BEGIN WORKLOAD")
    if first in ("begin", "start"):
        return Errand("begin", fragment, "BEGIN" if first == "begin" else "START TRANSACTION")
    if first in ("commit", "end"):
        return Errand("commit", fragment, "COMMIT")
    if any(each.text.lower() == "to" for each in words):
        return Errand("nothing", fragment, "ROLLBACK", "savepoint")
    return Errand("rollback", fragment, "ROLLBACK")


def _set(fragment: Fragment, first: str, words: list[Lexeme]) -> Errand:
    """SET of a setting of dpsql, or of what a client sets for itself."""
    plain = [each.text for each in words[1:]]
    if plain and plain[0].lower() in ("session", "local"):
        plain = plain[1:]
    name = plain[0].lower() if plain else ""
    if first == "set" and name in taken_by(Taker.SET):
        return Errand("ask", fragment, "SET")
    rest = plain[2:] if len(plain) > 1 and plain[1].lower() in ("=", "to") else plain[1:]
    return Errand(
        "set", fragment, first.upper(), name, words=tuple(each.strip("'") for each in rest)
    )


_DECLARE = re.compile(
    r"""declare\s+("[^"]+"|\w+)\s+(?:(?:binary|insensitive|asensitive|no\s+scroll|scroll)\s+)*cursor\s+
    (?:with(?:out)?\s+hold\s+)?for\s+""",
    re.IGNORECASE | re.VERBOSE,
)
_FETCH = re.compile(
    r"""(fetch|move)\s+(?:(next|first|all|forward\s+all|forward\s+\d+|forward|\d+)\s+)?
    (?:(?:from|in)\s+)?("[^"]+"|\w+)\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_COPY = re.compile(
    r"""\)\s*to\s+stdout\s*(?:with\s*)?(?:\(\s*([^()]*)\s*\)|(binary|csv(?:\s+header)?))?\s*$""",
    re.IGNORECASE | re.VERBOSE,
)


def _cursor(fragment: Fragment, first: str, words: list[Lexeme]) -> Errand:
    """DECLARE, FETCH, MOVE and CLOSE of a cursor, and COPY of a query to the client."""
    body = fragment.body
    if first == "close":
        name = words[1].name if len(words) > 1 else ""
        return Errand("close", fragment, "CLOSE CURSOR", name)
    if first == "declare":
        found = _DECLARE.match(body)
        if found is not None:
            return Errand(
                "declare",
                fragment,
                "DECLARE CURSOR",
                found.group(1).strip('"'),
                _kept(fragment, found.end(), fragment.end),
            )
    elif first == "copy":
        copied = _COPY.search(body)
        if copied is not None and len(words) > 1 and words[1].text == "(":
            inner = _kept(fragment, words[1].end, fragment.start + copied.start())
            options = (copied.group(1) or copied.group(2) or "").lower()
            return Errand("copy", fragment, "COPY", options, inner)
    else:
        moved = _FETCH.fullmatch(body)
        if moved is not None:
            amount = (moved.group(2) or "1").lower().split()[-1]
            number = None if amount == "all" else int(amount) if amount.isdigit() else 1
            return Errand(
                "fetch", fragment, moved.group(1).upper(), moved.group(3).strip('"'), number=number
            )
    return Errand("ask", fragment, first.upper())


def _kept(fragment: Fragment, start: int, end: int) -> str:
    """A part of a statement at its place in the script, with blanks before it."""
    text = fragment.text
    first = fragment.start + start
    return " " * first + text[first:end]


def blank_but(text: str, kept: Sequence[Fragment]) -> str:
    """A script with blanks in place of all but some of its statements, so that positions stay."""
    found, end = [], 0
    for fragment in kept:
        found += [_blanks(text[end : fragment.start]), fragment.body, ";"]
        end = fragment.end + 1
    return "".join(found).rstrip(";")


def _blanks(text: str) -> str:
    return "".join("\n" if char == "\n" else " " for char in text)
