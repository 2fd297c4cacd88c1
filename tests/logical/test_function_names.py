"""Names of functions that hints suggest are names that work."""

from __future__ import annotations

import random

import pytest
from sqlglot import exp

from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.logical.functions import TABLE, has, names, nearest_function
from dpsql.sql.text.lexemes import Fragment
from dpsql.sql.text.parse import parse

WORKING = names("rows", "groups")
ARGUMENTS = ("a", "a, b", "a, b, c", "", "'day', a", "a, 0.5")


def is_known(name: str) -> bool:
    """Whether the name is that of something listed, with any arguments."""
    if name in TABLE:
        return True
    for given in ARGUMENTS:
        try:
            text = f"SELECT {name}({given}) FROM t"
            tree = parse(Fragment(text, 0, len(text))).tree
        except (ProgrammingError, NotSupportedError):
            continue
        assert tree is not None
        if any(has(each, "rows", "groups") for each in tree.find_all(exp.Func)):
            return True
    return False


@pytest.mark.parametrize("name", WORKING)
def test_every_name_that_is_suggested_is_one(name: str) -> None:
    assert is_known(name)
    assert nearest_function(name) is None
    assert nearest_function(name.upper()) is None


def test_swapped_letters_are_put_right() -> None:
    rng = random.Random(7)
    long = [name for name in WORKING if len(name) > 4]
    for name in long:
        place = rng.randrange(len(name) - 1)
        wrong = name[:place] + name[place + 1] + name[place] + name[place + 2 :]
        assert nearest_function(wrong) is not None or wrong in WORKING


def test_words_that_are_near_to_none_are_let_be() -> None:
    for name in ("foo", "frobnicate", "x", "", "dp_interval", "zzzz"):
        assert nearest_function(name) is None
