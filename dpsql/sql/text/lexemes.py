"""SQL text as lexemes, values as literals, statements as fragments of a script; no grammar."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol

from dpsql.errors import ProgrammingError, Span
from dpsql.records import dataclass, field
from dpsql.sql.text.cycle_collector import interruptible_anywhere

if TYPE_CHECKING:
    from dpsql.sql.dialects.dialect_queries import ReadSelect

MAX_TEXT = 64 * 1024
"""Longest statement, in bytes and in characters."""

MAX_STATEMENT = 4 * MAX_TEXT
"""Longest text of one statement, with its comments, that is looked at."""

MAX_STATEMENTS = 10_000
"""Most statements of a script."""

MAX_NUMBER = 40
"""Most characters of a number: a DECIMAL has at most 38 digits, beside a point and a sign."""

_LEXEME = re.compile(
    r"""(?P<space>\s+)
      | (?P<escaped>[eE]'(?:[^'\\]++|''|\\.)*+')
      | (?P<word>[^\W\d]\w*)
      | (?P<number>(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)
      | (?P<string>'(?:[^']++|'')*+')
      | (?P<quoted>"(?:[^"]++|"")*+")
      | (?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<open>['"].*|/\*.*)
      | (?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)
"""Quantifiers of quoted text are possessive: to go back, 300 bytes a character were remembered."""


class Lexeme(NamedTuple):
    """One token: its kind (a group name of the pattern), text and start."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """Position after the last character of the token."""
        return self.start + len(self.text)

    @property
    def name(self) -> str:
        """The lexeme as a name, without quotes."""
        return self.text[1:-1].replace('""', '"') if self.kind == "quoted" else self.text


class StatementReader(Protocol):
    """Reads the queries of a session that are in another dialect than DuckDB's."""

    def read(self, text: str, fragment: Fragment) -> ReadSelect:
        """Read a query; ``text`` is that of the fragment, with blanks for what is dpsql's own."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """One statement's text within a script: ``text[start:end]`` without its semicolon.

    ``reader`` reads its queries; None where they are DuckDB's.
    """

    text: str
    start: int
    end: int
    reader: StatementReader | None = field(default=None, repr=False)
    body: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "body", self.text[self.start : self.end])

    @property
    def dialect(self) -> str:
        """The dialect that its queries are in."""
        return "duckdb" if self.reader is None else "postgres"

    def span(self, start: int, end: int) -> Span:
        """A span given by offsets within the fragment."""
        return Span(self.text, self.start + start, self.start + end)

    def at(self, first: Lexeme, last: Lexeme | None = None) -> Span:
        """The span of a lexeme, or from one to another."""
        return self.span(first.start, (last or first).end)

    def refuse(self, lexeme: Lexeme, code: str, what: str, hint: str) -> NoReturn:
        """Say what is wrong at a lexeme. Raises: ProgrammingError."""
        raise ProgrammingError(code, what, hint=hint, span=self.at(lexeme))

    def whole(self) -> Span:
        """The span of the statement."""
        return self.span(0, self.end - self.start)


def lex(text: str) -> list[Lexeme]:
    """Cut text into lexemes; every character belongs to exactly one."""
    return [
        Lexeme(str(match.lastgroup), match.group(), match.start())
        for match in _LEXEME.finditer(text)
    ]


def is_dotted(lexemes: Sequence[Lexeme]) -> bool:
    """True if lexemes are a name, with or without a schema."""
    dots = [lexeme.text == "." for lexeme in lexemes]
    return dots in ([False], [False, True, False], [False, True, False, True, False])


def split_script(text: str) -> tuple[list[Fragment], str]:
    """Split a script at the semicolons outside quotes and comments.

    Returns the complete statements and the unfinished rest (blank if there is none).

    >>> [f.body for f in split_script("SELECT ';' ; -- a;b\\n SHOW budget")[0]]
    ["SELECT ';'"]
    >>> split_script("SELECT 1; SHOW budget")[1].strip()
    'SHOW budget'
    """
    fragments, last, rest = _split(text)
    return fragments, text[rest:] if last is not None else ""


def split_statements(text: str) -> list[Fragment]:
    """Split a script whose last statement need not end with a semicolon."""
    fragments, last, _ = _split(text)
    return fragments if last is None else [*fragments, last]


@interruptible_anywhere
def _split(text: str) -> tuple[list[Fragment], Fragment | None, int]:
    """The complete statements, the one without semicolon if any, and where the rest starts."""
    fragments: list[Fragment] = []
    first = last = -1
    rest = depth = 0
    opening: list[str] = []
    for match in _LEXEME.finditer(text):
        if match.lastgroup in ("space", "comment"):
            continue
        if match.lastgroup == "symbol":
            symbol = match.group()
            if symbol == ";" and not (depth > 0 and _holds_statements(opening)):
                if first >= 0:
                    fragments.append(Fragment(text, first, last))
                    _check_script(fragments)
                first, rest, depth, opening = -1, match.end(), 0, []
                continue
            depth += (symbol == "(") - (symbol == ")")
        first = match.start() if first < 0 else first
        last = match.end()
        if last - first > MAX_STATEMENT:  # before it is read further, or looked at twice
            raise ProgrammingError("E_TOO_LARGE", f"a statement of over {MAX_STATEMENT} characters")
        if len(opening) < 2:
            opening.append(match.group().lower())
    return fragments, Fragment(text, first, last) if first >= 0 else None, rest


def _check_script(fragments: Sequence[Fragment]) -> None:
    """Refuse a script of too many statements, before it is split further."""
    if len(fragments) > MAX_STATEMENTS:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"a script of over {MAX_STATEMENTS:,} statements",
            hint="one after the other: what is released stays free",
            span=fragments[-1].whole(),
        )


def blank_out(text: str, start: int, end: int) -> str:
    """A text with blanks instead of a part of it, so that positions stay.

    >>> blank_out("ab cd", 1, 4)
    'a   d'
    """
    blank = "".join("\n" if char == "\n" else " " for char in text[start:end])
    return text[:start] + blank + text[end:]


def _holds_statements(opening: list[str]) -> bool:
    """True if a statement that opens so may hold others in parentheses: CREATE, EXPLAIN CREATE."""
    return opening[:1] == ["create"] or opening[:2] == ["explain", "create"]


def render_literal(value: object) -> str:
    """Write a Python value as a SQL literal.

    Raises: ProgrammingError (E_LITERAL) for numbers too long or not finite, (E_PARSE) for others.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() if abs(value) < 10**MAX_NUMBER:
            return _signed(int.__repr__(value))
        case float() if math.isfinite(value):
            return _signed(float.__repr__(value))
        case Decimal() if value.is_finite() and abs(value.adjusted()) < MAX_NUMBER:
            return _signed(f"{value:f}")
        case int() | float() | Decimal():
            raise ProgrammingError("E_LITERAL", "a number parameter is too long or not finite")
        case str():
            return "'" + value.replace("'", "''") + "'"
        case dt.datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case dt.time() if value.tzinfo is None:
            return f"TIME '{value.isoformat()}'"
        case list():
            return f"ARRAY[{', '.join(map(render_literal, value))}]"
    plain = _plain(value)
    if type(plain) is not type(value):
        return render_literal(plain)
    raise ProgrammingError("E_PARSE", f"a {type(value).__name__} cannot be a parameter")


def _signed(digits: str) -> str:
    """A number as SQL; a sign is part of it, whatever stands before or after."""
    return f"({digits})" if digits.startswith("-") else digits


def _plain(value: object) -> object:
    """The Python value of a numpy scalar; anything else as it is."""
    item = getattr(value, "item", None)
    try:
        return item() if callable(item) else value
    except (TypeError, ValueError):
        return value
