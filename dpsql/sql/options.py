"""SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(name = value, ...): terms of one statement."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence

from dpsql.errors import NotSupportedError, ProgrammingError, printable
from dpsql.sql.lexemes import Fragment, Lexeme

Options = tuple[tuple[str, str], ...]

SHARED = ("epsilon", "delta", "noise", "mechanism", "metric", "effort")
"""Options that all statements of a workload have in common."""

OPTIONS = (*SHARED, "weight", "max_stddev", "reconstruct", "clip", "sum_mechanism")
CLAUSE = ["with", "differential_privacy", "options", "("]


def take_options(fragment: Fragment, lexemes: list[Lexeme]) -> tuple[str, Options]:
    """Cut the clause out of a SELECT; blanks take its place, so that positions stay.

    Raises: ProgrammingError (E_PARSE, E_SETTING); NotSupportedError (E_SETTING).

    >>> text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = .5) COUNT(*) FROM t"
    >>> from dpsql.sql.lexemes import lex
    >>> solid = [item for item in lex(text) if item.kind != "space"]
    >>> body, options = take_options(Fragment(text, 0, len(text)), solid)
    >>> " ".join(body.split()), options
    ('SELECT COUNT(*) FROM t', (('epsilon', '.5'),))
    """
    body = fragment.body
    words = [lexeme.text.lower() for lexeme in lexemes]
    if words[1:3] != CLAUSE[:2]:
        return body, ()
    if words[1:5] != CLAUSE or ")" not in words[5:]:
        example = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) COUNT(*) FROM t"
        span = fragment.span(lexemes[1].start, lexemes[2].start + len(lexemes[2].text))
        what = "the OPTIONS clause is malformed"
        raise ProgrammingError("E_PARSE", what, hint=example, span=span)
    end = words.index(")", 5)
    options = read_options(fragment, lexemes[5:end], OPTIONS)
    first, last = lexemes[1].start, lexemes[end].start + 1
    blank = "".join("\n" if char == "\n" else " " for char in body[first:last])
    return body[:first] + blank + body[last:], tuple(options.items())


def read_options(
    fragment: Fragment, lexemes: Sequence[Lexeme], known: Sequence[str]
) -> dict[str, str]:
    """Read name = value, ...: every name must be known, and given once.

    Raises: ProgrammingError (E_PARSE, E_SETTING); NotSupportedError (E_SETTING).
    """
    options: dict[str, str] = {}
    words = [lexeme.text for lexeme in lexemes]
    start = 0
    while start < len(lexemes):
        comma = words.index(",", start) if "," in words[start:] else len(lexemes)
        name, value = _option(fragment, lexemes[start:comma], known)
        if name in options:
            place = lexemes[start].start
            raise ProgrammingError(
                "E_SETTING",
                f"the option {name} is given twice",
                hint=f"give {name} one value",
                span=fragment.span(place, place + len(name)),
            )
        options[name] = value
        start = comma + 1
    return options


def _option(fragment: Fragment, lexemes: Sequence[Lexeme], known: Sequence[str]) -> tuple[str, str]:
    signed = len(lexemes) == 4 and lexemes[2].text in "+-"
    if (len(lexemes) != 3 and not signed) or lexemes[1].text != "=":
        raise ProgrammingError(
            "E_PARSE", "the OPTIONS clause is malformed", hint="OPTIONS(epsilon = 0.5, ...)"
        )
    name = lexemes[0].text.lower()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise NotSupportedError(
            "E_SETTING",
            f"there is no option {printable(name)!r}",
            hint=f"did you mean {near[0]}?" if near else f"options: {', '.join(known)}",
            span=fragment.span(lexemes[0].start, lexemes[0].start + len(name)),
        )
    last = lexemes[-1]
    text = fragment.body[lexemes[2].start : last.start + len(last.text)]
    if len(lexemes) == 3 and last.kind in ("string", "quoted"):
        text = text[1:-1].replace(text[0] * 2, text[0])
    return name, text


def read_positive(options: Options, name: str) -> float | None:
    """The value of an option that is a positive number; None where it is not given.

    Raises: ProgrammingError (E_SETTING).
    """
    text = dict(options).get(name)
    if text is None:
        return None
    if re.fullmatch(r"\d{0,12}\.?\d{1,12}(e[+-]?\d{1,2})?", text, re.ASCII | re.IGNORECASE):
        value = float(text)
        if 0 < value < math.inf:
            return value
    raise ProgrammingError(
        "E_SETTING", f"{name} = {printable(text)}", hint=f"a positive number: {name} = 2"
    )


def read_choice(options: Options, name: str, known: Sequence[str]) -> str | None:
    """The value of an option that is one of a few words; None where it is not given.

    Raises: ProgrammingError (E_SETTING).

    >>> read_choice((("reconstruct", "PGM"),), "reconstruct", ("gls", "pgm"))
    'pgm'
    """
    text = dict(options).get(name)
    if text is None or text.lower() in known:
        return None if text is None else text.lower()
    raise ProgrammingError(
        "E_SETTING", f"{name} = {printable(text)}", hint=f"one of {', '.join(known)}"
    )
