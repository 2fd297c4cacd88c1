"""SELECT of constants alone, by which clients find out whether anybody is there."""

from __future__ import annotations

import datetime as dt

from dpsql.records import dataclass
from dpsql.sql.text.lexemes import Fragment, Lexeme, lex

VERSION = "0.2.0"
"""The package's version, as version() shows it; the package is not imported from below."""

MOST = 100
"""Constants of one statement."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A column of one value that the statement itself says."""

    name: str
    type: str
    value: int | float | str | bool | dt.date | None


def constants_of(lexemes: list[Lexeme]) -> tuple[Constant, ...]:
    """The constants of ``SELECT 1, 'x' AS name, version()``; none for any other statement."""
    found: list[Constant] = []
    item: list[Lexeme] = []
    for lexeme in [*lexemes[1:], None]:
        if lexeme is not None and lexeme.text != ",":
            item.append(lexeme)
            continue
        constant = _constant(item)
        if constant is None or len(found) == MOST:
            return ()
        found.append(constant)
        item = []
    return tuple(found)


def is_constant(fragment: Fragment) -> bool:
    """True if a statement is a SELECT of constants alone."""
    solid = [each for each in lex(fragment.body) if each.kind not in ("space", "comment")]
    return bool(solid) and solid[0].text.lower() == "select" and bool(constants_of(solid))


def _constant(item: list[Lexeme]) -> Constant | None:
    """One item: a literal or version(), and the name that it is given."""
    name = None
    if len(item) > 2 and item[-2].text.lower() == "as" and item[-1].kind in ("word", "quoted"):
        item, name = item[:-2], item[-1].name
    text = "".join(each.text for each in item)
    words = [each.text.lower() for each in item]
    kinds = [each.kind for each in item]
    if words == ["version", "(", ")"]:
        return Constant(name or "version", "text", f"dpsql {VERSION}")
    if kinds == ["string"]:
        return Constant(name or text, "text", _unquoted(text))
    if words in (["true"], ["false"], ["null"]):
        value = {"true": True, "false": False}.get(words[0])
        return Constant(name or text, "text" if value is None else "boolean", value)
    if kinds[-1:] == ["number"] and words[:-1] in ([], ["-"]):
        number = text.replace("_", "")
        if number.lstrip("-").isdigit():
            return Constant(name or text, "integer", int(number))
        return Constant(name or text, "number", float(number))
    if kinds == ["word", "string"] and words[0] == "date":
        try:
            return Constant(name or text, "date", dt.date.fromisoformat(_unquoted(item[1].text)))
        except ValueError:
            return None
    return None


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
