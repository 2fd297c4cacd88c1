"""Commands of the prompt: one registry, from which help and completion are made."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable

from dpsql.errors import UsageError, printable
from dpsql.records import dataclass
from dpsql.ui.session import Session
from dpsql.ui.streams import file_names, is_command

Action = Callable[[Session, str], None]
Choices = Callable[[Session, str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its names, the form of its argument, one line of help, and what it does."""

    name: str
    argument: str
    help: str
    aliases: tuple[str, ...]
    choices: Choices
    action: Action


COMMANDS: dict[str, Command] = {}
STATEMENTS = ("set", "show", "select", "describe", "create", "drop", "materialize", "rollback")
"""Words of SQL that are typed with a dot before them."""


def command(
    name: str,
    argument: str = "",
    aliases: tuple[str, ...] = (),
    choices: Choices = lambda session, typed: (),
) -> Callable[[Action], Action]:
    """Register a command; the docstring of its action is its help.

    Args:
        name: with its point, as it is typed.
        argument: word for its argument in the list of commands; empty where it takes none.
        aliases: further names.
        choices: completions of the argument, given the session and the word that is begun.
    """

    def register(action: Action) -> Action:
        text = (action.__doc__ or "").strip().rstrip(".")
        COMMANDS[name] = Command(name, argument, text, aliases, choices, action)
        return action

    return register


def find_command(word: str) -> Command:
    """Return a command by name, alias or unambiguous prefix.

    Raises: UsageError naming the nearest command.
    """
    for entry in COMMANDS.values():
        if word == entry.name or word in entry.aliases:
            return entry
    begun = [name for name in COMMANDS if name.startswith(word)]
    if len(begun) == 1 and len(word) > 1:
        return COMMANDS[begun[0]]
    near = begun or difflib.get_close_matches(word, COMMANDS)
    hint = f"did you mean {' or '.join(near)}?" if near else ".help lists the commands"
    if word[1:].lower() in STATEMENTS:
        hint = f"SQL has no dot: {word[1:].upper()} ...;"
    raise UsageError("E_COMMAND", f"unknown command {printable(word)}", hint=hint)


def command_called(word: str) -> Command:
    """A command by its name, with or without its dot. Raises: UsageError."""
    return find_command(word if is_command(word) else f".{word}")


def split_words(argument: str) -> list[str]:
    """Split an argument as a shell does. Raises: UsageError."""
    try:
        return shlex.split(argument)
    except ValueError as error:
        raise UsageError("E_COMMAND", f"cannot read the argument: {error}") from None


def read_switch(argument: str, current: bool) -> bool:
    """Read on/off; without an argument, change over."""
    if not argument:
        return not current
    if argument.lower() not in ("on", "off"):
        raise UsageError("E_COMMAND", f"{printable(argument)!r} is neither on nor off")
    return argument.lower() == "on"


def read_limit(argument: str, current: int | None) -> int | None:
    """Read a limit; 0 is none, and without an argument it stays."""
    if not argument:
        return current
    if not re.fullmatch("[0-9]{1,9}", argument):
        raise UsageError("E_COMMAND", f"{printable(argument)!r} is not a number", hint="0 is none")
    return int(argument) or None


def on_or_off(session: Session, typed: str) -> Iterable[str]:
    """Return the choices of a switch."""
    return ("on", "off")


def paths(session: Session, typed: str) -> Iterable[str]:
    """The files that can be meant."""
    return file_names(typed)
