"""``dpsql check``: exact figures for the curator, a paid estimate for anybody."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

import dpsql as package
from dpsql.catalog.read import read_catalog
from dpsql.dbapi import checking
from dpsql.dbapi import connection as connection_module
from dpsql.errors import DataError
from dpsql.privacy.doors.check_figures import Figures, inspect_rows
from dpsql.privacy.vault.files.lines import FIELDS, NOT_UTF8, STRAY, UNCLOSED
from dpsql.relation.row_view import RowView
from dpsql.ui.check import figures_lines
from dpsql.workload.workload import Product
from tests.support.tables import insert

pytestmark = pytest.mark.slow

Run = Callable[..., Any]

CATALOG = """
[budget]
epsilon = 10
max_epsilon_per_request = 5

[table.visits]
source = "visits.parquet"
privacy_unit = { column = "patient_id", max_rows = 3 }

[table.visits.column]
severity = { type = "integer", domain = [1, 5] }
ward = { type = "text", domain = ["a", "b"], null = true }
kind = { type = "text", domain = ["x"], other = true }
cost = { type = "number", bounds = [0, 100] }
flag = { type = "boolean", domain = [false, true], null = true }
notes = { type = "text" }

[table.public]
source = "public.parquet"
public = true

[table.public.column]
ward = { type = "text" }
"""
INSIDE: dict[str, Callable[[Any], bool]] = {
    "severity": lambda v: v in range(1, 6),
    "ward": lambda v: v in ("a", "b", None),
    "kind": lambda v: v is not None,
    "cost": lambda v: v is not None and not math.isnan(v),
    "flag": lambda v: True,
    "notes": lambda v: True,
}


def rows_at_random(rng: random.Random, count: int) -> list[tuple[Any, ...]]:
    return [
        (
            rng.choice([f"p{k}" for k in range(count // 5)] + [None]),
            rng.choice([1, 2, 5, 9, -1, None]),
            rng.choice(["a", "b", "Alice", "Bob", None]),
            rng.choice(["x", "y", None]),
            rng.choice([1.0, 500.0, math.nan, None]),
            rng.choice([True, None]),
            "secret",
        )
        for _ in range(count)
    ]


def store(folder: Path, rows: list[tuple[Any, ...]]) -> Path:
    with duckdb.connect() as database:
        database.execute(
            "CREATE TABLE t (patient_id VARCHAR, severity INT, ward VARCHAR, kind VARCHAR,"
            " cost DOUBLE, flag BOOLEAN, notes VARCHAR)"
        )
        insert(database, "t", rows)
        database.execute(f"COPY t TO '{folder / 'visits.parquet'}'")
        database.execute(f"COPY (SELECT 'a' AS ward) TO '{folder / 'public.parquet'}'")
    path = folder / "visits.toml"
    path.write_text(CATALOG, encoding="utf-8")
    return path


@pytest.fixture
def rows() -> list[tuple[Any, ...]]:
    return rows_at_random(random.Random(3), 400)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[Any, ...]]) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return store(tmp_path, rows)


def bounded(rows: list[tuple[Any, ...]], most: int) -> int:
    owned = sorted(row[0] for row in rows if row[0] is not None)
    return sum(min(most, len(list(group))) for _, group in itertools.groupby(owned))


def figures(path: Path) -> Figures:
    return inspect_rows(read_catalog(path).tables["visits"])


@pytest.mark.parametrize("seed", range(3))
def test_the_figures_are_those_of_the_rows(seed: int, tmp_path: Path) -> None:
    rows = rows_at_random(random.Random(seed), 50 + 200 * seed)
    found = figures(store(tmp_path, rows))
    names = list(INSIDE)
    owners = [row[0] for row in rows if row[0] is not None]
    assert (found.rows, found.unowned) == (len(rows), len(rows) - len(owners))
    assert found.units == len(set(owners))
    assert found.crowded == sum(owners.count(who) > 3 for who in set(owners))
    assert found.most == bounded(rows, 3)
    assert found.dropped == len(owners) - found.most
    inside = [r for r in rows if all(INSIDE[n](v) for n, v in zip(names, r[1:], strict=True))]
    assert found.least == bounded(inside, 3)
    for position, column in enumerate(found.columns, start=1):
        outside = [row[position] for row in rows if not INSIDE[column.name](row[position])]
        missing = [v for v in outside if v is None or v != v]
        assert column.nulls == len(missing), column
        assert column.undeclared == len(outside) - len(missing), column
        known = [str(v) for v in outside if v is not None and v == v]
        assert dict(column.values) == {value: known.count(value) for value in set(known)}


def test_the_command_tells_them_as_private(dpsql: Run, catalog: Path) -> None:
    done = dpsql("check", catalog)
    found = figures(catalog)
    assert done.status == 0
    assert done.out.startswith("private: exact figures of the data")
    assert "not for release" in done.out.splitlines()[0]
    assert f"visits: parquet, 1 file, opens; {found.rows:,} rows" in done.out
    assert f"{found.unowned:,} rows without patient_id never count" in done.out
    assert f"{found.least:,} rows count where all columns are" in done.out
    assert "flag (boolean): takes every row" in done.out
    assert "hold 2 values not declared: other = true would count them" in done.out
    assert "public: public, parquet, opens" in done.out
    for value in ("Alice", "secret", "'9'"):
        assert value not in done.out + done.err
    assert not (catalog.parent / "visits.ledger").exists()
    named = dpsql("check", catalog, "--values", "--table", "visits")
    assert "'Alice': " in named.out
    assert "secret" not in named.out
    assert "public: public" not in named.out


KEYS = """
[budget]
epsilon = 1
[table.visits]
source = "v.csv"
privacy_unit = "row"
[table.visits.column]
ward = { type = "text", domain = ["A", "B", "C"] }
age = { type = "integer", domain = [0, 99] }
[table.wards]
source = "w.csv"
public = true
[table.wards.column]
ward = { type = "text" }
[table.gone]
source = "gone.csv"
public = true
[table.gone.column]
ward = { type = "text" }
"""


@pytest.mark.parametrize(
    ("public", "told"),
    [
        ("A C B", ""),
        ("A B", "of 3 declared, 1 value finds no row of wards, joined by ward ('C')"),
        ("A B C D", "1 value of wards not declared in ward ('D')"),
        ("a b c", "of 3 declared, 3 values find no row of wards, joined by ward: are they written"),
    ],
)
def test_lists_are_compared_with_public_rows(
    public: str, told: str, tmp_path: Path, dpsql: Run
) -> None:
    (tmp_path / "c.toml").write_text(KEYS)
    (tmp_path / "v.csv").write_text("ward,age\nA,1\n")
    rows = "".join(f"{each},1\n" for each in public.split())
    (tmp_path / "w.csv").write_text(f"ward,age\n{rows}")
    lines = dpsql("check", tmp_path / "c.toml").out.splitlines()
    found = [line for line in lines if line.startswith("  ward: ")]
    assert len(found) == bool(told)
    assert told in "".join(found)


@pytest.mark.parametrize("seed", range(4))
def test_lines_that_are_no_rows_are_counted(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    good = ["a,1", '"b",2', "c,", ",", '"a,b",3', "d,x\r"]
    bad = ["a", "a,1,2", '"a,1', 'a"b,"1', "\xff,1", "a,b\rc"]
    lines = [rng.choice(good + bad) for _ in range(200)] + ["", "\r"]
    rng.shuffle(lines)
    text = "\n".join(["ward,n", *lines]).encode("latin-1")
    (tmp_path / "t.csv").write_bytes(text + b"\n" * rng.randrange(2))
    (tmp_path / "t.toml").write_text(
        '[budget]\nepsilon = 1\n[table.t]\nsource = "t.csv"\nprivacy_unit = "row"\n'
        '[table.t.column]\nward = { type = "text", domain = ["a", "b"] }\n',
        encoding="utf-8",
    )
    found = inspect_rows(read_catalog(tmp_path / "t.toml").tables["t"])
    faults = dict(zip(bad, [FIELDS, FIELDS, UNCLOSED, UNCLOSED, NOT_UTF8, STRAY], strict=True))
    at = [(faults[line], n) for n, line in enumerate(lines, start=2) if line in bad]
    told = {each.why: (each.count, each.first) for each in found.unread}
    assert told == {
        why: (sum(w == why for w, _ in at), next(n for w, n in at if w == why)) for why, _ in at
    }
    assert found.rows == sum(line in good for line in lines)
    assert f"  {len(at):,} lines are no rows and never count" in figures_lines(found, True)


def test_a_source_that_does_not_open_is_named_and_the_others_follow(
    dpsql: Run, catalog: Path
) -> None:
    gone = '[table.gone]\nsource = "gone.csv"\nprivacy_unit = "row"\n[table.gone.column]\n'
    wrong = '[table.bad]\nsource = "public.parquet"\nprivacy_unit = "row"\n[table.bad.column]\n'
    number = 'ward = { type = "number", bounds = [0, 1] }\n'
    catalog.write_text(gone + number + wrong + number + CATALOG, encoding="utf-8")
    done = dpsql("check", catalog)
    assert done.status == 3
    assert "gone.csv': there is no such file" in done.err
    assert "column 'ward' is declared number but stored as text" in done.err
    assert "visits: parquet, 1 file, opens" in done.out


def test_an_estimate_is_an_ordinary_release(
    dpsql: Run, catalog: Path, rows: list[tuple[Any, ...]]
) -> None:
    done = dpsql("check", catalog, "--dp", "--epsilon", "4")
    assert done.status == 0
    assert "private" not in done.out
    assert "may be shown to anybody; charged ε 4, entry 1" in done.err
    again = dpsql("check", catalog, "--dp", "--epsilon", "4")
    assert again.out == done.out
    assert "free" in again.err
    with package.connect(catalog, epsilon=0.1) as connection:
        assert [e.epsilon for e in connection.entries() if e.kind == "debit"] == ["4"]
        assert "dpsql check --dp" in str(connection.execute("SHOW ledger").fetchall())
        found = connection.execute("SELECT COUNT(*) FROM visits").result
        assert found.cost is not None
        assert found.cost.free  # what was released is public
    (whole,) = re.findall(r"visits: (-?[\d,.]+) ± ([\d,.]+) rows", done.out)
    value, error = (float(text.replace(",", "")) for text in whole)
    assert abs(value - bounded(rows, 3)) < 25 * error


def test_the_estimate_has_the_noise_that_its_views_need(
    catalog: Path, rows: list[tuple[Any, ...]]
) -> None:
    """Five views and the units share epsilon; three rows of a unit move each view by three."""
    tables = [read_catalog(catalog).tables["visits"]]
    with package.connect(catalog) as connection:
        for bad in (Fraction(6), Fraction(0)):
            with pytest.raises(DataError):
                checking.estimate_left_out(connection, tables, bad)
        plan = checking.plan_estimate(connection.engine, tables, Fraction(5))
    alone = [("cost",), ("flag",), ("kind",), ("severity",), ("ward",)]
    whole = ("cost", "flag", "kind", "severity", "ward")
    views = [RowView(each) for each in ((), *alone, whole, ())]
    assert [part.view for part in plan.parts] == views
    assert [part.units for part in plan.parts] == [False] * 7 + [True]
    assert sum(part.amount for part in plan.parts) == 5
    for part in plan.parts:
        reach = 1 if part.units else 3
        (variance,) = part.forecast.variance(Product({}))
        assert variance == pytest.approx(2 * (reach * 8 / 5) ** 2 - 1 / 6, rel=1e-3)


@pytest.mark.parametrize(
    "options", [["--dp"], ["--epsilon", "1"], ["--dp", "--epsilon", "1", "--values"]]
)
def test_exact_figures_and_estimates_do_not_mix(
    dpsql: Run, catalog: Path, options: list[str]
) -> None:
    done = dpsql("check", catalog, *options)
    assert done.status == 2
    assert done.out == ""
    assert not (catalog.parent / "visits.ledger").exists()


def test_analysts_are_given_no_way_to_the_figures(catalog: Path) -> None:
    """Neither the package nor what a connection offers leads there; the walls see to imports."""
    with package.connect(catalog, epsilon=1) as connection:
        owners = (
            package.__all__,
            vars(connection_module),
            dir(connection),
            dir(connection.cursor()),
        )
        for owner in owners:
            assert not [name for name in owner if re.search("checking|figures|examine", name)]
