"""LABEL and CODE in every place and spelling, beside macros of DuckDB that say the same."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.errors import Error
from dpsql.sql.rewrites.code_calls import MOST
from tests.support.effort import first_seed
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 1000
[table.t]
source = "t.parquet"
privacy_unit = { column = "who", max_rows = 3 }
[table.t.column]
sex = { type = "text", labels = { 1 = "male", 2 = "female", -9 = "refused" }, null = true }
ward = { type = "text", labels = { A = "surgery", B = "medicine" } }
n = { type = "integer", domain = [0, 9] }
plain = { type = "text", domain = ["x", "y"] }
[table.p]
source = "p.csv"
public = true
[table.p.column]
word = { type = "text" }
[view.v]
sql = "SELECT who, sex AS s, CODE(ward) AS w, n FROM t WHERE CODE(sex) > 0"
[view.g]
sql = "SELECT sex, COUNT(*) AS c FROM t GROUP BY sex"
"""
MACROS = """
CREATE MACRO code(x) AS CASE x WHEN 'male' THEN '1' WHEN 'female' THEN '2' WHEN 'refused' THEN '-9'
    WHEN 'surgery' THEN 'A' WHEN 'medicine' THEN 'B' ELSE x END;
CREATE MACRO label(x) AS CASE x WHEN '1' THEN 'male' WHEN '2' THEN 'female' WHEN '-9' THEN 'refused'
    WHEN 'A' THEN 'surgery' WHEN 'B' THEN 'medicine' ELSE x END;
CREATE VIEW v AS SELECT who, sex AS s, code(ward) AS w, n FROM t WHERE code(sex)::INT > 0;
CREATE VIEW g AS SELECT sex, COUNT(*) AS c FROM t GROUP BY sex;
"""
PLACES = (
    "SELECT {x} AS k, COUNT(*) AS n FROM {t} GROUP BY {x}",
    "SELECT {x} AS k, SUM(n) AS n FROM {t} GROUP BY ALL",
    "SELECT {x} AS k, COUNT(*) AS n FROM {t} GROUP BY k HAVING {x} IS NOT NULL",
    "SELECT 'a' AS k, COUNT(*) AS n FROM {t} WHERE {x} IN ({one}, {two})",
    "SELECT 'a' AS k, COUNT(*) FILTER (WHERE {x} <> {one}) AS n FROM {t}",
    "SELECT 'a' AS k, SUM(CASE WHEN {x} = {two} THEN n END) AS n FROM {t}",
    "SELECT {c} AS k, COUNT(DISTINCT {x}) AS n FROM {t} GROUP BY {c}",
    "SELECT {x} AS k, m AS n FROM (SELECT {c}, COUNT(*) AS m FROM {t} GROUP BY {c}) AS q",
    "SELECT k, n FROM (SELECT {c} AS k, COUNT(*) AS n FROM {t} GROUP BY 1) q WHERE {k} = {one}",
    "SELECT {c} AS k, COUNT(*) AS n FROM {t} GROUP BY {c} ORDER BY {x}",
    "SELECT {c} AS k, COUNT(*) AS n FROM {t} GROUP BY k ORDER BY {k} DESC",
    "SELECT {c} AS k, COUNT(*) AS n FROM {t} GROUP BY k UNION ALL "
    "SELECT {c} AS k, SUM(n) AS n FROM {t} GROUP BY k ORDER BY {k}, n",
    "SELECT {k} AS k, SUM(n) AS n FROM (SELECT {c} AS k, n FROM {t} UNION ALL "
    "SELECT {c} AS k, n FROM {t}) AS q GROUP BY {k}",
    "SELECT 'a' AS k, COUNT(*) AS n FROM {t} WHERE EXISTS "
    "(SELECT 1 FROM t AS o WHERE o.who = z.who AND {o} = {one})",
    "SELECT 'a' AS k, COUNT(*) AS n FROM {t} WHERE z.who IN (SELECT who FROM t WHERE {o} = {one})",
    "SELECT {x} AS k, COUNT(*) AS n FROM {t} JOIN p ON CAST({x} AS VARCHAR) = word GROUP BY {x}",
)
SPELLINGS = {
    "t AS z": ("sex", "ward"),
    "(SELECT who, sex AS s, ward AS w, n FROM t) AS z": ("s", "w"),
    "(SELECT * FROM (SELECT *, LABEL(sex) AS s FROM t) AS y WHERE n >= 0) AS z": ("s", "ward"),
    "c AS z": ("u", "w"),
    "d AS z": ("u", "w"),
}
WITH = (
    "WITH c(who, u, w, n) AS (SELECT who, sex, ward, n FROM t), "
    "d AS (SELECT who, LABEL(CODE(u)) AS u, LABEL(CODE(LABEL(w))) AS w, n FROM c) "
)
CALLS = ("CODE({})", "LABEL({})", "LABEL(CODE({}))", "CODE(LABEL({}))")
ROWS = [
    (f"p{i}", [1, 2, -9, None, 2][i % 5], "AB"[i % 3 % 2], i % 10, "xy"[i % 2]) for i in range(90)
]
STORED = {1: "male", 2: "female", -9: "refused", None: None}
WARDS = {"A": "surgery", "B": "medicine"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "coded"
    path.mkdir()
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE t (who VARCHAR, sex INT, ward VARCHAR, n INT, plain VARCHAR)"
        )
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", ROWS)
        database.execute(f"COPY t TO '{path / 't.parquet'}'")
    (path / "p.csv").write_text("word\n1\n2\nmale\nA\nsurgery\n")
    (path / "c.toml").write_text(CATALOG)
    return path


@contextmanager
def by_hand(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The same tables with labels in place of codes, and both functions as macros."""
    with duckdb.connect() as database:
        database.execute("CREATE TABLE t (who TEXT, sex TEXT, ward TEXT, n INT, plain TEXT)")
        rows = [(who, STORED[sex], WARDS[ward], n, plain) for who, sex, ward, n, plain in ROWS]
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
        database.execute(
            f"CREATE TABLE p AS FROM read_csv('{folder / 'p.csv'}', all_varchar = true)"
        )
        database.execute(MACROS)
        yield database


def statements() -> list[str]:
    """Every place with every call, each in a spelling at random."""
    found, rng = [], random.Random(first_seed(0))
    both = ((0, ("1", "2"), ("male", "female")), (1, ("A", "B"), ("surgery", "medicine")))
    for (place, codes, labels), call, form in itertools.product(both, CALLS, PLACES):
        source, columns = rng.choice([*SPELLINGS.items()])
        values = codes if call.startswith("CODE") else labels
        one, two = values if "1" in values else map(repr, values)
        calls = {"x": columns[place], "k": "k", "o": ("sex", "ward")[place]}
        calls = {key: call.format(each) for key, each in calls.items()}
        with_ = WITH if source[0] in "cd" else ""
        found.append(with_ + form.format(t=source, c=columns[place], one=one, two=two, **calls))
    return found


def told(rows: list[tuple[Any, ...]]) -> list[tuple[str, int]]:
    return sorted((str(key), round(n)) for key, n in rows if round(n or 0))


def test_every_place_and_spelling_is_as_by_hand(folder: Path) -> None:
    wrong = []
    with (
        by_hand(folder) as truth,
        zero_noise(),
        dpsql.connect(folder / "c.toml", epsilon=1) as connection,
    ):
        for sql in statements():
            texts = re.sub(r"(?<=[=>( ])([12])(?=[,) ]|$)", r"'\1'", sql)
            expected = told(truth.execute(texts.replace("BY '1'", "BY 1")).fetchall())
            found = told(connection.execute(sql).fetchall())
            if found != expected or not found:
                wrong.append(f"{sql}\n  {found} {expected}")
    assert not wrong, "\n".join(wrong)


REFUSED = {
    "CODE(plain)": ("E_FUNCTION", "no column with labels"),
    "LABEL(n)": ("E_FUNCTION", "no column with labels"),
    "CODE(UPPER(sex))": ("E_FUNCTION", "no column with labels"),
    "CODE(word)": ("E_FUNCTION", "no column with labels"),
    "CODE('male')": ("E_FUNCTION", "no column with labels"),
    "CODE()": ("E_FUNCTION", "other than one column"),
    "LABEL(sex, ward)": ("E_FUNCTION", "other than one column"),
    "CODE(sexx)": ("E_UNKNOWN_COLUMN", "no column sexx"),
    "CODE(y.sex)": ("E_UNKNOWN_TABLE", "named y"),
}


def test_what_has_no_labels_is_refused_where_it_stands(folder: Path) -> None:
    with dpsql.connect(folder / "c.toml", epsilon=1) as connection:
        for call, (code, why) in REFUSED.items():
            source = "t CROSS JOIN p" if "word" in call else "t"
            with pytest.raises(Error, match=why) as caught:
                connection.execute(f"SELECT {call} AS k, COUNT(*) FROM {source} GROUP BY k")
            assert caught.value.code == code
            span = caught.value.span
            assert span is not None
            assert span.text[span.start : span.end] in call
            assert caught.value.hint


def test_columns_are_named_as_they_are_written(folder: Path) -> None:
    with zero_noise(), dpsql.connect(folder / "c.toml", epsilon=1) as connection:
        cursor = connection.execute("SELECT CODE(s), Label(s), COUNT(*) FROM v GROUP BY s")
        assert [each[0] for each in cursor.description or ()] == ["code(s)", "label(s)", "count(*)"]
        assert cursor.fetchall() == [(1, "male", 12 + 6), (2, "female", 36)]
        assert connection.execute("SELECT SUM(c) FROM g WHERE CODE(sex) = 2").fetchall() == [(36,)]


def test_long_lists_are_joined(folder: Path, tmp_path: Path) -> None:
    labels = ", ".join(f'"{i:04}" = "label {i}"' for i in range(MOST + 1))
    text = (folder / "c.toml").read_text().replace('A = "surgery", B = "medicine"', labels)
    (tmp_path / "c.toml").write_text(text.replace('"t.parquet"', f'"{folder / "t.parquet"}"'))
    (tmp_path / "p.csv").write_text("word\n")
    with (
        dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection,
        pytest.raises(Error, match="more than 2,000 labels"),
    ):
        connection.execute("EXPLAIN SELECT CODE(ward) AS k, COUNT(*) FROM t GROUP BY k")
