"""No argument of a call is left out without a word, whatever the function."""

from __future__ import annotations

import pytest
from sqlglot.dialects.duckdb import DuckDB

from dpsql.errors import Error
from dpsql.sql.text import token_rewrites
from dpsql.sql.text.lexemes import split_statements
from dpsql.sql.text.parse import parse
from tests.support.effort import SHIFT as SEED
from tests.support.effort import one_in

NAMES = sorted(
    name
    for name in {*DuckDB.Parser.FUNCTIONS, *DuckDB.Parser.FUNCTION_PARSERS}
    if not name.startswith("J_S_O_N_")  # names of the parser's own
)
COUNTS = range(2, 7)


def lost(name: str, count: int) -> list[str]:
    """The arguments of a call that are not in the tree; none where it is refused."""
    words = [f"argument_{place}" for place in range(count)]
    (fragment,) = split_statements(f"SELECT {name}({', '.join(words)}) AS x FROM t")
    try:
        tree = parse(fragment).tree
    except Error:
        return []
    assert tree is not None
    read = {str(node.this).lower() for node in tree.walk()}
    return [word for word in words if word not in read]


def test_no_argument_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    share = one_in(4)
    asked = [(name, count) for name in NAMES[SEED % share :: share] for count in COUNTS]
    assert [call for call in asked if lost(*call)] == []
    monkeypatch.setattr(token_rewrites, "check_arguments", lambda *_: None)
    assert [call for call in asked if lost(*call)]


@pytest.mark.parametrize(
    ("call", "most"),
    [
        ("any_value(a, b)", "1 argument"),
        ("mod(a, 3, 2)", "2 arguments"),
        ("floor(a, 1, b)", "2 arguments"),
        ("regexp_replace(a, 'x', 'y', 'g', 'z')", "4 arguments"),
    ],
)
def test_calls_with_more_arguments_say_how_many_there_are(call: str, most: str) -> None:
    (fragment,) = split_statements(f"SELECT COUNT(*) FROM t WHERE {call} = 1")
    with pytest.raises(Error, match=f"takes at most {most}") as caught:
        parse(fragment)
    assert caught.value.code == "E_FUNCTION"
    assert f"^{'^' * (call.index('(') - 1)}\n" in f"{caught.value}"
