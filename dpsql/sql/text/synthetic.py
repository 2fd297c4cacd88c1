"""CREATE SYNTHETIC TABLE and MATERIALIZE SYNTHETIC TABLE: our own statements, word by word.

Also why the statements that would change a table are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from dpsql.errors import NotSupportedError, ProgrammingError, printable
from dpsql.records import dataclass, replace
from dpsql.settings.table import SETTINGS, OptionPlace, options_of
from dpsql.sql.text.clauses import read_options
from dpsql.sql.text.lexemes import Fragment, Lexeme, split_statements

MOST_ROWS = 10**8
"""Rows of one MATERIALIZE."""

_EXAMPLE = (
    "CREATE SYNTHETIC TABLE s FROM t OPTIONS (epsilon = 1) FOR (SELECT a, b, COUNT(*) FROM t "
    "GROUP BY CUBE (a, b))"
)


@dataclass(frozen=True, slots=True)
class Creation:
    """A synthetic table to make: its name, its private table, its workload and its options.

    The statements of the workload are here, or in ``file``; ``text`` is the whole statement.
    """

    name: str
    table: str
    workload: tuple[Fragment, ...]
    options: tuple[tuple[str, str], ...]
    file: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Materialisation:
    """Rows to draw from a synthetic table into a file; ``rows`` None for as many as it has."""

    name: str
    path: str
    rows: int | None


def parse_create(fragment: Fragment, lexemes: Sequence[Lexeme]) -> Creation:
    """Read CREATE SYNTHETIC TABLE s FROM t [OPTIONS (...)] FOR (SELECT ...; ...).

    SPEND is another word for OPTIONS; FOR WORKLOAD 'file.sql' names a file with the statements.
    Raises: ProgrammingError (E_PARSE, E_SETTING).
    """
    words = [lexeme.text.lower() for lexeme in lexemes]
    wrong = _first_wrong(words, ("create", "synthetic", "table", None, "from", None))
    if wrong is not None:
        _refuse(fragment, lexemes, wrong)
    name, table = lexemes[3].name, lexemes[5].name
    place = 6
    options: tuple[tuple[str, str], ...] = ()
    workload: tuple[Fragment, ...] = ()
    file: str | None = None
    while place < len(words):
        if words[place : place + 2] == ["for", "workload"] and not workload and file is None:
            file = _file(fragment, lexemes, min(place + 2, len(words) - 1))
            place += 3
            continue
        if words[place] not in ("options", "spend", "for") or words[place + 1 : place + 2] != ["("]:
            _refuse(fragment, lexemes, place)
        end = _closing(fragment, lexemes, place + 1)
        if words[place] == "for" and not workload and file is None:
            start = lexemes[place + 1].start + 1
            workload = _statements(fragment, start, lexemes[end].start)
        elif words[place] != "for" and not options:
            inner = lexemes[place + 2 : end + 1]
            options = tuple(read_options(fragment, inner, OptionPlace.CREATE).items())
            _check_words(fragment, inner, dict(options))
        else:
            _refuse(fragment, lexemes, place)
        place = end + 1
    if not workload and file is None:
        fragment.refuse(lexemes[-1], "E_PARSE", "the workload is missing", _EXAMPLE)
    return Creation(name, table, workload, options, file, fragment.body)


def parse_materialize(fragment: Fragment, lexemes: Sequence[Lexeme]) -> Materialisation:
    """Read MATERIALIZE SYNTHETIC TABLE s INTO 'file' [ROWS = n].

    Raises: ProgrammingError (E_PARSE).
    """
    words = [lexeme.text.lower() for lexeme in lexemes]
    wrong = _first_wrong(words, ("materialize", "synthetic", "table", None, "into", None))
    if wrong is None and lexemes[5].kind != "string":
        wrong = 5
    if wrong is not None:
        _malformed(fragment, lexemes, wrong, "MATERIALIZE SYNTHETIC TABLE s INTO 's.parquet'")
    rows = None
    if len(words) > 6:
        digits = words[-1]
        good = words[6:-1] in (["rows"], ["rows", "="]) and digits.isascii() and digits.isdigit()
        if not good or not 0 < int(digits) <= MOST_ROWS:
            _malformed(fragment, lexemes, 6, f"ROWS = 10000, at most {MOST_ROWS}")
        rows = int(digits)
    path = lexemes[5].text[1:-1].replace("''", "'")
    return Materialisation(lexemes[3].name, path, rows)


def refuse_change(fragment: Fragment, lexemes: Sequence[Lexeme]) -> NoReturn:
    """Say why tables are not inserted into, updated or dropped.

    Raises: NotSupportedError (E_STATEMENT).
    """
    words = [lexeme.text.lower() for lexeme in lexemes[:2]]
    if words[1:] == ["synthetic"]:
        why = "a released synthetic table is final, and its budget is spent"
    else:
        why = "tables are only read, and a synthetic table is final"
    raise NotSupportedError(
        "E_STATEMENT",
        f"{words[0].upper()} is not supported: {why}",
        hint="MATERIALIZE SYNTHETIC TABLE s INTO 's.csv' writes rows that are yours to change",
        span=fragment.at(lexemes[0]),
    )


def _first_wrong(words: Sequence[str], form: Sequence[str | None]) -> int | None:
    """Position of the first word that departs from a form, in which None is any word."""
    for place, wanted in enumerate(form):
        if place >= len(words) or wanted not in (None, words[place]):
            return place
    return None


def _check_words(fragment: Fragment, lexemes: Sequence[Lexeme], options: dict[str, str]) -> None:
    """Refuse values of options that are none of the words known."""
    texts = [lexeme.text.lower() for lexeme in lexemes]
    for name in [name for name in options_of(OptionPlace.CREATE) if name in options]:
        if SETTINGS[name].kind.known:
            found = lexemes[texts.index(name) + 2]
            SETTINGS[name].read(options[name], span=fragment.at(found), error=ProgrammingError)


def _file(fragment: Fragment, lexemes: Sequence[Lexeme], place: int) -> str:
    if lexemes[place].kind != "string":
        _malformed(fragment, lexemes, place, "FOR WORKLOAD 'queries.sql'")
    return lexemes[place].text[1:-1].replace("''", "'")


def _statements(fragment: Fragment, start: int, end: int) -> tuple[Fragment, ...]:
    inner = fragment.body[start:end]
    offset = fragment.start + start
    return tuple(
        replace(fragment, start=offset + each.start, end=offset + each.end)
        for each in split_statements(inner)
    )


def _closing(fragment: Fragment, lexemes: Sequence[Lexeme], opening: int) -> int:
    depth = 0
    for place in range(opening, len(lexemes)):
        depth += {"(": 1, ")": -1}.get(lexemes[place].text, 0)
        if depth == 0:
            return place
    _refuse(fragment, lexemes, opening)


def _refuse(fragment: Fragment, lexemes: Sequence[Lexeme], place: int) -> NoReturn:
    _malformed(fragment, lexemes, place, _EXAMPLE)


def _malformed(fragment: Fragment, lexemes: Sequence[Lexeme], place: int, example: str) -> NoReturn:
    lexeme = lexemes[min(place, len(lexemes) - 1)]
    fragment.refuse(lexeme, "E_PARSE", f"not understood near {printable(lexeme.text)!r}", example)
