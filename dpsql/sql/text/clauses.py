"""SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(...) and clips: terms of one statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NoReturn

from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError, Span, nearest, printable
from dpsql.logical.functions import names
from dpsql.records import dataclass, field
from dpsql.settings.table import SETTINGS, OptionPlace, options_of
from dpsql.sql.shell.language import locate
from dpsql.sql.text.lexemes import Fragment, Lexeme, blank_out

Options = tuple[tuple[str, str], ...]

CLAUSE = ["with", "differential_privacy", "options", "("]


def take_options(fragment: Fragment, lexemes: list[Lexeme]) -> tuple[str, Options]:
    """Cut the clause out of a SELECT; blanks take its place, so that positions stay.

    It stands right after SELECT and holds for the whole statement, in an inner SELECT or one of a
    set operation, too; where several have it, they say the same. It may be without OPTIONS.
    Raises: ProgrammingError (E_PARSE, E_SETTING); NotSupportedError (E_SETTING).

    >>> text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = .5) COUNT(*) FROM t"
    >>> from dpsql.sql.text.lexemes import lex
    >>> solid = [item for item in lex(text) if item.kind != "space"]
    >>> body, options = take_options(Fragment(text, 0, len(text)), solid)
    >>> " ".join(body.split()), options
    ('SELECT COUNT(*) FROM t', (('epsilon', '.5'),))
    """
    body = fragment.body
    words = [lexeme.text.lower() for lexeme in lexemes]
    places = [i for i in range(len(words)) if words[i : i + 2] == CLAUSE[:2]]
    if not places:
        _refuse_alone(fragment, lexemes, words)
        return body, ()
    found: list[dict[str, str]] = []
    for start in places:
        clause = lexemes[start : start + 2]
        if words[start - 1] != "select":
            example = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(...) COUNT(*) FROM t"
            why = "WITH DIFFERENTIAL_PRIVACY OPTIONS(...) stands right after SELECT"
            raise _refused(fragment, clause, why, example)
        if words[start + 2 : start + 3] != CLAUSE[2:3]:
            body = blank_out(body, lexemes[start].start, lexemes[start + 1].end)
            continue
        if words[start : start + 4] != CLAUSE or ")" not in words[start:]:
            example = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) COUNT(*) FROM t"
            raise _refused(fragment, clause, "the OPTIONS clause is malformed", example)
        end = words.index(")", start)
        found.append(read_options(fragment, lexemes[start + 4 : end + 1], OptionPlace.SELECT))
        if found[-1] != found[0]:
            what = "the OPTIONS of one statement differ: they hold for all of it"
            hint = "give them once, or the same ones everywhere"
            fragment.refuse(lexemes[start], "E_SETTING", what, hint)
        body = blank_out(body, lexemes[start].start, lexemes[end].end)
    return body, tuple(found[0].items()) if found else ()


def _refuse_alone(fragment: Fragment, lexemes: Sequence[Lexeme], words: Sequence[str]) -> None:
    """Refuse OPTIONS (...) without the words before it, as other statements end with it."""
    alone = [i for i in range(len(words)) if words[i : i + 2] == CLAUSE[2:]]
    if alone and words[0] in ("select", "with"):
        why = "OPTIONS(...) of a SELECT stands after SELECT WITH DIFFERENTIAL_PRIVACY"
        example = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) COUNT(*) FROM t"
        raise _refused(fragment, lexemes[alone[0] : alone[0] + 1], why, example)


def read_options(
    fragment: Fragment, lexemes: Sequence[Lexeme], taker: OptionPlace
) -> dict[str, str]:
    """Read name = value, ...) with its parenthesis: every name must be taken, and given once.

    Raises: ProgrammingError (E_PARSE, E_SETTING); NotSupportedError (E_SETTING); DataError
    (E_SETTING) for rounds that are none.
    """
    options: dict[str, str] = {}
    known = options_of(taker)
    words = [lexeme.text for lexeme in lexemes]
    start, end = 0, len(lexemes) - 1
    while start <= end:
        comma = words.index(",", start) if "," in words[start:] else end
        name, value = _option(fragment, lexemes[start : comma + 1], known)
        if name in options:
            what = f"the option {name} is given twice"
            fragment.refuse(lexemes[start], "E_SETTING", what, f"give {name} one value")
        options[name] = value
        start = comma + 1
    return options


def _refused(
    fragment: Fragment, lexemes: Sequence[Lexeme], what: str, hint: str
) -> ProgrammingError:
    return ProgrammingError("E_PARSE", what, hint=hint, span=fragment.at(lexemes[0], lexemes[-1]))


def _option(fragment: Fragment, lexemes: Sequence[Lexeme], known: Sequence[str]) -> tuple[str, str]:
    """Read name = value and what ends it."""
    lexemes, after = lexemes[:-1], lexemes[-1]
    words = [lexeme.text.lower() for lexeme in lexemes]
    if words[:2] == ["privacy_unit_column", "="] and words[3:4] == ["."] and len(words) == 5:
        lexemes = [*lexemes[:2], lexemes[4]]  # of which table is what the catalog says
    signed = len(lexemes) == 4 and lexemes[2].text in "+-"
    if (len(lexemes) != 3 and not signed) or lexemes[1].text != "=":
        what = "the OPTIONS clause is malformed" if lexemes else "an option is missing before this"
        raise _refused(fragment, lexemes or [after], what, "OPTIONS(epsilon = 0.5, ...)")
    name = lexemes[0].text.lower()
    if name not in known:
        alike = SETTINGS[name].alike if name in SETTINGS else ""
        near = alike if alike in known else nearest(name, known)
        raise NotSupportedError(
            "E_SETTING",
            f"there is no option {printable(name)!r}",
            hint=f"did you mean {near}?" if near else f"options: {', '.join(known)}",
            span=fragment.at(lexemes[0]),
        )
    last = lexemes[-1]
    text = fragment.body[lexemes[2].start : last.end]
    if len(lexemes) == 3 and last.kind in ("string", "quoted"):
        text = text[1:-1].replace(text[0] * 2, text[0])
    if SETTINGS[name].early:
        SETTINGS[name].read(text, span=fragment.at(lexemes[2], last))
    return name, text


def read_option_values(options: Options, *names: str) -> list[Any]:
    """The values of some options of one statement, or their defaults.

    Raises: ProgrammingError (E_SETTING).
    """
    said = dict(options)
    return [
        SETTINGS[name].read(said[name]) if name in said else SETTINGS[name].default
        for name in names
    ]


class RowBounds(tuple[float, float]):
    """Bounds of the value in each row, however many rows a unit has."""

    __slots__ = ()


Clips = dict[int, tuple[float, float]]
WORD = "contribution_bounds_per_group"
PER_ROW = "contribution_bounds_per_row"

CONSTANTS = {"null", "true", "false", "current_date", "current_timestamp", "current_time"}
"""Words of SQL that are no columns."""


def take_clips(fragment: Fragment, text: str, lexemes: Sequence[Lexeme]) -> tuple[str, Clips]:
    """Cut the named arguments out of a SELECT; blanks take their place, so that positions stay.

    Returns the text, and the bounds by where in the script the argument stood.
    Raises: ProgrammingError (E_PARSE, E_DEGENERATE_BOUNDS).

    >>> from dpsql.sql.text.lexemes import lex
    >>> text = "SELECT SUM(x, contribution_bounds_per_group => (0, 9.5)) FROM t"
    >>> solid = [item for item in lex(text) if item.kind != "space"]
    >>> body, clips = take_clips(Fragment(text, 0, len(text)), text, solid)
    >>> " ".join(body.split()), clips
    ('SELECT SUM(x ) FROM t', {12: (0.0, 9.5)})
    """
    clips: Clips = {}
    for index, lexeme in enumerate(lexemes):
        word = lexeme.text.lower()
        if word not in (WORD, PER_ROW) or lexeme.kind != "word":
            continue
        comma, rest = lexemes[index - 1], lexemes[index + 1 :]
        found = _bounds([item.text for item in rest[:9]])
        if comma.text != "," or found is None or not _takes(word, lexemes[: index - 1]):
            _refuse_clip(fragment, lexemes, index, comma.text == "," and found is not None)
        low, high, used = found
        if not low < high:
            what = f"the bounds ({low:g}, {high:g}) leave nothing between them"
            fragment.refuse(lexeme, "E_DEGENERATE_BOUNDS", what, f"{word} => (0, 100)")
        bounds = (low, high)
        clips[fragment.start + comma.start] = RowBounds(bounds) if word == PER_ROW else bounds
        text = blank_out(text, comma.start, rest[used - 1].end)
    return text, clips


def _takes(word: str, lexemes: Sequence[Lexeme]) -> bool:
    """True if these end in an aggregate that takes such an argument, and what it is of.

    Bounds of rows are for quantiles and variances; those of groups for sums and counts of a column,
    and for counts of all rows.
    """
    words = [lexeme.text.lower() for lexeme in lexemes]
    if word == PER_ROW:
        return _function(words) in names("rank", "spread")
    if len(words) > 2 and words[-2] == ".":
        words = [*words[:-3], words[-1]]
    is_column = lexemes[-1].kind in ("word", "quoted") and words[-1] not in CONSTANTS
    is_counted = words[-1] == "*" and words[-3:-2] == ["count"]
    if not is_column and not is_counted:
        return False
    if words[-4:-1] == ["count", "(", "distinct"]:
        return True
    return len(words) >= 3 and words[-3] in ("count", *names("bounded")) and words[-2] == "("


def _refuse_clip(
    fragment: Fragment, lexemes: Sequence[Lexeme], index: int, is_written: bool
) -> NoReturn:
    """Say why an aggregate does not take the bounds at ``index``. Raises: ProgrammingError."""
    word = lexemes[index].text.lower()
    called = _function([each.text.lower() for each in lexemes[:index]])
    hint = f"SUM(x, {WORD} => (0, 100)), x a column"
    sums = {"count", *names("bounded")}
    if called in names("rank") or (word == PER_ROW and called not in sums - {*names("spread")}):
        hint = f"QUANTILE_CONT(x, 0.5, {PER_ROW} => (0, 100))"
    what = f"{word} is malformed"
    if is_written and word == WORD and called in sums:
        what = f"{word} of an expression"
    elif is_written and called:
        what = f"{called.upper()} takes no {word}"
    fragment.refuse(lexemes[index], "E_PARSE", what, hint)


def _function(words: Sequence[str]) -> str:
    """The word before the parenthesis that is open at the end."""
    depth = 0
    for place in range(len(words) - 1, 0, -1):
        depth += (words[place] == ")") - (words[place] == "(")
        if depth < 0:
            return words[place - 1]
    return ""


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


_BEFORE_BOUNDS = re.compile(
    r"[\s)]*(,[\s\d.e+,\[\]-]*)?(,?\s*report_format\s*=>[^,()]*)?", re.ASCII | re.IGNORECASE
)
"""The text between an argument and the bounds that follow it: the places of quantiles."""


_CLIP = "clip"


def note_clips(tree: exp.Expr, clips: Clips, fragment: Fragment) -> None:
    """Note bounds on the aggregates that they are of: what these are of may be put elsewhere."""
    for node in tree.find_all(exp.AggFunc, exp.WithinGroup) if clips else ():
        bounds = clip_of(node, clips, fragment)
        if bounds is not None:
            node.meta[_CLIP] = bounds


def noted_clips(node: exp.Expr) -> list[tuple[float, float]]:
    """The bounds noted on the aggregates in an expression, which its text does not show."""
    return [part.meta[_CLIP] for part in node.walk() if _CLIP in part.meta]


def without_clip(node: exp.Expr) -> exp.Expr:
    """An aggregate on which no bounds are noted any more."""
    node.meta.pop(_CLIP, None)
    return node


def clip_of(node: exp.Expr, clips: Clips, fragment: Fragment) -> tuple[float, float] | None:
    """The contribution bounds written after the argument of an aggregate."""
    if not clips or not isinstance(node.this, exp.Expr):
        return None
    noted: tuple[float, float] | None = node.meta.get(_CLIP)
    if noted is not None:
        return noted
    start, end = (getattr(locate(node.this, fragment), side) for side in ("start", "end"))
    for place, bounds in clips.items():
        if start < end <= place and _BEFORE_BOUNDS.fullmatch(fragment.text[end:place]):
            return bounds
    return None


@dataclass(frozen=True, slots=True)
class Cut:
    """Values of a column of a table, both case-folded, count as ``level`` where they are above it.

    It holds for all SUM, AVG and variances of a statement.
    """

    table: str
    column: str
    level: float


@dataclass(frozen=True, slots=True)
class Truncation:
    """The rule that chooses a threshold, or the given ``level``; how a batch is answered.

    ``mechanism`` is None where it was not named.
    """

    rule: str
    level: Fraction | None
    mechanism: str | None
    span: Span = field(compare=False)


def read_truncation(fragment: Fragment, options: Options) -> Truncation | None:
    """Read the options about clipping; None where there are none.

    Raises: ProgrammingError (E_SETTING).
    """
    mechanism = _read_placed(fragment, options, "sum_mechanism")
    clip = _read_placed(fragment, options, "clip")
    if clip is None and mechanism is None:
        return None
    if clip is None:
        return Truncation("none", None, mechanism, span_of(fragment, "sum_mechanism"))
    span = span_of(fragment, "clip")
    if isinstance(clip, Fraction):
        return Truncation("given", clip, mechanism, span)
    return Truncation(clip, None, mechanism, span)


def _read_placed(fragment: Fragment, options: Options, name: str) -> Any:
    """The value of an option, with a caret under what is none; None where it is not given."""
    text = dict(options).get(name)
    return None if text is None else SETTINGS[name].read(text, span=span_of(fragment, name))


def span_of(fragment: Fragment, name: str) -> Span:
    """The span of an option in its statement."""
    option = rf"options\s*\([^)]*?\b({name}\s*=\s*('[^']*'|[^\s,()']+))"
    found = re.search(option, fragment.body, re.IGNORECASE)
    start, end = (0, len(fragment.body)) if found is None else found.span(1)
    return fragment.span(start, end)
