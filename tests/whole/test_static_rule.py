"""The static rule: everything but the numbers of noisy columns is a function of public facts.

The same session runs on a table, on the table with one unit more, and on an empty table, with the
noise set to zero. Answers' shapes, keys, types, errors, costs, forecasts, texts and the ledger must
be identical byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.answer.result import Result
from dpsql.dbapi.connection import Connection
from dpsql.dbapi.script import parse_script
from dpsql.sql.query import Output
from tests.support.seam import zero_noise
from tests.support.world import BUILT, cases, catalog_text, write_data

pytestmark = pytest.mark.slow

TABLES = ("table", "more", "empty")
ACCEPTED = [
    "SELECT COUNT(*) AS n FROM visits",
    "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward",
    "SELECT ward, COUNT(*) AS n, DP_STDDEV(n), DP_INTERVAL_LOW(n) FROM visits GROUP BY ward",
    "SELECT native_country, COUNT(*) FROM adult GROUP BY native_country",
    "SELECT age // 10 AS decade, COUNT(*), COUNT(*) * 2 FROM adult GROUP BY decade",
    "SELECT age > 40 AS old, sex, COUNT(*) FROM adult GROUP BY old, sex",
    "SELECT upper(race) AS r, COUNT(*) FROM adult WHERE sex = 'Male' GROUP BY r",
    "SELECT CASE WHEN age < 30 THEN 'young' END AS band, COUNT(*) FROM adult GROUP BY 1",
    "SELECT capital_loss, COUNT(*) FROM adult WHERE capital_loss < 200 GROUP BY capital_loss",
    "SELECT sex, 100.0 * COUNT(*) FILTER (WHERE age > 40) / COUNT(*) FROM adult GROUP BY sex",
    "SELECT sex, SUM(CASE WHEN age > 40 THEN 1 ELSE 0 END) AS old FROM adult GROUP BY sex",
    "SELECT sex, COUNT(*) AS n FROM adult GROUP BY sex ORDER BY sex DESC LIMIT 1",
    "SELECT SQRT(COUNT(*) - 100) FROM adult",
    "SELECT LN(COUNT(*)), CAST(COUNT(*) - 200 AS TINYINT), 1 / COUNT(*) FROM adult",
    "SELECT CAST(COUNT(*) AS BIGINT) * 9000000000000000000, POW(COUNT(*), 200) FROM adult",
    "SELECT CAST(COUNT(*) AS BIGINT) % (CAST(COUNT(*) AS BIGINT) - 400) AS r FROM adult",
    "SELECT COUNT(*) || ' people' AS t, COUNT(*) > 100 AS many FROM adult",
    "SELECT COUNT(*) FROM adult WHERE education LIKE '%s%' AND race <> 'White'",
    "EXPLAIN SELECT sex, COUNT(*) FROM adult GROUP BY sex",
    "SHOW tables",
    "SHOW budget",
    "DESCRIBE adult",
    "SELECT sex, COUNT(*) FROM adult GROUP BY sex",
]
SIFTED = [
    "SELECT age, COUNT(*) AS n FROM adult GROUP BY age HAVING COUNT(*) > 3 ORDER BY n DESC LIMIT 5",
    "SELECT race, COUNT(*) FROM adult GROUP BY race HAVING CAST(COUNT(*) AS TINYINT) > 1",
    "SELECT race, COUNT(*) AS n FROM adult GROUP BY race ORDER BY CAST(n AS TINYINT), LN(n - 1)",
]


def mask(connection: Connection, result: Result, sifted: bool) -> list[object]:
    """What a result shows besides the numbers of noisy columns.

    The errors of bare aggregates are public too; those of ratios are computed from the numbers.
    """
    outputs = outputs_of(connection, result)
    rows = [
        [
            "#" if output and output.noisy else repr(v)
            for output, v in zip(outputs, row, strict=True)
        ]
        for row in result.rows
    ]
    errors = [
        repr(each) if output is None or output.aggregate is not None else each is not None
        for output, each in zip(outputs, result.stddev, strict=True)
    ]
    # Which errors are not worked out follows from noisy numbers: of a NULL there is none.
    notes = [note for note in result.notes if "is not worked out" not in note]
    public = [result.columns, result.types, result.kind, result.message, notes]
    return [*public, str(result.cost), [] if sifted else [rows, errors]]


def outputs_of(connection: Connection, result: Result) -> Sequence[Output | None]:
    """The select items behind the columns of a paid answer."""
    if result.cost is None:
        return [None] * len(result.columns)
    (compiled,) = connection.engine.compile(parse_script(result.sql))
    outputs = compiled.selects[0].query.shell.outputs
    if compiled.outer is not None:  # worked out of noisy numbers, as a whole
        return [replace(outputs[-1], noisy=True, aggregate=None)] * len(result.columns)
    return outputs


def session(folder: Path, which: str) -> Iterator[tuple[str, object]]:
    """Run every statement on one connection and yield what can be seen of each."""
    folder.mkdir()
    write_data(folder, which)
    (folder / "world.toml").write_text(catalog_text("60", "0"), encoding="utf-8")
    statements = [case.sql for case in cases("sql")] + ACCEPTED + SIFTED
    with dpsql.connect(folder / "world.toml", epsilon=1) as connection:
        for sql in statements:
            yield sql, seen(connection, sql)
        for case in cases("sql"):
            if case.id in BUILT:
                continue
            yield "script " + case.id, scripted(connection, case.sql)
        connection.execute("SET fresh = on")
        while connection.budget.remaining_epsilon:
            yield "spend", seen(connection, ACCEPTED[0])
        yield "refused", seen(connection, ACCEPTED[0])
        yield "static", seen(connection, "SELECT COUNT(*) FROM adult WHERE 1 = 0")
        yield "ledger", [public_entry(connection, entry) for entry in connection.entries()]


def seen(connection: Connection, sql: str) -> object:
    """The outcome of one statement, up to numbers and to the names of this ledger."""
    try:
        result = connection.execute(sql).result
    except dpsql.Error as error:
        return [type(error).__name__, error.code, str(error), repr(error.args), error.hint]
    sifted = "HAVING" in sql or "SELECT DISTINCT COUNT" in sql or sql in SIFTED
    text = json.dumps(mask(connection, result, sifted), default=str)
    return text.replace(connection.engine.ledger.ledger_id, "<ledger>")


def scripted(connection: Connection, sql: str) -> object:
    """The outcome of a statement in a script before one that is always refused."""
    try:
        connection.executescript(f"{sql}\n; SELECT COUNT(*) FROM nowhere")
    except dpsql.Error as error:
        return [error.code, str(error)]
    raise AssertionError("a script with a refused statement was answered")


def public_entry(connection: Connection, entry: Any) -> list[object]:
    """A ledger entry without its random names, times, hashes and the version of the data."""
    ledger = connection.engine.ledger.ledger_id
    private = ("id", "at", "hash", "data_version")
    names = [name for name in type(entry).__dataclass_fields__ if name not in private]
    return [str(getattr(entry, name)).replace(ledger, "<ledger>") for name in names]


def test_nothing_but_noisy_numbers_depends_on_the_data(tmp_path: Path) -> None:
    with zero_noise():
        sessions = [list(session(tmp_path / which, which)) for which in TABLES]
    assert len(sessions[0]) == len(sessions[1]) == len(sessions[2])
    for step in zip(*sessions, strict=True):
        for name, outcome in step[1:]:
            assert (name, outcome) == step[0]


def test_the_sessions_do_differ_in_numbers(tmp_path: Path) -> None:
    """The comparison above is not empty: unmasked answers are different."""
    totals = []
    for which in TABLES:
        folder = tmp_path / which
        folder.mkdir()
        write_data(folder, which)
        (folder / "world.toml").write_text(catalog_text(), encoding="utf-8")
        with zero_noise(), dpsql.connect(folder / "world.toml", epsilon=1) as connection:
            rows = [connection.execute(f"SELECT COUNT(*) FROM {t}").fetchall()
                    for t in ("adult", "visits")]  # fmt: skip
            totals.append(rows)
    adult, visits = ([rows[i][0][0] for rows in totals] for i in (0, 1))
    assert adult[1] - adult[0] == 1
    assert visits[1] - visits[0] == 5
    assert adult[2] == visits[2] == 0
