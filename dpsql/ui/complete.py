"""The words at the prompt: what can come next, and the colours of what is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from dpsql.errors import Error
from dpsql.settings import SETTINGS, Taker, shown, taken_by
from dpsql.ui.grid import plain

if TYPE_CHECKING:
    from dpsql.catalog import Catalog, Column
    from dpsql.ui.session import Session

KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "AS", "AND", "OR", "NOT",
    "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "CASE", "WHEN", "THEN", "ELSE", "END",
    "ASC", "DESC", "FILTER", "DATE", "TRUE", "FALSE", "CREATE SYNTHETIC TABLE", "OPTIONS (",
    "FOR (", "FOR WORKLOAD", "INTO", "ROWS =",
)  # fmt: skip
STARTERS = (
    "SELECT", "WITH", "EXPLAIN", "SET", "SHOW", "DESCRIBE", "BEGIN WORKLOAD", "RUN WORKLOAD",
    "CREATE SYNTHETIC TABLE", "MATERIALIZE SYNTHETIC TABLE",
    "DESCRIBE SYNTHETIC TABLE", "CREATE DOMAIN", "CREATE BOUNDS", "DROP DOMAIN", "DROP BOUNDS",
    "DESCRIBE DOMAIN",
)  # fmt: skip
FUNCTIONS = (
    "COUNT(*)", "COUNT(", "SUM(", "DP_STDDEV(", "DP_INTERVAL_LOW(", "DP_INTERVAL_HIGH(",
    "date_trunc(", "lower(", "upper(", "floor(", "abs(",
)  # fmt: skip
MAX_VALUES = 200
"""Declared values that are offered: more than a screen of them helps nobody to choose."""

_COMPARED = re.compile(
    r"""(?P<column>"[^"]+"|[A-Za-z_]\w*)\s*
        (?:=|<>|!=|<=|>=|<|>|(?:NOT\s+)?LIKE|(?:NOT\s+)?IN\s*\((?:[^()']|'[^']*')*[(,]
           |(?:NOT\s+)?IN\s*\()\s*
        (?P<start>'[^']*|\w*)$""",
    re.IGNORECASE | re.VERBOSE,
)


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


@dataclass(frozen=True, slots=True)
class Candidate:
    """One completion: the text, how many characters before the cursor it replaces, its kind."""

    text: str
    replaces: int
    kind: str


@dataclass(slots=True)
class Vocabulary:
    """The names and declared values of a catalog."""

    tables: list[str] = field(default_factory=list)
    columns: dict[str, Column] = field(default_factory=dict)
    synthetic: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, catalog: Catalog) -> Vocabulary:
        """Collect the vocabulary of all tables; the first of two columns of one name wins."""
        columns: dict[str, Column] = {}
        for table in catalog.tables.values():
            for key, column in table.columns.items():
                columns.setdefault(key, column)
        names = [table.name for table in catalog.tables.values()]
        names += [view.name for view in catalog.views.values()]
        made = [table.name for table in catalog.tables.values() if table.synthetic]
        return cls(names, columns, made)


def complete_sql(text: str, words: Vocabulary) -> Iterator[Candidate]:
    """Yield completions for the SQL before the cursor.

    After a comparison with a column only its declared values are offered.
    """
    compared = _COMPARED.search(text)
    if compared is not None:
        column = words.columns.get(compared["column"].strip('"').casefold())
        if column is not None:
            yield from _values(column, compared["start"])
            return
    model = re.search(r"\bmodel\s*=\s*('?\w*)$", text, re.IGNORECASE)
    if model is not None and re.match(r"\s*(EXPLAIN\s+)?CREATE\b", text, re.IGNORECASE):
        yield from _starting(SETTINGS["model"].kind.offered(), model[1], "setting")
        return
    if text.count("'") % 2:
        return
    setting = re.search(r"\b(SET|SHOW)\s+(?:(\w+)\s*=\s*)?('?\w*)$", text, re.IGNORECASE)
    if setting is not None:
        options = shown() if setting[1].upper() == "SHOW" else taken_by(Taker.SET)
        if setting[2]:
            known = setting[2].lower() in taken_by(Taker.SET)
            options = SETTINGS[setting[2].lower()].kind.offered() if known else ()
        yield from _starting(options, setting[3], "setting")
        return
    typed = re.search(r"\w*$", text)
    prefix = typed.group() if typed else ""
    if re.search(r"\b(MATERIALIZE|DESCRIBE)\s+SYNTHETIC\s+TABLE\s+\w*$", text, re.IGNORECASE):
        yield from _starting(words.synthetic, prefix, "table")
        return
    if re.search(r"\b(FROM|JOIN|DESCRIBE)\s+\w*$", text, re.IGNORECASE):
        yield from _starting(words.tables, prefix, "table")
        return
    if re.search(r"(^|;)\s*\w+$", text):
        yield from _starting(STARTERS, prefix, "keyword")
        return
    if prefix or text.strip():
        yield from _starting((c.name for c in words.columns.values()), prefix, "column")
    if prefix:
        yield from _starting(words.tables, prefix, "table")
        yield from _starting(FUNCTIONS, prefix, "function")
        yield from _starting(KEYWORDS, prefix, "keyword")


def _values(column: Column, typed: str) -> Iterator[Candidate]:
    prefix = typed.lstrip("'").lower()
    for cell in column.cells[:MAX_VALUES]:
        if cell is not None and plain(cell).lower().startswith(prefix):
            yield Candidate(sql_literal(cell), len(typed), "value")


def sql_literal(value: object) -> str:
    """Write a declared value as an SQL literal.

    >>> sql_literal("O'Neil"), sql_literal(17), sql_literal(True)
    ("'O''Neil'", '17', 'true')
    """
    if isinstance(value, bool | int | float | Decimal):
        return plain(value)
    return "'" + plain(value).replace("'", "''") + "'"


def _starting(options: Iterable[str], prefix: str, kind: str) -> Iterator[Candidate]:
    lower = prefix[:1].islower()
    for option in options:
        if option.lower().startswith(prefix.lower()):
            follow = lower and kind == "keyword"
            yield Candidate(option.lower() if follow else option, len(prefix), kind)


def complete_command(line: str, session: Session) -> Iterator[Candidate]:
    """Yield completions for a command line: its name, then its argument."""
    from dpsql.ui.commands import COMMANDS, find_command

    word, blank, argument = line.lstrip().partition(" ")
    if not blank:
        names = [n for entry in COMMANDS.values() for n in (entry.name, *entry.aliases)]
        yield from _starting(names, word, "command")
        return
    try:
        entry = find_command(word)
    except Error:
        return
    if entry.name == ".explain":
        yield from complete_sql(argument, Vocabulary.of(session.connection.known))
        return
    last = argument.rpartition(" ")[2]
    yield from _starting(entry.choices(session), last, "argument")


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
