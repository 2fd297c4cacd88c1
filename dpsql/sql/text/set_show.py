"""SET and SHOW: statements of dpsql's own about a session and its catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from dpsql.errors import ProgrammingError, nearest, printable
from dpsql.settings.table import SETTINGS, OptionPlace, options_of, shown
from dpsql.sql.text.lexemes import Fragment, Lexeme, is_dotted


def parse_set(fragment: Fragment, lexemes: list[Lexeme]) -> tuple[str, str]:
    """The setting that is set, and the text of its value. Raises: ProgrammingError (E_SETTING)."""
    if len(lexemes) < 2:
        raise ProgrammingError("E_SETTING", "SET what?", hint="SET epsilon = 0.5")
    name, rest = lexemes[1].text.lower(), lexemes[2:]
    if name not in options_of(OptionPlace.SET):
        _refuse_setting(fragment, lexemes[1], options_of(OptionPlace.SET))
    if rest and rest[0].text in ("=", "to", "TO"):
        rest = rest[1:]
    if not rest:
        raise ProgrammingError("E_SETTING", f"SET {name} to what?", hint="SET epsilon = 0.5")
    value = fragment.body[rest[0].start : rest[-1].end]
    if len(rest) == 1 and rest[0].kind in ("string", "quoted"):
        value = value[1:-1].replace(value[0] * 2, value[0])
    if SETTINGS[name].early:
        SETTINGS[name].read(value, span=fragment.at(rest[0], rest[-1]))
    return name, value


def parse_show(fragment: Fragment, lexemes: list[Lexeme]) -> tuple[str, ...]:
    """The object of SHOW: a fact, a setting, ``all``, or ``columns`` and the name of a table.

    Raises: ProgrammingError (E_SETTING).
    """
    if len(lexemes) < 2:
        raise ProgrammingError("E_SETTING", "SHOW what?", hint=f"one of {', '.join(shown())}")
    words = [lexeme.text.lower() for lexeme in lexemes[1:3]]
    if words in (["columns", "from"], ["columns", "in"]) and is_dotted(lexemes[3:]):
        return "columns", "".join(lexeme.name for lexeme in lexemes[3:])
    if words == ["all"]:
        return ("all",)
    if len(lexemes) > 2 or lexemes[1].text.lower() not in shown():
        _refuse_setting(fragment, lexemes[min(2, len(lexemes) - 1)], (*shown(), "all", "columns"))
    return (lexemes[1].text.lower(),)


def _refuse_setting(fragment: Fragment, lexeme: Lexeme, known: Sequence[str]) -> NoReturn:
    name = lexeme.text.lower()
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else f"settings: {', '.join(known)}"
    if name == "columns":
        hint = "SHOW COLUMNS FROM and the name of a table"
    elif name in options_of(OptionPlace.SELECT):
        hint = f"for one statement: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({name} = ...)"
    elif name in options_of(OptionPlace.CREATE):
        hint = f"CREATE SYNTHETIC TABLE s FROM t OPTIONS ({name} = ...)"
        hint += f" or SET {SETTINGS[name].alike}" if SETTINGS[name].alike else ""
    fragment.refuse(lexeme, "E_SETTING", f"no such setting: {printable(lexeme.text)}", hint)
