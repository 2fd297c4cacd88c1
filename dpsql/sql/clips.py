"""SUM(x, contribution_bounds_per_group => (low, high)): bounds of what a unit adds to a group."""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.errors import ProgrammingError
from dpsql.sql.lexemes import Fragment, Lexeme

Clips = dict[int, tuple[float, float]]
WORD = "contribution_bounds_per_group"
TAKERS = {"sum", "avg", "var_pop", "var_samp", "variance", "stddev", "stddev_pop", "stddev_samp"}


def take_clips(fragment: Fragment, text: str, lexemes: Sequence[Lexeme]) -> tuple[str, Clips]:
    """Cut the named arguments out of a SELECT; blanks take their place, so that positions stay.

    Returns the text, and the bounds by where in the script the argument stood.
    Raises: ProgrammingError (E_PARSE, E_DEGENERATE_BOUNDS).

    >>> from dpsql.sql.lexemes import lex
    >>> text = "SELECT SUM(x, contribution_bounds_per_group => (0, 9.5)) FROM t"
    >>> solid = [item for item in lex(text) if item.kind != "space"]
    >>> body, clips = take_clips(Fragment(text, 0, len(text)), text, solid)
    >>> " ".join(body.split()), clips
    ('SELECT SUM(x ) FROM t', {12: (0.0, 9.5)})
    """
    clips: Clips = {}
    for index, lexeme in enumerate(lexemes):
        if lexeme.text.lower() != WORD or lexeme.kind != "word":
            continue
        comma, rest = lexemes[index - 1], lexemes[index + 1 :]
        found = _bounds([item.text for item in rest[:9]])
        span = fragment.span(lexeme.start, lexeme.start + len(lexeme.text))
        if comma.text != "," or found is None or not _is_of_column(lexemes[: index - 1]):
            raise ProgrammingError(
                "E_PARSE",
                f"{WORD} is malformed",
                hint=f"SUM(x, {WORD} => (0, 100)), x a column",
                span=span,
            )
        low, high, used = found
        if not low < high:
            raise ProgrammingError(
                "E_DEGENERATE_BOUNDS",
                f"the bounds ({low:g}, {high:g}) leave nothing between them",
                hint=f"{WORD} => (0, 100)",
                span=span,
            )
        clips[fragment.start + comma.start] = (low, high)
        last = rest[used - 1]
        start, end = comma.start, last.start + len(last.text)
        blank = "".join("\n" if char == "\n" else " " for char in text[start:end])
        text = text[:start] + blank + text[end:]
    return text, clips


def _is_of_column(lexemes: Sequence[Lexeme]) -> bool:
    """Whether these end in the name of an aggregate, an open parenthesis and a column."""
    words = [lexeme.text.lower() for lexeme in lexemes[-5:]]
    if len(words) == 5 and words[3] == ".":
        words = [*words[:2], words[4]]
    return len(words) >= 3 and words[-3] in TAKERS and words[-2] == "("


def _bounds(words: Sequence[str]) -> tuple[float, float, int] | None:
    """The two numbers of ``=> (low, high)`` and how many words it takes."""
    match list(words):
        case ["=", ">", "(", low, ",", high, ")", *_]:
            used = 7
        case ["=", ">", "(", "-", low, ",", high, ")", *_]:
            low, used = "-" + low, 8
        case ["=", ">", "(", low, ",", "-", high, ")", *_]:
            high, used = "-" + high, 8
        case ["=", ">", "(", "-", low, ",", "-", high, ")", *_]:
            low, high, used = "-" + low, "-" + high, 9
        case _:
            return None
    try:
        return float(low), float(high), used
    except ValueError:
        return None
