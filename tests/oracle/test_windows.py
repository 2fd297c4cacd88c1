"""Windows over groups: measured as ranges of groups, with the database's own answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.dbapi.connection import Connection
from dpsql.sql.shell.frames import WindowFrame, read_frame
from tests.support.seam import zero_noise

CATALOG = """
[budget]
epsilon = 900000

[table.t]
source = "t.parquet"
privacy_unit = "row"

[table.t.column]
x = { type = "integer", domain = [0, 22], null = true }
s = { type = "integer", domain = [0, 2] }
y = { type = "number", bounds = [0, 16] }
"""

FRAMES = [
    "",
    "ROWS 2 PRECEDING",
    "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN CURRENT ROW AND 3 FOLLOWING",
    "ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN 40 PRECEDING AND 30 FOLLOWING",
    "ROWS BETWEEN 4 PRECEDING AND 2 PRECEDING",
    "RANGE BETWEEN 3 PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN CURRENT ROW AND 4 FOLLOWING",
    "RANGE BETWEEN 2 PRECEDING AND 2 FOLLOWING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING",
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "RANGE BETWEEN CURRENT ROW AND CURRENT ROW",
]

# (keys, partition, the key of the order)
SHAPES = [
    ("x", "", "x"),
    ("s, x", "PARTITION BY s", "x"),
    ("x, x % 2", "PARTITION BY x % 2", "x"),
    ("x // 3", "", "x // 3"),
    ("s, x", "", "x"),
]

WHERES = ["", "WHERE x BETWEEN 3 AND 19", "WHERE x % 4 <> 1"]
SUMS = {"COUNT(*)": "COUNT(y)", "SUM(y)": "COALESCE(SUM(y), 0)"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path
    duckdb.execute(
        "COPY (SELECT CASE WHEN i % 11 = 0 THEN NULL ELSE (i * i % 23)::INT END AS x,"
        " (i % 3)::INT AS s, (i % 17)::DOUBLE AS y FROM range(500) r(i))"
        f" TO '{folder / 't.parquet'}'"
    )
    (folder / "c.toml").write_text(CATALOG)
    return folder


@pytest.fixture
def private(place: Path) -> Iterator[Connection]:
    with zero_noise(), dpsql.connect(place / "c.toml", epsilon=1) as connection:
        connection.execute("SET mechanism = 'identity'")  # quick to plan; what is asked is tried
        yield connection


@pytest.fixture
def grid(place: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Every cell has a row, since an empty group has one in the private answer."""
    with duckdb.connect() as database:
        database.execute(
            f"CREATE TABLE r AS SELECT * FROM '{place / 't.parquet'}';"
            "CREATE TABLE t AS SELECT a.x, b.s, r.y"
            " FROM (SELECT unnest(range(23))::INT AS x UNION ALL SELECT NULL) a"
            " CROSS JOIN (SELECT unnest(range(3))::INT AS s) b"
            " LEFT JOIN r ON r.x IS NOT DISTINCT FROM a.x AND r.s = b.s"
        )
        yield database


@pytest.mark.parametrize("frame", FRAMES)
def test_windows_are_those_of_the_database(
    frame: str, private: Connection, grid: duckdb.DuckDBPyConnection
) -> None:
    cases = itertools.product(SHAPES, ("", "DESC"))
    first = FRAMES.index(frame) % 2  # every other case, so that neighbours try the rest
    for number, ((keys, partition, order), direction) in [*enumerate(cases)][first::2]:
        if frame.startswith("ROWS") and keys == "s, x" and not partition:
            continue  # rows of equal order: the database may take them in any order
        where, (ours, theirs) = WHERES[number % 3], list(SUMS.items())[number // 2 % 2]
        text = (
            f"SELECT {keys}, SUM({{}}) OVER ({partition} ORDER BY {order} {direction} {frame})"
            f" AS n FROM t {where} GROUP BY {keys}"
        )
        found = {row[:-1]: row[-1] for row in private.execute(text.format(ours)).fetchall()}
        known = {row[:-1]: row[-1] for row in grid.execute(text.format(theirs)).fetchall()}
        assert found.keys() == known.keys(), text
        for key, value in known.items():
            wanted = None if value is None else pytest.approx(float(value), abs=1e-3)
            assert found[key] == wanted, (text, key)


def test_narrow_windows_are_measured_and_not_added_up(tmp_path: Path) -> None:
    duckdb.execute(
        f"COPY (SELECT (i % 256)::INT AS x FROM range(999) r(i)) TO '{tmp_path / 't.parquet'}'"
    )
    catalog = CATALOG.split("[table.t.column]")[0]
    (tmp_path / "c.toml").write_text(
        catalog + "[table.t.column]\nx = { type = 'integer', domain = [0, 255] }\n"
    )
    text = (
        "SELECT x, SUM(COUNT(*)) OVER (ORDER BY x ROWS BETWEEN 31 PRECEDING AND CURRENT ROW) AS n"
        " FROM t GROUP BY x"
    )
    with dpsql.connect(tmp_path / "c.toml", epsilon=1) as connection:
        explained = " ".join(
            str(row[0]) for row in connection.execute(f"EXPLAIN {text}").fetchall()
        )
    # Noise on each cell: 2 x 32, the square root of which is 8.
    shown = float(explained.split("error")[1].split()[0])
    assert shown < 6.7


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("ROWS 2 PRECEDING", WindowFrame(2, 0, True)),
        ("RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING", WindowFrame(1, 2)),
        ("ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING", WindowFrame(None, None)),
        ("ROWS BETWEEN 3 FOLLOWING AND 4 FOLLOWING", None),
        ("ROWS BETWEEN 2 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW", None),
        ("RANGE BETWEEN 1.5 PRECEDING AND CURRENT ROW", None),
        ("GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW", None),
    ],
)
def test_frames_that_may_be_empty_are_left_to_the_shell(
    text: str, frame: WindowFrame | None
) -> None:
    from sqlglot import exp, parse_one

    tree = parse_one(f"SELECT SUM(COUNT(*)) OVER (ORDER BY x {text})", read="duckdb")
    window = tree.find(exp.Window)
    assert window is not None
    assert read_frame(window) == frame
