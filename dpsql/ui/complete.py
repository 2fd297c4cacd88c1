"""Completion: continuations at the prompt, as functions of the text around the cursor."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dpsql.dbapi.keywords import FUNCTIONS, KEYWORDS, STARTERS
from dpsql.errors import Error
from dpsql.records import dataclass
from dpsql.settings.table import SETTINGS, OptionPlace, options_of, shown
from dpsql.ui.highlight import tokens
from dpsql.ui.vocabulary import Vocabulary, starting

if TYPE_CHECKING:
    from dpsql.ui.session import Session

MAX_VALUES = 200
"""Declared values that are offered: more than a screen of them helps nobody to choose."""

_COMPARED = re.compile(
    r"""(?:(?P<table>\w+|"[^"]+")\.)?(?P<column>"[^"]+"|[A-Za-z_]\w*)\s*
        (?:=|<>|!=|<=|>=|<|>|(?:NOT\s+)?LIKE|(?:NOT\s+)?IN\s*\((?:[^()']|'[^']*')*[(,]
           |(?:NOT\s+)?IN\s*\()\s*
        (?P<start>'(?:[^']|'')*|[\w.-]*)$""",
    re.IGNORECASE | re.VERBOSE,
)
_OPTIONS = re.compile(
    r"""\b(?:OPTIONS|SPEND)\s*\((?:[^()']|'[^']*')*?(?:(?P<name>\w+)\s*=\s*(?P<value>'?[\w-]*)
        |(?:\(|,)?\s*(?P<start>\w*))$""",
    re.IGNORECASE | re.VERBOSE,
)
_DOTTED = re.compile(r'(?P<table>\w+|"[^"]+")\.(?P<start>\w*)$')


@dataclass(frozen=True, slots=True)
class Candidate:
    """One completion: the text, how many characters before the cursor it replaces, its kind."""

    text: str
    replaces: int
    kind: str


def complete_sql(text: str, words: Vocabulary, after: str = "") -> Iterator[Candidate]:
    """Yield completions for the SQL before the cursor; ``after`` is what stands behind it.

    After a comparison with a column only its declared values are offered; names are those of the
    tables that the statement mentions.

    Args:
        text: everything before the cursor, of which the last statement counts.
        words: names of tables, columns, functions and settings.
        after: text behind the cursor, whose FROM may name the tables.
    """
    text = _statement(text)
    whole = f"{text} {_statement_end(after)}"
    compared = _COMPARED.search(text)
    if compared is not None and not _OPTIONS.search(text):
        found = _column(words, whole, compared["table"], compared["column"])
        if found is not None:
            yield from _values(words, found, compared["start"])
            return
    option = _OPTIONS.search(text)
    if option is not None and (option["value"] or not _is_text(text)):
        yield from _options(text, option)
        return
    if _is_text(text):
        return
    setting = re.search(r"^\s*(SET|SHOW)\s+(?:(\w+)\s*(?:=|TO)\s*)?('?\w*)$", text, re.IGNORECASE)
    if setting is not None:
        yield from _settings(setting[1].upper(), setting[2], setting[3])
        return
    yield from _names(text, words, whole)


def _names(text: str, words: Vocabulary, whole: str) -> Iterator[Candidate]:
    """Yield names, functions and keywords that can come next."""
    dotted = _DOTTED.search(text)
    if dotted is not None:
        table = words.mentioned(whole).get(dotted["table"].strip('"').casefold(), "")
        columns = words.columns.get(table, {}).values()
        yield from _starting((column.name for column in columns), dotted["start"], "column")
        return
    typed = re.search(r"\w*$", text)
    prefix = typed.group() if typed else ""
    if re.search(r"\b(MATERIALIZE|DESCRIBE)\s+SYNTHETIC\s+TABLE\s+\w*$", text, re.IGNORECASE):
        yield from _starting(words.synthetic, prefix, "table")
        return
    if re.search(r"\b(FROM|JOIN|DESCRIBE|DESC)\s+\w*$", text, re.IGNORECASE):
        yield from _starting(words.tables, prefix, "table")
        return
    if re.fullmatch(r"\s*\w+", text):
        yield from _starting(STARTERS, prefix, "keyword")
        return
    if prefix or (text.strip() and text[-1] in " \n\t(,+-*/<>="):
        columns_here = (column.name for _, column in words.scope(whole).values())
        yield from _starting(columns_here, prefix, "column")
    if prefix:
        yield from _starting(words.tables, prefix, "table")
        yield from _starting(FUNCTIONS, prefix, "function")
        yield from _starting(KEYWORDS, prefix, "keyword")


def _statement(text: str) -> str:
    """The statement that a text ends in."""
    end = 0
    at = 0
    for kind, token in tokens(text):
        at += len(token)
        if kind == "other" and token == ";":
            end = at
    return text[end:]


def _statement_end(text: str) -> str:
    """The end of the statement that a text begins in."""
    return "".join(itertools.takewhile(lambda token: token != ";", (t for _, t in tokens(text))))


def _is_text(text: str) -> bool:
    """True if a text ends within quotes or a comment."""
    kind, token = list(tokens(text))[-1] if text else ("", "")
    if kind == "comment":
        return token.startswith("--") or not token.endswith("*/")
    return kind == "string" and bool(token.count("'") % 2)


def _column(
    words: Vocabulary, statement: str, table: str | None, name: str
) -> tuple[str, str] | None:
    """The table and the column that a name in a statement means, both case-folded."""
    key = name.strip('"').casefold()
    if table is not None:
        owner = words.mentioned(statement).get(table.strip('"').casefold(), "")
        return (owner, key) if key in words.columns.get(owner, {}) else None
    found = words.scope(statement).get(key)
    return None if found is None else (found[0], key)


def _values(words: Vocabulary, column: tuple[str, str], typed: str) -> Iterator[Candidate]:
    values = words.values(*column)
    if typed and not typed.startswith("'"):
        found = (v for v in values if v.strip("'").lower().startswith(typed.lower()))
    else:
        found = (v for v in values if not typed or v.lower().startswith(typed.lower()))
    for literal in itertools.islice(found, MAX_VALUES):
        if literal != typed:
            yield Candidate(literal, len(typed), "value")


def _options(text: str, option: re.Match[str]) -> Iterator[Candidate]:
    """Yield the options of a statement, or the values of one."""
    name = option["name"]
    if name is not None:
        known = SETTINGS.get(name.lower())
        offered = () if known is None else known.kind.offered()
        yield from _starting(offered, option["value"], "setting")
        return
    taker = OptionPlace.SELECT
    if re.match(r"\s*(EXPLAIN\s+)?CREATE\s+SYNTHETIC\b", text, re.IGNORECASE):
        taker = OptionPlace.CREATE
    elif re.match(r"\s*(EXPLAIN\s+)?CREATE\b", text, re.IGNORECASE):
        taker = OptionPlace.FIND
    names = (f"{each} = " for each in options_of(taker))
    yield from _starting(names, option["start"] or "", "option")


def _settings(word: str, name: str | None, typed: str) -> Iterator[Candidate]:
    options = (*shown(), "all", "columns from ") if word == "SHOW" else options_of(OptionPlace.SET)
    if name:
        known = name.lower() in options_of(OptionPlace.SET)
        options = SETTINGS[name.lower()].kind.offered() if known else ()
    yield from _starting(options, typed, "setting")


def _starting(options: Iterable[str], prefix: str, kind: str) -> Iterator[Candidate]:
    lower = prefix[:1].islower()
    for option in starting(options, prefix):
        if option == prefix:
            continue
        follow = lower and kind == "keyword"
        yield Candidate(option.lower() if follow else option, len(prefix), kind)


def complete_command(line: str, session: Session, words: Vocabulary) -> Iterator[Candidate]:
    """Yield completions for a command line: its name, then its argument.

    Args:
        line: command with its point and what is typed of its argument.
        session: decides what a command can take, such as files and settings.
        words: names that SQL in an argument is completed from.
    """
    from dpsql.ui.command import COMMANDS, find_command  # whose arguments are completed here

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
        yield from complete_sql(argument, words)
        return
    last = argument.rpartition(" ")[2]
    yield from _starting(entry.choices(session, last), last, "argument")
