"""Routing of statements: to dpsql, to the twin, or to the session itself.

A statement that names a declared table, view or model, or has a form of dpsql's own, is dpsql's.
The twin holds no row of data, and judges by itself what it answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from dpsql.records import dataclass
from dpsql.server.cursors import CursorStep
from dpsql.settings.table import OptionPlace, options_of
from dpsql.sql.text.lexemes import Fragment, Lexeme, blank_out, lex
from dpsql.sql.text.table_mentions import tables_of

SELECTS = frozenset({"select", "with", "from", "values", "table", "pivot", "unpivot", "("})
SHOWN = frozenset({"tables", "budget", "ledger", "domains"})
KEPT = frozenset({"show_stddev", "statement_timeout", "last_charge"})
"""Settings that a session keeps by itself."""
CATALOGS = ("pg_", "information_schema")
"""Prefixes of PostgreSQL's own schemas and tables."""
NOTHING = {
    "set": "SET",
    "reset": "RESET",
    "listen": "LISTEN",
    "unlisten": "UNLISTEN",
    "lock": "LOCK TABLE",
}
"""Tags of statements that have nothing to do."""


@dataclass(frozen=True, slots=True)
class SessionCommand:
    """A statement as a session carries it out: what it asks for, of whom, with which words or name.

    ``kind`` is ask, twin, nothing, begin, commit, rollback, savepoint, release, rollback to,
    declare, fetch, close, copy, set, reset, set local, show, deallocate, discard. ``step`` is how
    far a cursor goes.
    """

    kind: str
    fragment: Fragment
    tag: str = ""
    name: str = ""
    inner: str = ""
    words: tuple[str, ...] = ()
    step: CursorStep = CursorStep("forward")


Knows = Callable[[tuple[str, ...]], bool]
"""A test that a name in parts is that of a declared table, a view or a model."""


def route(fragment: Fragment, knows: Knows) -> SessionCommand:
    """Return the command of a statement."""
    words = [each for each in lex(fragment.body) if each.kind not in ("space", "comment")]
    first = words[0].text.lower() if words else ""
    second = words[1].text.lower() if len(words) > 1 else ""
    if first in SELECTS:
        return SessionCommand(
            "ask" if _is_ours(fragment.body, knows) else "twin", fragment, "SELECT"
        )
    if first == "explain":
        ours = second == "run" or _is_ours(_after(fragment, words, 1), knows)
        return SessionCommand("ask" if ours else "twin", fragment, "EXPLAIN")
    if first == "show":
        if second in KEPT:
            return SessionCommand("show", fragment, "SHOW", second)
        ours = second in SHOWN | set(options_of(OptionPlace.SET)) or _shows_columns(words, knows)
        return SessionCommand("ask" if ours else "twin", fragment, "SHOW", second)
    if first in _TRANSACTION:
        return _transaction(fragment, first, second, words)
    if first in ("deallocate", "discard"):
        return _forgetting(fragment, first, words)
    if first in ("set", "reset"):
        return _set(fragment, first, words)
    if first in ("declare", "fetch", "move", "close", "copy"):
        return _cursor(fragment, first, words)
    if first in NOTHING:
        return SessionCommand("nothing", fragment, NOTHING[first])
    return SessionCommand(
        "ask", fragment, f"{first.upper()} WORKLOAD" if first == "cancel" else first.upper()
    )


def _shows_columns(words: list[Lexeme], knows: Knows) -> bool:
    """True if it is SHOW COLUMNS FROM a table of dpsql's; SHOW ALL is PostgreSQL's own."""
    if [each.text.lower() for each in words[1:3]] != ["columns", "from"]:
        return False
    return knows(tuple(each.name for each in words[3:] if each.text != "."))


def _is_ours(sql: str, knows: Knows) -> bool:
    """True if a query is dpsql's: it has a table, and not only those of PostgreSQL's own."""
    tables = tables_of(sql)
    if tables is None:
        return any(map(knows, _names_of_tables(sql)))
    return any(knows(parts) or not _is_catalog(parts) for parts in tables)


def _names_of_tables(sql: str) -> Iterator[tuple[str, ...]]:
    """Yield the names, in parts, where a table may stand in a query that cannot be read."""
    words = [each for each in lex(sql) if each.kind not in ("space", "comment")]
    for at, word in enumerate(words):
        before = words[at - 1].text.lower() if at else ""
        if word.kind in ("word", "quoted") and before in _BEFORE_TABLES:
            end = at + 1
            while end + 1 < len(words) and words[end].text == ".":
                end += 2
            yield tuple(each.name for each in words[at:end:2])


_BEFORE_TABLES = {"from", "join", "table", "only", ",", "("}


def _is_catalog(parts: tuple[str, ...]) -> bool:
    """True if a table is one of PostgreSQL's own."""
    schema = parts[-2] if len(parts) > 1 else parts[-1]
    return schema.casefold().startswith(CATALOGS)


def _after(fragment: Fragment, words: list[Lexeme], count: int) -> str:
    return fragment.body[words[count].start :] if len(words) > count else ""


_TRANSACTION = {"begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release"}


def _transaction(
    fragment: Fragment, first: str, second: str, words: list[Lexeme]
) -> SessionCommand:
    rest = tuple(each.text.lower() for each in words[1:])
    if first == "begin" and second == "workload":
        return SessionCommand("ask", fragment, "BEGIN WORKLOAD")
    if first in ("begin", "start"):
        return SessionCommand(
            "begin", fragment, "BEGIN" if first == "begin" else "START TRANSACTION"
        )
    if first in ("savepoint", "release"):
        return SessionCommand(first, fragment, first.upper(), folded(words[-1]))
    if second == "prepared":
        return SessionCommand("ask", fragment, first.upper())
    if first in ("rollback", "abort") and "to" in rest:
        return SessionCommand("rollback to", fragment, "ROLLBACK", folded(words[-1]))
    kept = () if "no" in rest else rest
    if first in ("commit", "end"):
        return SessionCommand("commit", fragment, "COMMIT", words=kept)
    return SessionCommand("rollback", fragment, "ROLLBACK", words=kept)


def _forgetting(fragment: Fragment, first: str, words: list[Lexeme]) -> SessionCommand:
    """DEALLOCATE of a prepared statement, and DISCARD."""
    second = words[1].text.lower() if len(words) > 1 else ""
    if first == "deallocate":
        is_all = second == "all" or (second == "prepare" and words[-1].text.lower() == "all")
        name = "" if is_all else folded(words[-1])
        return SessionCommand(first, fragment, "DEALLOCATE ALL" if is_all else "DEALLOCATE", name)
    known = "all" if second == "all" else ""
    return SessionCommand("discard", fragment, f"DISCARD {second.upper()}".strip(), known)


def folded(name: Lexeme) -> str:
    """A name as PostgreSQL reads it: in lower case, but for one in quotes."""
    return name.name if name.kind == "quoted" else name.text.lower()


def _set(fragment: Fragment, first: str, words: list[Lexeme]) -> SessionCommand:
    """SET of a setting of dpsql, or of what a client sets for itself."""
    rest, scope = words[1:], ""
    if first == "set" and len(rest) > 1 and rest[0].text.lower() in ("session", "local"):
        scope, part = rest[0].text.lower(), rest[0]
        start = fragment.start + part.start
        whole = blank_out(fragment.text, start, start + len(part.text))
        fragment, rest = Fragment(whole, fragment.start, fragment.end), rest[1:]
    plain = [each.text for each in rest]
    name = plain[0].lower() if plain else ""
    tag, ours = first.upper(), name in options_of(OptionPlace.SET)
    values = plain[2:] if len(plain) > 1 and plain[1].lower() in ("=", "to") else plain[1:]
    if scope == "local" and (ours or name in KEPT):
        return SessionCommand("set local", fragment, tag, name)
    if first == "reset" or [each.lower() for each in values] == ["default"]:
        return SessionCommand("reset", fragment, tag, "" if name == "all" else name)
    if ours:
        return SessionCommand("ask", fragment, tag)
    return SessionCommand(
        "set", fragment, tag, name, words=tuple(each.strip("'") for each in values)
    )


_NAME = r"""("(?:[^"]++|"")++"|\w+)"""
_DECLARE = re.compile(
    rf"""declare\s+{_NAME}\s+(?:(?:binary|insensitive|asensitive|no\s+scroll|scroll)\s+)*cursor\s+
    (?:(with|without)\s+hold\s+)?for\s+""",
    re.IGNORECASE | re.VERBOSE,
)
_FETCH = re.compile(
    rf"""(fetch|move)\s+(?:(next|prior|first|last|all|(?:absolute|relative)\s+[+-]?\d{{1,9}}
    |(?:forward|backward)(?:\s+(?:all|[+-]?\d{{1,9}}))?|[+-]?\d{{1,9}})\s+)?
    (?:(?:from|in)\s+)?{_NAME}\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_STEPS = {
    "": CursorStep("forward"),
    "next": CursorStep("forward"),
    "prior": CursorStep("backward"),
    "first": CursorStep("absolute", 1),
    "last": CursorStep("absolute", -1),
    "all": CursorStep("forward", None),
}


def _step(text: str) -> CursorStep:
    """Return the move of a cursor, from the words of FETCH."""
    if text in _STEPS:
        return _STEPS[text]
    way, _, rows = text.rpartition(" ") if " " in text else ("", "", text)
    if rows in ("forward", "backward"):
        return CursorStep(rows)
    return CursorStep(way.strip() or "forward", None if rows == "all" else int(rows))


_COPY = re.compile(
    r"""\)\s*to\s+stdout\s*(?:with\s*)?(?:\(\s*([^()]*)\s*\)|(binary|csv(?:\s+header)?))?\s*$""",
    re.IGNORECASE | re.VERBOSE,
)


def _cursor(fragment: Fragment, first: str, words: list[Lexeme]) -> SessionCommand:
    """DECLARE, FETCH, MOVE and CLOSE of a cursor, and COPY of a query to the client."""
    body = fragment.body
    if first == "close":
        is_all = len(words) < 2 or words[1].text.lower() == "all"
        name = "" if is_all else folded(words[1])
        return SessionCommand(
            "close", fragment, "CLOSE CURSOR ALL" if is_all else "CLOSE CURSOR", name
        )
    if first == "declare":
        found = _DECLARE.match(body)
        if found is not None:
            return SessionCommand(
                "declare",
                fragment,
                "DECLARE CURSOR",
                folded(*lex(found.group(1))),
                _kept(fragment, found.end(), fragment.end),
                ("hold",) if (found.group(2) or "").lower() == "with" else (),
            )
    elif first == "copy":
        copied = _COPY.search(body)
        if copied is not None and len(words) > 1 and words[1].text == "(":
            inner = _kept(fragment, words[1].end, fragment.start + copied.start())
            options = (copied.group(1) or copied.group(2) or "").lower()
            return SessionCommand("copy", fragment, "COPY", options, inner)
    else:
        moved = _FETCH.fullmatch(body)
        if moved is not None:
            step = _step(" ".join((moved.group(2) or "").lower().split()))
            name = folded(*lex(moved.group(3)))
            return SessionCommand("fetch", fragment, moved.group(1).upper(), name, step=step)
    return SessionCommand("ask", fragment, first.upper())


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
