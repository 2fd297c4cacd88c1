"""Parameters of a statement: marks in the styles of PEP 249, and literals in their places."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dpsql.errors import InterfaceError, ProgrammingError, nearest, printable
from dpsql.sql.text.lexemes import MAX_STATEMENT, Lexeme, lex, render_literal

_PERCENT = re.compile(r"%%|%s|%\(([^()%]*)\)s")
Value = Callable[[str], str]
"""The literal of the parameter of a name; of ``""`` for the next one."""


def bind_parameters(text: str, parameters: object, style: str = "qmark") -> str:
    """Replace every mark outside quotes and comments by a literal.

    A sequence is for marks without names, in order, a mapping for those with names: ``:name`` and
    ``$name`` for ``qmark``, the style of Python's own modules and of DuckDB. Every value is to be
    used. In the styles with ``%`` a ``%%`` stands for ``%`` where there are parameters.
    Raises: ProgrammingError (E_PARSE, E_LITERAL) where a mark has no value, a value no mark or no
    literal form; InterfaceError (E_PARSE) where the parameters do not fit the style.

    >>> bind_parameters("SELECT COUNT(*) FROM t WHERE a = ? AND b = '?'", ["it's"])
    "SELECT COUNT(*) FROM t WHERE a = 'it''s' AND b = '?'"
    >>> bind_parameters("SELECT x::INT FROM t WHERE a = :low", {"low": 3})
    'SELECT x::INT FROM t WHERE a = 3'
    >>> bind_parameters("SELECT 7 %% 2 FROM t WHERE a = %(low)s", {"low": 3}, "pyformat")
    'SELECT 7 % 2 FROM t WHERE a = 3'
    """
    if parameters is None:
        parameters = ()
    if isinstance(parameters, Mapping):
        return _bind_names(text, parameters, style)
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Iterable):
        what = f"parameters must be a sequence, one value for every {_mark(style)}"
        raise InterfaceError("E_PARSE", what, hint="or a mapping, for names such as :name")
    values = list(parameters)
    if not values and "?" not in text and style == "qmark":
        return text  # a script may be long, and has no marks
    if style == "named" and values:
        what = "parameters of the style 'named' are a mapping from names to values"
        raise InterfaceError("E_PARSE", what, hint="execute(sql, {'name': value})")
    if "format" in style and not values:
        return text
    return _bind_places(text, values, style)


def _mark(style: str) -> str:
    return {"numeric": ":1", "format": "%s", "pyformat": "%s"}.get(style, "?")


def _bind_places(text: str, values: Sequence[object], style: str) -> str:
    used: set[int] = set()

    def value(name: str) -> str:
        place = int(name) - 1 if name else len(used)
        if not 0 <= place < len(values):
            known = f"there is no parameter {name}" if name else "more ? marks than parameters"
            hint = "execute(sql, [value, ...])"
            raise ProgrammingError("E_PARSE", known.replace("?", _mark(style)), hint=hint)
        used.add(place)
        return render_literal(values[place])

    found = "".join(_written(text, style, False, value))
    if len(used) < len(values):
        left = len(values) - len(used)
        what = f"{left} parameter{'s' * (left > 1)} too many for the {_mark(style)} marks"
        hint = "a sequence is for them; a mapping is for names such as :name"
        raise ProgrammingError("E_PARSE", what, hint=hint)
    return found


def _bind_names(text: str, values: Mapping[object, object], style: str) -> str:
    if style in ("numeric", "format"):
        what = f"parameters of the style {style!r} are a sequence, one for every {_mark(style)}"
        raise InterfaceError("E_PARSE", what, hint="connect(..., paramstyle='named')")
    used: set[str] = set()

    def value(name: str) -> str:
        if name not in values:
            what = f"there is no value for the parameter {printable(name)!r}"
            raise ProgrammingError("E_PARSE", what, hint=_nearest(name, values))
        used.add(name)
        return render_literal(values[name])

    found = "".join(_written(text, style, True, value)) if values else text
    left = [str(name) for name in values if name not in used]
    if left:
        what = f"no mark for the parameter {printable(left[0])!r}"
        shown = "%(name)s" if style == "pyformat" else ":name"
        raise ProgrammingError("E_PARSE", what, hint=f"parameters are marked as {shown}")
    return found


def _nearest(name: str, values: Mapping[object, object]) -> str:
    names = [str(each) for each in values]
    near = nearest(name, names)
    return f"did you mean {near!r}?" if near else f"given: {', '.join(names) or 'none'}"


def _written(text: str, style: str, named: bool, value: Value) -> Iterator[str]:
    """The parts of a text, each mark as its literal."""
    if "format" in style:
        yield from _percents(text, named, value)
        return
    if len(text) > MAX_STATEMENT:
        raise ProgrammingError("E_TOO_LARGE", f"a statement of over {MAX_STATEMENT} characters")
    lexemes = lex(text)
    skipped = False
    for place, lexeme in enumerate(lexemes):
        after = lexemes[place + 1] if place + 1 < len(lexemes) else None
        if skipped:
            skipped = False
        elif lexeme.kind != "symbol":
            yield lexeme.text
        elif lexeme.text == "?" and style == "qmark" and not named:
            yield value("")
        elif after is not None and _is_mark(lexemes, place, after, style, named):
            skipped = True
            yield value(after.text)
        else:
            yield lexeme.text


def _is_mark(lexemes: Sequence[Lexeme], place: int, after: Lexeme, style: str, named: bool) -> bool:
    """True if a symbol and what follows it mark a parameter; ``::`` is a cast."""
    symbol = lexemes[place].text
    if symbol not in (":", "$") or (place and lexemes[place - 1].text == symbol == ":"):
        return False
    if named:
        return after.kind == "word"
    return style == "numeric" and symbol == ":" and after.text.isdigit()


def _percents(text: str, named: bool, value: Value) -> Iterator[str]:
    """The parts of a text with marks of ``%``, which quotes and comments keep but for ``%%``."""
    kept: list[str] = []
    for lexeme in lex(text):
        if lexeme.kind in ("string", "quoted", "comment", "open"):
            yield from _percent_marks("".join(kept), named, value)
            kept = []
            yield lexeme.text.replace("%%", "%")
        else:
            kept.append(lexeme.text)
    yield from _percent_marks("".join(kept), named, value)


def _percent_marks(text: str, named: bool, value: Value) -> Iterator[str]:
    end = 0
    for match in _PERCENT.finditer(text):
        yield text[end : match.start()]
        end = match.end()
        if match.group() == "%%":
            yield "%"
        elif named == (match.group(1) is not None):
            yield value(match.group(1) or "")
        else:
            yield match.group()
    yield text[end:]
