"""One exception tree: PEP 249 classes at the root, structure first, text last.

Every error carries a stable ``code`` (part of the interface), a message, an optional hint that
says what would work instead and, for SQL, the span of text it is about. Messages are functions
of the SQL text and the catalog only; nothing here ever holds a value read from private data.
"""

from __future__ import annotations

import re
import traceback
import unicodedata
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from dpsql.forks import is_whole
from dpsql.records import dataclass

_DIGEST = re.compile(r" #[0-9a-f]{12}\b")


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters, ``text[start:end]``, of the SQL the user wrote."""

    text: str
    start: int
    end: int

    @classmethod
    def whole(cls, text: str) -> Span:
        """Return the span of a text without the blanks around it."""
        return cls(text, len(text) - len(text.lstrip()), len(text.rstrip()))

    def position(self) -> tuple[int, int]:
        """Return the 1-based (line, column) of the start.

        >>> Span("SELECT\\n  nope", 9, 13).position()
        (2, 3)
        """
        before = self.text[: self.start]
        return before.count("\n") + 1, self.start - (before.rfind("\n") + 1) + 1

    def caret(self, width: int = 80) -> str:
        """Return the line the span starts on with carets under it, control characters escaped.

        Of a line that is longer than ``width`` cells a window is shown, so that it never wraps.
        """
        line, column = self.position()
        source = self.text.split("\n")[line - 1]
        length = max(1, min(self.end - self.start, len(source) - column + 1))
        pieces = source[: column - 1], source[column - 1 : column - 1 + length]
        left, marked, rest = map(printable, (*pieces, source[column - 1 + length :]))
        prefix = f"line {line}: "
        room = max(MIN_WINDOW, width - len(prefix))
        marked = _cut_end(marked, room - min(len(DOTS), text_width(left)))
        spare = room - text_width(marked)
        after = min(text_width(rest), max(spare // 3, spare - text_width(left)))
        left = _cut_start(left, spare - after)
        rest = _cut_end(rest, spare - text_width(left))
        blank = " " * (len(prefix) + text_width(left))
        return f"{prefix}{left}{marked}{rest}\n{blank}{'^' * max(1, text_width(marked))}"


MIN_WINDOW = 12
"""Cells of a line that are shown however narrow the terminal: less would name nothing."""

DOTS = "..."


def _cut_start(text: str, width: int) -> str:
    """The end of a text in so many terminal cells."""
    return _cut_end(text[::-1], width)[::-1]


def _cut_end(text: str, width: int) -> str:
    """The beginning of a text in so many terminal cells."""
    if text_width(text) <= width:
        return text
    kept, used = "", len(DOTS)
    for character in text:
        used += cell_width(character)
        if used > width:
            break
        kept += character
    return (kept + DOTS)[: max(0, width)]


def text_width(text: str) -> int:
    """Return how many terminal cells a text takes.

    >>> text_width("abc"), text_width("日本")
    (3, 4)
    """
    return len(text) if text.isascii() else sum(map(cell_width, text))


def cell_width(character: str) -> int:
    """Return how many terminal cells a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
"""Letters and marks that no font draws, besides what Python does not call printable.

Source: Unicode, DerivedCoreProperties, Default_Ignorable_Code_Point.
"""


def is_seen(text: str) -> bool:
    """True where all of a text is drawn where it stands: no controls, directions, zero widths."""
    return text.isprintable() and (text.isascii() or _UNSEEN.search(text) is None)


def escaped(character: str) -> str:
    """A character as it is where it is seen, else by its number.

    >>> escaped("a"), escaped("\\u202e"), escaped("\\x1b")
    ('a', '\\\\u202e', '\\\\x1b')
    """
    return character if is_seen(character) else character.encode("unicode_escape").decode()


def printable_fields(text: str) -> str:
    """Escape what is not seen, as ``printable`` does, but for line ends and tabs.

    >>> printable_fields("a\\x1b[31m\\tb\\r\\n")
    'a\\\\x1b[31m\\tb\\\\r\\n'
    """
    if is_seen(text):
        return text
    return "".join(each if each in "\n\t" else escaped(each) for each in text)


def printable(text: str) -> str:
    """Escape what is not seen, so that text of the data neither drives nor deceives who reads it.

    That are controls, marks of direction, zero widths and line ends; a tab becomes a blank.

    >>> printable("a\\x1b[31mb"), printable("a\\tb\\u200b")
    ('a\\\\x1b[31mb', 'a b\\\\u200b')
    """
    if is_seen(text):
        return text
    return "".join(" " if c == "\t" else escaped(c) for c in text)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that another one is a slip of; None where no slip is so small.

    One letter is put in, left out, exchanged or changed; of long names, a quarter of them.

    >>> nearest("icnome", ["age", "income"]), nearest("agw", ["age", "income"])
    ('income', 'age')
    >>> nearest("nope", ["age", "income"])
    """
    from difflib import SequenceMatcher, get_close_matches  # few names are not known

    for near in get_close_matches(name, list(known), n=1):
        alike = SequenceMatcher(None, near, name).ratio()
        if alike >= 0.75 or (1 - alike) * (len(near) + len(name)) < 2.5:
            return near
    return None


def printable_lines(text: str) -> str:
    """Escape what is not seen in each line of a text.

    >>> printable_lines("a\\nb\\r")
    'a\\nb\\\\r'
    """
    return "\n".join(map(printable, text.split("\n")))


def without_digests(text: str) -> str:
    """Return the names of derived tables as people read them: without the digests at their end.

    >>> without_digests("no cell of visits by patient_id #1e6a6cce2db3.sum(cost)")
    'no cell of visits by patient_id.sum(cost)'
    """
    return _DIGEST.sub("", text)


class Warning(Exception):
    """PEP 249 Warning; dpsql never raises it."""


class Error(Exception):
    """Root of every dpsql error (PEP 249)."""

    exit_code = 1

    def __init__(
        self, code: str, message: str, *, hint: str | None = None, span: Span | None = None
    ) -> None:
        message = printable_lines(without_digests(message))
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint and printable_lines(without_digests(hint))
        self.span = span

    def __str__(self) -> str:
        return self.told()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it as it is: pools of processes send errors back."""
        return _as_it_was, (type(self), self.args), vars(self)

    def told(self, width: int = 80) -> str:
        """Return the whole text, its caret on a terminal of so many cells."""
        parts = [f"{self.message} [{self.code}]"]
        if self.span is not None:
            parts.append(self.span.caret(width))
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)

    def _render_traceback_(self) -> list[str]:
        """Return the message alone for IPython, since calls inside dpsql say nothing more."""
        return f"{type(self).__name__}: {self}".splitlines()


def _as_it_was(kind: type[Error], args: tuple[Any, ...]) -> Error:
    return kind.__new__(kind, *args)


class InterfaceError(Error):
    """Misuse of the Python interface (PEP 249), such as a closed cursor."""


class DatabaseError(Error):
    """PEP 249 DatabaseError."""


class DataError(DatabaseError):
    """A value that cannot be used (PEP 249), such as a malformed epsilon."""


class OperationalError(DatabaseError):
    """The data or the ledger cannot be used (PEP 249)."""

    exit_code = 3


class IntegrityError(DatabaseError):
    """PEP 249 IntegrityError."""


class InternalError(DatabaseError):
    """A failure inside the membrane, whose text is constant, or a defect of dpsql (PEP 249)."""

    exit_code = 3

    def _render_traceback_(self) -> list[str]:
        """Return the whole traceback: whoever reports a defect needs it."""
        return "".join(traceback.format_exception(self)).splitlines()


class ProgrammingError(DatabaseError):
    """A statement that is refused (PEP 249)."""


class NotSupportedError(DatabaseError):
    """A statement form that dpsql refuses by name (PEP 249)."""


class CatalogError(ProgrammingError):
    """The catalog is not valid; the message names file, table, column and the remedy."""

    exit_code = 2


class UsageError(ProgrammingError):
    """The command line cannot be followed: an unknown option value, an unwritable output."""

    exit_code = 2


class DataUnavailable(OperationalError):
    """The source of a table cannot be opened."""


class LedgerError(OperationalError):
    """The ledger is missing, foreign, damaged, rolled back or cannot be written durably."""


class BudgetExceeded(OperationalError):
    """A valid request that the remaining budget does not admit; nothing was charged.

    ``requested`` and ``remaining`` are epsilons as exact fractions; ``whose`` says which budgets
    refused: the total, that of a table, that of an analyst.
    """

    exit_code = 5

    def __init__(
        self,
        requested: Fraction,
        remaining: Fraction,
        what: str = "epsilon",
        whose: tuple[str, ...] = (),
    ) -> None:
        self.requested = requested
        self.remaining = remaining
        self.difference = requested - remaining
        self.whose = whose
        by = f" by {' and '.join(map(printable, whose))}" if whose else ""
        super().__init__(
            "E_BUDGET",
            f"budget refused{by} ({what}): Requested {_amount_text(requested)}, "
            f"Remaining {_amount_text(remaining)}, Difference {_amount_text(self.difference)}",
            hint="nothing was charged; ask for a smaller epsilon, or see SHOW budget",
        )


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a statement, and what became of what was charged; a KeyboardInterrupt still.

    ``charged`` is the epsilon that the statement was charged, ``lost`` the part of it that nothing
    was stored for; both are exact.
    """

    code = "E_INTERRUPTED"
    exit_code = 130

    def __init__(self, charged: Fraction = Fraction(0), lost: Fraction = Fraction(0)) -> None:
        self.charged = charged
        self.lost = lost
        paid, gone = decimal_text(charged), decimal_text(lost)
        if not charged:
            outcome = "nothing was charged"
        elif not lost:
            outcome = f"epsilon {paid} was charged and what it paid for is stored: ask again, free"
        else:
            part = "" if lost == charged else f" of epsilon {paid} that was charged"
            outcome = f"epsilon {gone}{part} is lost: it was charged, and nothing came of it yet"
        self.message = f"interrupted: {outcome}"
        super().__init__(f"{self.message} [{self.code}]")

    def _render_traceback_(self) -> list[str]:
        """Return the message alone for IPython."""
        return [str(self)]


def is_interrupt(error: BaseException) -> bool:
    """True if a failure is what DuckDB makes of Ctrl-C, which it catches itself."""
    return isinstance(error, RuntimeError) and str(error) == "Query interrupted"


def _amount_text(amount: Fraction) -> str:
    """Write an epsilon as a decimal, a delta as a power of ten.

    >>> _amount_text(Fraction(3, 10)), _amount_text(Fraction(1, 10**12))
    ('0.3', '1e-12')
    """
    tiny = 0 < abs(amount) < Fraction(1, 10**6)
    return f"{float(amount):g}" if tiny else decimal_text(amount)


def decimal_text(value: Fraction) -> str:
    """Write a fraction as a short decimal of at most twelve places, rounded down.

    >>> decimal_text(Fraction(3, 10)), decimal_text(Fraction(2)), decimal_text(Fraction(1, 3))
    ('0.3', '2', '0.333333333333')
    """
    units = value.numerator * 10**12 // value.denominator
    sign, units = ("-", -units) if units < 0 else ("", units)
    whole, part = divmod(units, 10**12)
    digits = f"{part:012d}".rstrip("0")
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"


def check_fork() -> None:
    """Refuse a child whose parent was in the middle of something. Raises: LedgerError (E_FORK)."""
    if not is_whole():
        raise LedgerError(
            "E_FORK",
            "this process was forked while another thread was in the middle of something",
            hint='start it by "spawn" or "forkserver", or fork before threads ask',
        )
