"""What a value takes to be read does not depend on whether it is declared, or a value at all.

DuckDB takes 5 to 400 times as long for a conversion that fails. So none is sent that can fail: of
all that is sent, the word that lets it fail in silence is taken out, and nothing fails.
``SPELLINGS`` says how many texts are spelled.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing

import duckdb
import numpy as np
import pytest

from dpsql.privacy.vault.data_engine import Form, RequestedColumn
from dpsql.privacy.vault.files.csv_patterns import pattern
from dpsql.privacy.vault.files.fetched_columns import (
    MISSING,
    TextPlaces,
    fetch_column,
    hash_sql,
    narrow_sql,
)
from dpsql.privacy.vault.files.source import connect, family, safe_type
from dpsql.privacy.vault.unit.rows import ask
from tests.privacy.additivity import KINDS, arrow
from tests.support.effort import effort

SPELLINGS = effort(3000)
TYPES: dict[Form, str] = {
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "day": "DATE",
    "clock": "TIMESTAMP",
    "time": "TIME",
}
"""What the texts of CSV files are read as."""


@pytest.fixture
def reader() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(connect(threads=1)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def daring(sql: str | None) -> str:
    """What is sent, so that it raises where a conversion fails."""
    return (sql or "0").replace("TRY_CAST(", "CAST(").replace("TRY(", "(")


@pytest.mark.parametrize("kind", [name for name, each in KINDS.items() if each.sql])
def test_no_value_of_any_type_makes_a_conversion_fail(
    kind: str, reader: duckdb.DuckDBPyConnection
) -> None:
    values = [value for value in KINDS[kind].values if not isinstance(value, bytes) or utf8(value)]
    frame = {"v": arrow(KINDS[kind], values, True)}
    pyarrow = pytest.importorskip("pyarrow")
    reader.register("frame", pyarrow.table(frame))
    chosen = "v" if KINDS[kind].sql == "ENUM" else f"CAST(v AS {KINDS[kind].sql})"
    reader.execute(f"CREATE TEMP TABLE t AS SELECT {chosen} AS v FROM frame")
    ((described, *_),) = reader.execute("SELECT DISTINCT typeof(v) FROM t").fetchall()
    known = safe_type(described)
    asked = [ask(column, "v", family(known)) for column in KINDS[kind].columns.values()]
    for each in {(a.form, a.zone): a for a in asked}.values():
        found = fetch_column(each, "t.v", known)
        sent = f"SELECT {found.value} AS a, {found.state or 0} AS b FROM t"
        kept = reader.execute(sent).fetchall()
        dared = reader.execute(daring(sent)).fetchall()
        assert repr(dared) == repr(kept)
    if family(known) == "integer":
        key = f"SELECT COALESCE({narrow_sql('t.v', known)}, {hash_sql('t.v')}) FROM t"
        assert reader.execute(daring(key)).fetchall() == reader.execute(key).fetchall()


def utf8(value: bytes) -> bool:
    return value.decode(errors="ignore").encode() == value


def spell(rng: random.Random, form: Form) -> str:
    """A text that has a form, or nearly."""
    text = {"number": number, "boolean": flag, "time": moment}.get(form, instant)(rng)
    if rng.random() < 0.2:
        text = rng.choice(["", " ", "\t", "\n", "  "]) + text + rng.choice(["", " ", "\v", "  "])
    if text and rng.random() < 0.2:
        place = rng.randrange(len(text))
        text = text[:place] + rng.choice("0189-: /.eTZ+_x") + text[place + rng.randint(0, 1) :]
    return text


def number(rng: random.Random) -> str:
    def digits() -> str:
        return rng.choice(["", "1", "12", "1_2", "007", "1__2", "_1", "1_", "9" * 400])

    if rng.random() < 0.2:
        return rng.choice(["inf", "Infinity", "nan", "-NaN", "+INF", "1e999", "true", "NA", "1,5"])
    sign, power = rng.choice(["", "-", "+", "+-", "-+"]), rng.choice(["", "", "e", "E-", "e+"])
    return sign + digits() + rng.choice(["", "."]) + digits() + power + digits()


def flag(rng: random.Random) -> str:
    words = ["true", "false", "t", "f", "yes", "no", "y", "n", "1", "0", "on", "2", ""]
    return "".join(rng.choice([c.upper(), c]) for c in rng.choice(words))


def clock(rng: random.Random) -> str:
    width = rng.choice(["d", "02d"])
    parts = rng.randint(0, 25), rng.randint(0, 61), rng.randint(0, 61)
    text = ":".join(format(part, width) for part in parts[: rng.choice([2, 3])])
    return text + rng.choice(["", "", ".", f".{rng.randint(0, 10**9)}"])


def moment(rng: random.Random) -> str:
    return clock(rng) + rng.choice(["", zone(rng)]) if rng.random() < 0.6 else instant(rng)


def zone(rng: random.Random) -> str:
    zones = ["Z", " Z", "+01", "-0130", "+01:30", "+99:99", " UTC", "+14:30:00", " +02", "  UTC"]
    return rng.choice(["", *zones, " Europe/Berlin", "UTC", "+25", "+1"])


def instant(rng: random.Random) -> str:
    if rng.random() < 0.05:
        return rng.choice(["epoch", "Epoch", "infinity", "today", "now"])
    year, mark = rng.choice([rng.randint(1, 9999), 100 * rng.randint(1, 99)]), rng.choice("-/ \\-")
    month, day, width = rng.randint(0, 13), rng.choice([29, rng.randint(0, 32)]), "d"
    years = rng.choice([str(year), f"{year:04}", f"{year:04}", "0", "0000", "10000", f"-{year}"])
    text = mark.join([years, *(format(each, rng.choice([width, "02d"])) for each in (month, day))])
    between = rng.choice(["T", " ", "  ", "\t"])
    return text + rng.choice(["", between + clock(rng) + rng.choice(["", zone(rng)])])


@pytest.mark.parametrize("form", TYPES)
def test_texts_are_converted_where_they_have_the_form_of_a_value(
    form: Form, reader: duckdb.DuckDBPyConnection
) -> None:
    """DuckDB converts whatever fits, and of years 1 to 9999 nothing that it converts is left out.

    But for time zones of a time of day without one, which say nothing, and spaces other than ' '.
    """
    rng = random.Random(7)
    texts = sorted({spell(rng, form) for _ in range(SPELLINGS)})
    found = fetch_column(RequestedColumn("v", form), "v", "VARCHAR")
    listed = "(SELECT unnest(CAST($1 AS VARCHAR[])) AS v)"
    sent = f"SELECT {found.value}, {found.state or 0} FROM {listed}"
    dared = reader.execute(daring(sent), [texts]).fetchall()
    assert repr(dared) == repr(reader.execute(sent, [texts]).fetchall())
    facts = f"TRY_CAST(v AS {TYPES[form]}) IS NOT NULL, regexp_full_match(v, $2)"
    asked = f"SELECT v, {facts} FROM {listed}"
    told = reader.execute(asked, [texts, pattern(form)]).fetchall()
    assert [text for text, converted, fits in told if fits and not converted] == []
    assert sum(fits for *_, fits in told) > 50
    lost = [text for text, converted, fits in told if converted and not fits]
    assert [text for text in lost if is_ordinary(text)] == []


def is_ordinary(text: str) -> bool:
    """Whether a text is of the years 1 to 9999, without odd spaces and zones of no meaning."""
    plain = text.strip(" ")
    year = plain.replace("/", "-").replace("\\", "-").replace(" ", "-").partition("-")[0]
    is_dated = year.isdecimal() and len(year.lstrip("0")) <= 4 and int(year) > 0
    odd = any(mark in text for mark in "\t\n\v_") or plain.startswith(("nan(", "0"))
    return is_dated and not odd and ":" not in plain


def test_places_of_texts_are_those_of_the_list(reader: duckdb.DuckDBPyConnection) -> None:
    odd = ["z", "", "it's", "''", "\\", "$1", "; --", "/*", "\n", '"', "é", "e\u0301", " ", "NULL"]
    for listed in ([], odd, [*odd, "a\0b"], [*odd, *(f"value {i}" for i in range(3000))]):
        places = TextPlaces.of(reader, listed)
        asked = [*listed, "a", "e\u0301 ", "a\0", "null", *(f"v{i}" for i in range(999))]
        sql = f"SELECT {hash_sql('v')} AS h FROM (SELECT unnest(CAST($1 AS VARCHAR[])) AS v)"
        hashes = np.asarray(reader.execute(sql, [asked]).fetchnumpy()["h"], dtype=np.int64)
        known = {text: place for place, text in enumerate(listed)}
        assert places.find(hashes)[0].tolist() == [known.get(text, -1) for text in asked]
        assert places.find(np.array([MISSING]))[0].tolist() == [-1]


def test_texts_that_nobody_listed_take_as_long_as_those_that_are(
    reader: duckdb.DuckDBPyConnection,
) -> None:
    """They took 400 times as long: 38 ns for each listed text."""
    listed = [f"value {i}" for i in range(10_000)]
    places, took = TextPlaces.of(reader, listed), {}
    for what in ("value ", "other "):
        reader.execute(
            f"CREATE OR REPLACE TEMP TABLE t AS SELECT '{what}' || i AS v FROM range(10000) r(i)"
        )
        value = fetch_column(RequestedColumn("v", "place", tuple(listed)), "v", "VARCHAR").value
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            found = reader.execute(f"SELECT {value} AS v FROM t").fetchnumpy()["v"]
            places.find(np.asarray(found, dtype=np.int64))
            best = min(best, time.process_time() - start)
        took[what] = best
    assert took["other "] < 8 * took["value "]
