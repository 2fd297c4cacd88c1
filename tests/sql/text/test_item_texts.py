"""Columns without an alias are called as their items are written, whatever becomes of them."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from sqlglot import parse_one

from tests.support.effort import effort
from tests.support.oracle import open_world

STATEMENTS = effort(150)

ITEMS = [
    *("COUNT(*)", "Sum(a) / COUNT(*)", "mean(a)", "IF(COUNT(*) > 3, 'Many, or so', 'few')"),
    *("COUNT(*)::INT", "b = 'X'", "a IS DISTINCT FROM 3", "CASE WHEN a > 3 THEN 'A (b)' END"),
    *("log10(COUNT(*))", "Pow(COUNT(*), 2)", "COUNT(*) FILTER (WHERE b = 'it''s')"),
    *(
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY a)",
        "[COUNT(*), SUM(a)]",
        "extract(year FROM d)",
    ),
    *("SUM(COUNT(*)) OVER (ORDER BY a)", "SAFE_CAST(a AS TEXT)", "\"b\" || 'Z'", "a ~ 'X'"),
    *("(SELECT COUNT(*) FROM t WHERE c)", "COUNT(DISTINCT a)", "- a", "NOT c", "a IN (1, 2)"),
    *("COUNT_IF(a > 3 AND b LIKE 'X%')", "string_split(b, ',')[1]", "round(AVG(a), 1)"),
]
GAPS = [" ", "  ", "\n", " /* , from */ "]
TAILS = [
    "FROM t",
    "FROM t WHERE a > 2 GROUP BY ALL",
    "FROM t GROUP BY a, b, c, d HAVING COUNT(*) > 2 ORDER BY 1 LIMIT 3",
    "FROM (SELECT a, b, c, d FROM t WHERE c) AS s GROUP BY ALL",
    "FROM t UNION ALL SELECT 1 FROM t",
]


def loosened(text: str, rng: random.Random) -> str:
    """A text with other blanks, comments and cases outside of quotes."""
    parts = re.split(r"('(?:[^']|'')*'|\"[^\"]*\")", text)
    for place in range(0, len(parts), 2):
        changed = rng.choice([parts[place].upper(), parts[place].lower(), parts[place]])
        changed = re.sub(r" ", lambda _: rng.choice(GAPS), changed)
        parts[place] = re.sub(r"(?<=[(,])", lambda _: rng.choice(["", " ", "\n "]), changed)
    return "".join(parts)


def shown(text: str) -> str:
    """A text in lower case outside of quotes, as a tree writes it."""
    parts = re.split(r"('(?:[^']|'')*'|\"[^\"]*\")", text)
    parts[::2] = [part.lower() for part in parts[::2]]
    return parse_one("".join(parts), read="duckdb").sql("duckdb")


@pytest.mark.slow
def test_names_are_the_texts_of_items(tmp_path: Path) -> None:
    rng, checked = random.Random(5), 0
    with open_world(tmp_path, []) as (connection, _):
        for _ in range(STATEMENTS):
            items = rng.sample(ITEMS, rng.randint(1, 3))
            sql = f"SELECT {', '.join(items)} {rng.choice(TAILS)}"
            try:
                names = [each.name for each in connection.describe(loosened(sql, rng))]
            except connection.Error:
                continue
            assert len(names) == len(items), sql
            for name, item in zip(names, items, strict=True):
                assert shown(name) == shown(item), f"{name}\n{item}\n{sql}"
                assert "\n" not in name
                assert "/*" not in name
                checked += 1
    assert checked > STATEMENTS / 4
