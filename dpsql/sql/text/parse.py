"""SQL text -> statements: split, check limits, recognise our own statements, parse the rest.

Everything here is a function of the text alone. The limits come before the parser, so that hostile
text costs neither time nor a traceback.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from dpsql.errors import NotSupportedError, ProgrammingError, printable
from dpsql.records import dataclass, field, replace
from dpsql.settings.table import CLIPPING
from dpsql.sql.dialects.anonymization import MARK, rewrite_anonymization
from dpsql.sql.dialects.dialect_queries import Columns, ReadSelect
from dpsql.sql.dialects.dialect_words import respelled, take_top
from dpsql.sql.dialects.report_format import WORD, marked, take_reports
from dpsql.sql.rewrites.sugar import plain
from dpsql.sql.rewrites.tree_parts import NodeLimit
from dpsql.sql.shell.language import (
    check_calls,
    check_inverted,
    check_nested,
    check_selected,
    locate,
)
from dpsql.sql.text.clauses import Clips, Cut, Options, note_clips, take_clips, take_options
from dpsql.sql.text.constant_selects import constants_of
from dpsql.sql.text.create_domain import parse_forget, parse_search
from dpsql.sql.text.current_date import dated
from dpsql.sql.text.cycle_collector import interruptible_anywhere
from dpsql.sql.text.depth import MAX_DEPTH, check_depth, too_deep, with_room
from dpsql.sql.text.item_texts import note_texts
from dpsql.sql.text.lexemes import (
    MAX_NUMBER,
    MAX_TEXT,
    Fragment,
    Lexeme,
    StatementReader,
    is_dotted,
    lex,
    split_statements,
)
from dpsql.sql.text.misspelled_words import refuse_statement
from dpsql.sql.text.prepared_statements import StatementParts, TextParts, split_at_conditions
from dpsql.sql.text.set_show import parse_set, parse_show
from dpsql.sql.text.synthetic import parse_create, parse_materialize, refuse_change
from dpsql.sql.text.token_rewrites import TooManyArgumentsError, parse_tokens

if TYPE_CHECKING:
    from dpsql.sql.text.create_domain import Search
    from dpsql.sql.text.synthetic import Creation, Materialisation

# Limits of one statement, far above what people and tools write: they bound the time and memory of
# all that follows. How deep it may be is in depth.
MAX_NODES = 10_000
MAX_ITEMS = 1_000
MAX_STRING = 4 * 1024

QUERY = ("query",)
"""The object of DESCRIBE where it is about a SELECT."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
TYPES = {
    re.split(r"\W", word.lower())[-1]
    for word, kind in DuckDB.Tokenizer.KEYWORDS.items()
    if kind in DuckDB.Parser.TYPE_TOKENS
}
"""Words that may be types, which the parser tries before it reads a call: twice for each level."""
_GAPS = {("(", ","), (",", ","), ("[", ",")}
"""Neighbours between which something is missing."""
_BEFORE_ROWS = {
    *("select", "distinct", "where", "having", "qualify", "on", "by", "when", "then", "else"),
    *("and", "or", "not", "between", "like", "is", "case", "limit", "offset", "from", "join"),
}
"""Words after which parentheses make a row of what they hold, and are no list."""
_UNARY = {"not", "-", "+", "~"}
_OPENING = {"(", "[", "case"}
_CLOSING = {")", "]", "end"}
FORM = "SELECT ... FROM table [WHERE ...] [GROUP BY ...] [HAVING ...] [ORDER BY ...] [LIMIT ...]"

_OPEN_QUOTE = "a quote is not closed", "a quote within a text is written twice"
_OPEN_COMMENT = "a comment is not closed", "*/ ends it"
_REFUSED_SYMBOLS = {
    "$": ("$ is not supported", "texts are quoted by ', parameters are given beside the SQL"),
    "`": ("` is not supported", "texts are quoted by ', names by \""),
}


@dataclass(frozen=True, slots=True)
class Statement:
    """A recognised statement: its kind, the fragment and its argument.

    ``kind`` is one of select, constant, set, show, describe, begin, run, cancel, forecast, create,
    materialize, find, forget.
    ``explain`` marks EXPLAIN; ``creation`` and ``rows`` are about synthetic tables, ``search``
    about domains and bounds that are to be found.
    ``words`` are the arguments of our own statements; ``tree`` the parsed SELECT; ``options`` the
    settings of its WITH DIFFERENTIAL_PRIVACY clause, ``clips`` the contribution bounds of its
    aggregates, ``cut`` where a column is clipped in all of them; ``sql`` is the SELECT without
    options and bounds, blanks in their place; ``form`` is what its syntax depends on, literals
    left out, "" where nobody knows; ``columns`` are what a dialect of its own says it returns;
    ``parts`` are those of a SELECT of simple conditions, and where all of them were
    parsed before there may be no ``tree``.
    """

    kind: str
    fragment: Fragment
    explain: bool = False
    words: tuple[str, ...] = ()
    tree: exp.Query | None = None
    options: Options = ()
    clips: Clips = field(default_factory=dict)
    cut: Cut | None = None
    sql: str = ""
    form: str = ""
    parts: TextParts | None = None
    creation: Creation | None = None
    rows: Materialisation | None = None
    search: Search | None = None
    columns: Columns | None = None

    @property
    def is_clipped(self) -> bool:
        """True if its sums are clipped at a threshold, which is chosen for sums of values."""
        return any(name in CLIPPING for name, _ in self.options)


@interruptible_anywhere
def parse(fragment: Fragment, known: StatementParts | None = None) -> Statement:
    """Recognise one statement; one of ``known`` parts is not parsed again.

    Raises: ProgrammingError (E_PARSE, E_CONTROL_CHAR, E_TOO_LARGE, E_TOO_COMPLEX, E_LITERAL,
    E_SETTING) or NotSupportedError (E_STATEMENT).
    """
    parts = (
        None if known is None or fragment.reader is not None else split_at_conditions(fragment.body)
    )
    if known is None or parts is None:
        return _parse(fragment)
    if known.is_parsed(parts):
        return Statement("select", fragment, sql=fragment.body, parts=parts)
    statement = _parse(fragment)
    if statement.sql != fragment.body or statement.fragment is not fragment:
        return statement  # its day was written out, or options were cut out
    known.note(parts)
    return replace(statement, parts=parts)


def _parse(fragment: Fragment) -> Statement:
    lexemes = check_limits(fragment)
    if (written := dated(fragment, lexemes)) is not fragment:
        return _parse(written)
    if (
        MARK in fragment.body.lower()
        and (written := rewrite_anonymization(fragment, lexemes)) is not fragment
    ):
        return _parse(written)
    words = [lexeme.text.lower() for lexeme in lexemes[:3]]
    match words:
        case []:
            raise ProgrammingError("E_PARSE", "the statement is empty", hint="write a SELECT")
        case ["explain", "analyze", *_]:
            _refuse(fragment, lexemes, "EXPLAIN ANALYZE", "EXPLAIN is free and never runs")
        case ["explain", "select" | "from" | "with" | "(" | "values" | "pivot" | "unpivot", *_]:
            inner = replace(fragment, start=fragment.start + lexemes[1].start)
            return _parse_select(inner, check_limits(inner), explain=True)
        case ["set", *_]:
            return Statement("set", fragment, words=parse_set(fragment, lexemes))
        case ["show", *_]:
            return Statement("show", fragment, words=parse_show(fragment, lexemes))
        case ["describe" | "desc", "select" | "from" | "with" | "(" | "pivot" | "unpivot", *_]:
            return Statement("describe", fragment, words=("", *QUERY))
        case ["describe" | "desc", *_] if is_dotted(lexemes[1:]):
            name = "".join(lexeme.name for lexeme in lexemes[1:])
            return Statement("describe", fragment, words=(name,))
        case ["describe" | "desc", "domain" | "bounds" as what, _] if len(lexemes) == 3:
            return Statement("describe", fragment, words=(lexemes[2].name, what))
        case ["describe" | "desc", "synthetic", "table"] if len(lexemes) == 4:
            return Statement("describe", fragment, words=(lexemes[3].name, "synthetic"))
        case ["describe" | "desc", *_]:
            instead = "DESCRIBE and the name of one table; SHOW tables lists them"
            _refuse(fragment, lexemes, "DESCRIBE of anything but a table", instead)
        case ["begin" | "run" | "cancel" as kind, "workload"] if len(lexemes) == 2:
            return Statement(kind, fragment)
        case ["rollback"] | ["rollback", "work" | "transaction"]:
            return Statement("cancel", fragment, words=("rollback",))
        case ["rollback", *_]:
            instead = "ROLLBACK forgets an open workload; what was released stays released"
            _refuse(fragment, lexemes, "ROLLBACK to anywhere", instead)
        case ["explain", "run", "workload"] if len(lexemes) == 3:
            return Statement("forecast", fragment)
        case ["create", "synthetic", *_]:
            return Statement("create", fragment, creation=parse_create(fragment, lexemes))
        case ["explain", "create", "synthetic"]:
            inner = replace(fragment, start=fragment.start + lexemes[1].start)
            creation = parse_create(inner, check_limits(inner))
            return Statement("create", fragment, explain=True, creation=creation)
        case ["create", "domain" | "bounds", *_]:
            return Statement("find", fragment, search=parse_search(fragment, lexemes))
        case ["explain", "create", "domain" | "bounds"]:
            inner = replace(fragment, start=fragment.start + lexemes[1].start)
            search = parse_search(inner, check_limits(inner))
            return Statement("find", fragment, explain=True, search=search)
        case ["drop", "domain" | "bounds", *_]:
            return Statement("forget", fragment, words=parse_forget(fragment, lexemes))
        case ["materialize", "synthetic", *_]:
            return Statement("materialize", fragment, rows=parse_materialize(fragment, lexemes))
        case ["insert" | "update" | "delete" | "drop" | "alter" | "truncate", *_]:
            refuse_change(fragment, lexemes)
        case ["select", *_] if constants_of(lexemes):
            return Statement("constant", fragment)
        case ["select" | "from" | "with" | "(" | "values" | "pivot" | "unpivot", *_]:
            return _parse_select(fragment, lexemes)
        case _:
            refuse_statement(fragment, lexemes)


def parse_select(fragment: Fragment) -> Statement:
    """Parse a statement that must be a SELECT without terms of its own.

    Raises: as ``parse``, and ProgrammingError (E_STATEMENT).
    """
    statement = parse(fragment)
    if statement.kind != "select" or statement.explain or statement.options:
        raise ProgrammingError(
            "E_STATEMENT",
            "a workload consists of plain SELECTs",
            hint="FOR (SELECT ...; SELECT ...)",
            span=fragment.whole(),
        )
    return statement


def reparse(text: str, reader: StatementReader | None = None) -> Statement:
    """Parse the text of a SELECT that was parsed before, in the same dialect."""
    return parse(Fragment(text, 0, len(text), reader))


def check_limits(fragment: Fragment) -> list[Lexeme]:
    """Check size, characters, nesting, literals and list lengths; return the solid lexemes."""
    body = fragment.body
    if len(body) > MAX_TEXT or len(body.encode("utf-8", "surrogatepass")) > MAX_TEXT:
        raise ProgrammingError(
            "E_TOO_LARGE", f"the statement is longer than {MAX_TEXT // 1024} KiB"
        )
    control = _CONTROL.search(body)
    if control is not None:
        raise ProgrammingError(
            "E_CONTROL_CHAR",
            f"control character {printable(control.group())} in the text",
            hint="leave it out; tabs and line ends are fine",
            span=fragment.span(control.start(), control.end()),
        )
    solid = [lexeme for lexeme in lex(body) if lexeme.kind not in ("space", "comment")]
    depth = unary = chained = read = 0
    commas, times, colons, opened, rows = [0], [1], [0], [""], [False]
    before = ""
    for lexeme in solid:
        if lexeme.kind != "word":
            _check_lexeme(fragment, lexeme)
        word = lexeme.text.lower()
        unary = unary + 1 if word in _UNARY else 0
        if word in _OPENING:
            chained = chained + 1 if (before, word) == ("]", "[") else 0
            depth += 1
            commas.append(0)
            colons.append(0)
            opened.append("values" if rows[-1] else before)
            rows.append(False)
            times.append(times[-1] * (2 if before in TYPES else 1))
        elif word in _CLOSING:
            _check_end(fragment, lexeme, before, (opened[-1], commas[-1], colons[-1]))
            colons, opened, rows = colons[:-1] or [0], opened[:-1] or [""], rows[:-1] or [False]
            depth = max(0, depth - 1)
            commas, times = commas[:-1] or [0], times[:-1] or [1]
        elif word == ",":
            commas[-1] += 1
        else:
            rows[-1] = word == "values"
        colons[-1] += word == ":"
        if (before, word) in _GAPS:
            fragment.refuse(
                lexeme,
                "E_PARSE",
                "something is missing before this",
                "leave the comma out, or write what follows it",
            )
        before = word
        read += times[-1]
        if read > MAX_NODES >= len(solid):
            fragment.refuse(
                lexeme,
                "E_TOO_COMPLEX",
                "names of types are nested too deeply: what they are called with is read twice",
                "leave some of DATE(...), CHAR(...), ARRAY[...] and the like out",
            )
        if max(depth, unary, chained) > MAX_DEPTH:
            fragment.refuse(
                lexeme,
                "E_TOO_COMPLEX",
                f"nested over {MAX_DEPTH} deep",
                "leave parentheses, signs and subscripts out",
            )
        if commas[-1] >= MAX_ITEMS:
            fragment.refuse(
                lexeme,
                "E_TOO_LARGE",
                f"a list of over {MAX_ITEMS} items",
                "use BETWEEN, or join a public table",
            )
    if len(solid) > MAX_NODES:
        raise ProgrammingError("E_TOO_LARGE", f"the statement has over {MAX_NODES} tokens")
    return solid


def opens_list(before: str) -> bool:
    """Say whether parentheses after a word hold a list, be it of one item; a row of values if not.

    >>> opens_list("in"), opens_list("abs"), opens_list("where"), opens_list("=")
    (True, True, False, False)
    """
    return before not in _BEFORE_ROWS and (before[-1:].isalnum() or before[-1:] in ("_", '"'))


def _check_end(
    fragment: Fragment, lexeme: Lexeme, before: str, found: tuple[str, int, int]
) -> None:
    """Refuse what the parser leaves out at the end of a list: DuckDB reads it as something else.

    ``found`` is what stands before the list, and how many commas and colons are in it.
    """
    opened, commas, colons = found
    if (before, lexeme.text) == (",", ")") and commas == 1 and not opens_list(opened):
        what = "a row of one value is not supported"
        fragment.refuse(lexeme, "E_PARSE", what, "leave the comma out")
    if (before, lexeme.text) == (":", "]") and colons > 1:
        what = "the step of a slice is missing"
        fragment.refuse(lexeme, "E_PARSE", what, "leave the second colon out")


def _check_lexeme(fragment: Fragment, lexeme: Lexeme) -> None:
    if lexeme.kind == "number":
        text = lexeme.text.replace("_", "")
        if len(text) > MAX_NUMBER or not math.isfinite(float(text)):
            fragment.refuse(
                lexeme,
                "E_LITERAL",
                f"a number of over {MAX_NUMBER} characters or not finite",
                "write it shorter, for example 1e30",
            )
    elif lexeme.kind in ("string", "escaped", "quoted") and len(lexeme.text) > MAX_STRING:
        fragment.refuse(
            lexeme, "E_LITERAL", f"a text of over {MAX_STRING} characters", "write a shorter text"
        )
    elif lexeme.kind == "open":
        is_comment = lexeme.text.startswith("/*")
        what, hint = _OPEN_COMMENT if is_comment else _OPEN_QUOTE
        fragment.refuse(lexeme, "E_PARSE", what, hint)
    elif lexeme.kind == "symbol" and lexeme.text in _REFUSED_SYMBOLS:
        what, instead = _REFUSED_SYMBOLS[lexeme.text]
        fragment.refuse(lexeme, "E_PARSE", what, instead)


def _refuse(fragment: Fragment, lexemes: list[Lexeme], what: str, instead: str) -> NoReturn:
    raise NotSupportedError(
        "E_STATEMENT",
        f"{printable(what)} is not supported",
        hint=f"what works: {instead}",
        span=fragment.at(lexemes[0]),
    )


def _parse_select(fragment: Fragment, lexemes: list[Lexeme], *, explain: bool = False) -> Statement:
    text, options = take_options(fragment, lexemes)
    rest, reports = lexemes, list[tuple[int, int]]()
    if WORD in text.casefold():
        text, rest, reports = take_reports(fragment, text, lexemes)
    text, clips = take_clips(fragment, text, rest)
    if reports:
        text = marked(fragment, text, reports)
    _check_intervals(fragment, lexemes)
    _check_pivots(fragment, lexemes)
    left, (text, top) = text, take_top(respelled(text, lexemes), lexemes)
    try:
        read = with_room(partial(_read, text, fragment))
    except (SqlglotError, TooManyArgumentsError) as error:
        raise _parse_error(fragment, lexemes, error) from None
    except RecursionError:
        raise too_deep() from None
    except (ValueError, MemoryError, LookupError, TypeError, AttributeError):
        what = "the statement cannot be parsed"
        raise ProgrammingError("E_TOO_COMPLEX", what, hint=FORM) from None
    if len(read.trees) != 1 or read.trees[0] is None:
        raise ProgrammingError("E_MULTI_STATEMENT", "more than one statement")
    tree = read.trees[0]
    if not isinstance(tree, exp.Select | exp.SetOperation | exp.Subquery):
        _refuse(fragment, lexemes, type(tree).__name__.upper(), "SELECT ... FROM table")
    check_depth(tree)
    if top is not None:
        if not isinstance(tree, exp.Select) or tree.args.get("limit") or tree.args.get("offset"):
            what, hint = "TOP beside LIMIT or a set operation", "LIMIT at the end of all of it"
            raise ProgrammingError("E_PARSE", what, hint=hint, span=fragment.whole())
        tree.set("limit", exp.Limit(expression=exp.Literal.number(top)))
    here = partial(locate, fragment=fragment)
    check_selected(tree, here)
    check_inverted(tree, here)
    check_nested(tree, here)
    tree = plain(tree, NodeLimit(len(lexemes)))
    check_calls(tree, here)
    if fragment.reader is None:
        note_texts(tree, fragment.body, left, lexemes)
    if clips:
        note_clips(tree, clips, fragment)
    return Statement(
        "select",
        fragment,
        explain,
        tree=tree,
        options=options,
        clips=clips,
        sql=read.sql,
        form=_form(lexemes) if fragment.reader is None else "",
        columns=read.columns,
    )


def _read(text: str, fragment: Fragment) -> ReadSelect:
    """Parse a query by the dialect that it is in."""
    if fragment.reader is None:
        return ReadSelect(text, parse_tokens(text), None)
    return fragment.reader.read(text, fragment)


MAX_COLUMNS = 1_000
"""Columns that a PIVOT may make."""
_UNITS = {
    *("year", "years", "quarter", "quarters", "month", "months", "week", "weeks", "day", "days"),
    *("hour", "hours", "minute", "minutes", "second", "seconds", "millisecond", "milliseconds"),
    *("microsecond", "microseconds", "decade", "decades", "century", "centuries"),
    *("millennium", "millennia"),
}
"""Units of DuckDB's intervals."""


def _check_intervals(fragment: Fragment, lexemes: Sequence[Lexeme]) -> None:
    """Refuse INTERVAL 2, which the parser takes for two seconds. Raises: ProgrammingError."""
    words = [*(each.text.lower() for each in lexemes), ""]
    for place, (word, unit) in enumerate(zip(words, words[2:], strict=False)):
        if word == "interval" and lexemes[place + 1].kind == "number" and unit not in _UNITS:
            number = lexemes[place + 1]
            hint = f"INTERVAL {number.text} DAY"
            fragment.refuse(number, "E_PARSE", "an INTERVAL of a number needs a unit", hint)


def _check_pivots(fragment: Fragment, lexemes: Sequence[Lexeme]) -> None:
    """Refuse PIVOT over too many combinations: the parser names each. Raises: ProgrammingError."""
    words = [*(each.text.lower() for each in lexemes), ""]
    for first, opening in enumerate(itertools.pairwise(words)):
        if opening != ("pivot", "("):
            continue
        depth = listed = 0
        columns = 1
        for place in range(first + 1, len(words)):
            word = words[place]
            depth += (word == "(") - (word == ")")
            if depth == 0:
                break
            if depth == 2 and word == "(":
                listed = words[place - 1] == "in"
            elif depth == 2 and word == "," and listed and words[place + 1] != ")":
                listed += 1
            elif depth == 1 and word == ")":
                columns *= listed or 1
                listed = 0
        if columns > MAX_COLUMNS:
            what = f"PIVOT makes over {MAX_COLUMNS:,} columns"
            fragment.refuse(lexemes[first], "E_TOO_LARGE", what, "list fewer values after IN")


def _form(lexemes: Sequence[Lexeme]) -> str:
    literal = ("number", "string")
    return " ".join([each.kind if each.kind in literal else each.text for each in lexemes])


def parse_view(sql: str) -> exp.Query:
    """Parse the SELECT of a view, within the limits of a statement.

    Raises: ProgrammingError or NotSupportedError.
    """
    fragments = split_statements(sql)
    if len(fragments) != 1:
        raise ProgrammingError("E_MULTI_STATEMENT", "not one statement", hint="write one SELECT")
    statement = parse(fragments[0])
    if statement.fragment != fragments[0]:
        what, hint = "a view of another day every day", "write the day: DATE '2024-01-01'"
        raise ProgrammingError("E_NONDETERMINISTIC", what, hint=hint)
    if statement.tree is None or statement.explain or statement.options or statement.clips:
        raise NotSupportedError("E_STATEMENT", "this is not a plain SELECT", hint="SELECT ...")
    return statement.tree


def _parse_error(fragment: Fragment, lexemes: list[Lexeme], error: Exception) -> ProgrammingError:
    facts = (getattr(error, "errors", None) or [{}])[0]
    line, column = facts.get("line"), facts.get("col")
    if not line or not column:
        span = fragment.at(lexemes[-1])
        return ProgrammingError("E_PARSE", "the statement cannot be parsed", hint=FORM, span=span)
    lines = fragment.body.split("\n")
    word = str(facts.get("highlight") or " ")
    end = sum(len(text) + 1 for text in lines[: line - 1]) + column
    start = max(0, end - len(word))
    is_call = isinstance(error, TooManyArgumentsError)
    return ProgrammingError(
        "E_FUNCTION" if is_call else "E_PARSE",
        str(facts["description"]) if is_call else f"cannot be parsed near {printable(word)!r}",
        hint="leave the others out" if is_call else FORM,
        span=fragment.span(start, max(end, start + 1)),
    )
