"""Kinds of values of an option: how they are read, shown and offered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dpsql.records import dataclass

Given = Mapping[str, Any]
"""The values of a session by name, and ``limit``, the largest epsilon of one request."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values of an option.

    ``read`` returns the value of a text, beside what is given, or None for what is no value;
    ``take`` does so for a value of Python. Both may raise what says more than ``works``, which is
    what would work, with the name of the option at braces. ``show`` writes a value, ``offered``
    are completions, ``known`` all words of a kind that has no others, and ``is_word`` says that
    upper and lower case are the same.
    """

    read: Callable[[str, Given], Any]
    works: str = ""
    show: Callable[[Any], str] = str
    offered: Callable[[], tuple[str, ...]] = tuple
    known: tuple[str, ...] = ()
    is_word: bool = False
    take: Callable[[Any, Given], Any] | None = None


_SWITCH = {"on": True, "true": True, "off": False, "false": False}


def switch(read: Callable[[bool, Given], Any], show: Callable[[Any], bool]) -> Kind:
    """On or off: ``read`` and ``show`` translate what is kept."""

    def read_text(text: str, given: Given) -> Any:
        is_on = _SWITCH.get(text.lower())
        return None if is_on is None else read(is_on, given)

    works = "SET {} = on, or off"
    return Kind(read_text, works, lambda kept: "on" if show(kept) else "off", lambda: ("on", "off"))
