"""Quoted text of any length is read with the memory that it takes itself."""

from __future__ import annotations

import itertools
import re
import tracemalloc

import pytest

from dpsql.server import route
from dpsql.sql.text import lexemes
from dpsql.ui import highlight

SIZE = 20_000
PATTERNS = {
    "lexemes": lexemes._LEXEME,
    "names": re.compile(route._NAME),
    **{name: each for name, each in vars(highlight).items() if isinstance(each, re.Pattern)},
}
OPENINGS = ("'", '"', "e'", "/*", "--", "$$", "")
BODIES = ("x", "''", '""', "\\\\", "\\'", "\u00e9", " ", "/*", "--", "$", "1", "\n")


@pytest.mark.parametrize("name", PATTERNS)
def test_a_token_takes_memory_as_its_text(name: str) -> None:
    """A text of 2 MB took 500 MB before it was refused for its length."""
    for opening, body in itertools.product(OPENINGS, BODIES):
        for closing in (opening[-1:], ""):
            text = opening + SIZE * body + closing
            tracemalloc.start()
            try:
                PATTERNS[name].match(text)
                assert tracemalloc.get_traced_memory()[1] < 16 * len(text), (opening, body)
            finally:
                tracemalloc.stop()
