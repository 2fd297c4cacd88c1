"""CREATE DOMAIN, CREATE BOUNDS and their DROP: what nobody listed is found, or forgotten again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from dpsql.errors import printable
from dpsql.records import dataclass
from dpsql.settings.table import SETTINGS, OptionPlace
from dpsql.sql.text.clauses import read_options
from dpsql.sql.text.lexemes import Fragment, Lexeme

WORDS = ("domain", "bounds")


@dataclass(frozen=True, slots=True)
class Search:
    """A domain, or bounds, to find for a column of a private table; ``text`` is the statement.

    ``more`` are further columns, whose keys are found together with those of the first. It is
    ``lenient`` with IF NOT EXISTS: nothing is found where the column has some already.
    """

    what: str
    name: str
    table: str
    column: str
    options: tuple[tuple[str, str], ...]
    text: str
    lenient: bool = False
    more: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose keys or bounds are looked for."""
        return (self.column, *self.more)


def parse_search(fragment: Fragment, lexemes: Sequence[Lexeme]) -> Search:
    """Read CREATE DOMAIN [IF NOT EXISTS] d FROM t (c, ...) [OPTIONS (...)], or CREATE BOUNDS.

    Raises: ProgrammingError (E_PARSE, E_SETTING); NotSupportedError (E_SETTING).
    """
    words = [lexeme.text.lower() for lexeme in lexemes]
    what, lenient = words[1].upper(), words[2:5] == ["if", "not", "exists"]
    if lenient:
        lexemes = [*lexemes[:2], *lexemes[5:]]
        words = [*words[:2], *words[5:]]
    more = []
    while what == "DOMAIN" and words[7:8] == [","] and len(words) > 9:
        if lexemes[8].kind not in ("word", "quoted"):
            _refuse(fragment, lexemes, 8, what)
        more.append(lexemes[8].name)
        lexemes, words = [*lexemes[:7], *lexemes[9:]], [*words[:7], *words[9:]]
    form = ("create", words[1], None, "from", None, "(", None, ")")
    for place, wanted in enumerate(form):
        if place >= len(words) or wanted not in (None, words[place]):
            _refuse(fragment, lexemes, place, what)
        if wanted is None and lexemes[place].kind not in ("word", "quoted"):
            _refuse(fragment, lexemes, place, what)
    options: dict[str, str] = {}
    if len(words) > len(form):
        if words[8:10] != ["options", "("] or words[-1] != ")":
            _refuse(fragment, lexemes, 8, what)
        options = read_options(fragment, lexemes[10:], OptionPlace.FIND)
        _check(fragment, lexemes[10:], options)
    names = (lexemes[2].name, lexemes[4].name, lexemes[6].name)
    given = tuple(options.items())
    return Search(what, *names, given, fragment.body, lenient, tuple(more))


def parse_forget(fragment: Fragment, lexemes: Sequence[Lexeme]) -> tuple[str, str]:
    """Read DROP DOMAIN d, or DROP BOUNDS d: the name, and which of the two.

    Raises: ProgrammingError (E_PARSE).
    """
    what = lexemes[1].text.upper()
    if len(lexemes) != 3 or lexemes[2].kind not in ("word", "quoted"):
        place = lexemes[min(3, len(lexemes) - 1)]
        near = f"not understood near {printable(place.text)!r}"
        fragment.refuse(
            place, "E_PARSE", near, f"DROP {what} and its name; SHOW domains lists them"
        )
    return lexemes[2].name, what


def _check(fragment: Fragment, lexemes: Sequence[Lexeme], options: dict[str, str]) -> None:
    """Refuse amounts that are none where they stand."""
    texts = [lexeme.text.lower() for lexeme in lexemes]
    for name, text in options.items():
        if name != "epsilon":  # of which the session says how large it may be
            SETTINGS[name].read(text, span=fragment.at(lexemes[texts.index(name) + 2]))


def _refuse(fragment: Fragment, lexemes: Sequence[Lexeme], place: int, what: str) -> NoReturn:
    lexeme = lexemes[min(place, len(lexemes) - 1)]
    example = f"CREATE {what} d FROM t (c) OPTIONS (epsilon = 0.3)"
    fragment.refuse(lexeme, "E_PARSE", f"not understood near {printable(lexeme.text)!r}", example)
