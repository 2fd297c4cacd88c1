"""Texts that an expression makes are never longer than what is said of them beforehand."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import parse_one

from dpsql.sql.text.growth import MAX_LENGTH, bound_length

TEXT = "abcabc"

EXPRESSIONS = [
    "replace(v, 'a', 'xyz')",
    "regexp_replace(v, '', 'xyz', 'g')",
    r"regexp_replace(v, '(.)', '\1\1\1', 'g')",
    r"regexp_replace(v, '(.*)', '\1-\1')",
    r"regexp_replace(regexp_replace(v, '(.)', '\1\1', 'g'), '(.)', '\1!', 'g')",
    "regexp_replace(v, 'b', v, 'g')",
    "lpad(v, 20, '-')",
    "rpad(v, 3, '-')",
    "repeat(v, 7)",
    "repeat(repeat(v, 3), 4)",
    "concat_ws('--', v, v, 'z')",
    "hex(v)",
    "translate(v, 'ab', 'xy')",
    "v || repeat('x', 3) || upper(v)",
    "strftime(DATE '2024-01-31', '%A, %B %c')",
    "format('{} and {:>20} {:.3f}', v, v, 1.5)",
    "printf('%s|%40s|%.2f', v, v, 1e300)",
    "trim(replace(v, 'abc', '  -  '))",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_a_text_is_no_longer_than_its_bound(text: str) -> None:
    with duckdb.connect() as database:
        row = database.execute(f"SELECT length({text}) FROM (SELECT '{TEXT}' AS v)").fetchone()
    assert row is not None
    assert row[0] <= bound_length(parse_one(text, read="duckdb"), len(TEXT))


@pytest.mark.parametrize(
    "text",
    [
        "repeat(v, n)",
        "lpad(v, n, 'x')",
        "format(v, 1)",
        "printf('%*d', n, 1)",
        "format('{:{}}', v, n)",
        "repeat(v, -1)",
    ],
)
def test_a_length_that_is_not_written_out_has_no_bound(text: str) -> None:
    assert bound_length(parse_one(text, read="duckdb"), len(TEXT)) > MAX_LENGTH
