"""Catalogs: every malformed form gives one error that says where, what and what instead."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpsql.catalog import Catalog, Column
from dpsql.catalog.domain import (
    Bins,
    BoundedBins,
    DecimalRange,
    IntegerRange,
    Periods,
    Spans,
    Times,
    Values,
)
from dpsql.catalog.read import read_catalog
from dpsql.errors import CatalogError

GOOD = 'a = { type = "integer", domain = [0, 9] }'
UNIT = 'privacy_unit = "row"'
SOURCE = 'source = "t.csv"'


def catalog(
    column: str = GOOD,
    budget: str = "epsilon = 1",
    unit: str = UNIT,
    source: str = SOURCE,
    table: str = "t",
) -> str:
    return (
        f"[budget]\n{budget}\n\n[table.{table}]\n{source}\n{unit}\n\n"
        f"[table.{table}.column]\n{column}\n"
    )


def load(folder: Path, text: str | bytes) -> Catalog:
    path = folder / "c.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_catalog(path)


def column(folder: Path, facts: str) -> Column:
    return load(folder, catalog(f"a = {{ {facts} }}")).tables["t"].columns["a"]


def refuse(folder: Path, text: str | bytes) -> CatalogError:
    with pytest.raises(CatalogError) as caught:
        load(folder, text)
    error = caught.value
    assert error.code in ("E_POLICY", "E_DEGENERATE_BOUNDS")
    assert error.message.startswith("c.toml")
    assert error.hint
    assert error.exit_code == 2
    assert error.__cause__ is None
    assert all(line.isprintable() for line in str(error).splitlines())
    return error


COLUMNS: list[tuple[str, str]] = [
    ("type = 5", "type"),
    ('type = "int"', "type"),
    ("type = [1]", "type"),
    ("type = {}", "type"),
    ("domain = [0, 9]", "type = None"),
    ('type = "integer", domian = [0, 9]', "unknown key 'domian'"),
    ('type = "integer", domain = 5', "domain = 5"),
    ('type = "integer", domain = []', "domain = []"),
    ('type = "integer", domain = [9, 0]', "reversed"),
    ('type = "integer", domain = [1, 2, 2]', "repeats"),
    ('type = "integer", domain = [0.5, 2]', "0.5"),
    ('type = "integer", domain = [true, false]', "True"),
    ('type = "integer", domain = [0, 9007199254740993]', "not a usable integer"),
    ('type = "integer", domain = [0, 1000000]', "1000001 cells"),
    ('type = "integer", domain = [0, 999999], null = true', "1000001 cells"),
    ('type = "integer", domain = [0, 9], null = 1', "null = 1"),
    ('type = "integer", domain = [0, 9], other = true', "other"),
    ('type = "integer", domain = [0, 9], other = 5', "also a domain value"),
    ('type = "integer", domain = [0, 9], other = 9007199254740993', "too large"),
    ('type = "integer", domain = [0, 9], by = "day"', "`by`"),
    ('type = "integer", domain = [0, 9], zone = "UTC"', "`zone`"),
    ('type = "timestamp", domain = ["2024-01-01", "2024-01-02"], by = "moment"', "by = 'moment'"),
    ('type = "timestamp", domain = ["2024-01-01", "2024-01-02"], by = "0 hours"', "by = '0 hours'"),
    ('type = "timestamp", domain = ["2024-01-01", "2024-01-02"], by = "7 hours"', "by = '7 hours'"),
    ('type = "timestamp", domain = ["2024-01-01", "2024-01-02"], by = "999999999 days"', "by ="),
    ('type = "timestamp", domain = ["2024-01-01", "2024-01-13"], by = "second"', "1123200 cells"),
    ('type = "timestamp", domain = ["2024-01-02", "2024-01-01"]', "domain ="),
    ('type = "timestamp", domain = ["2024-01-01"]', "domain ="),
    ('type = "timestamp", domain = ["2024-01-01", "2024-01-01T25:00"]', "not a date and time"),
    ('type = "timestamp", domain = ["2024-01-01", "2024-01-01T05:00Z"]', "has a zone"),
    ('type = "timestamp", domain = ["2024-01-01", 5]', "not a date and time"),
    ('type = "timestamp", domain = ["2024-01-01", "9999-12-31"]', "ends too late"),
    ('type = "timestamp", domain = ["2024-01-01", "2024-01-02"], zone = "Mars/X"', "zone ="),
    ('type = "timestamp", domain = ["2024-01-01", "2024-01-02"], zone = "../x"', "zone ="),
    ('type = "timestamp", domain = ["2024-01-01", "2024-01-02"], zone = 5', "zone ="),
    ('type = "timestamp", domain = ["2024-01-01", "2024-01-02"], other = true', "`other`"),
    ('type = "date", domain = ["2024-01-01", "2024-01-02"], by = "2 hours"', "by = '2 hours'"),
    ('type = "date", domain = ["2024-01-01", "2024-01-02"], other = "2024-01-02"', "also a domain"),
    ('type = "date", domain = ["2024-01-01", "2024-01-02"], other = 5', "5 is not a date"),
    ('type = "decimal", domain = [0, 1]', "needs a step"),
    ('type = "decimal", domain = [0, 1], step = 0', "step = 0"),
    ('type = "decimal", domain = [0, 1], step = 0.3', "step = 0.3"),
    ('type = "decimal", domain = [1, 0], step = 0.5', "domain ="),
    ('type = "decimal", domain = [0, 1, 2], step = 1', "domain ="),
    ('type = "decimal", domain = [0, 1.5, 1.50]', "repeats"),
    ('type = "decimal", domain = [0, "1"], step = 1', "'1'"),
    ('type = "decimal", domain = [0, inf], step = 1', "Infinity"),
    ('type = "decimal", domain = [0, 1234567890123456], step = 1', "too many digits"),
    ('type = "decimal", domain = [0, 1], step = 1e-16', "too many digits"),
    ('type = "decimal", domain = [0, 1000], step = 0.0001', "10000001 cells"),
    ('type = "decimal", domain = [0, 1], bins = 3', "`bins` on a decimal column"),
    ('type = "decimal", bounds = [0, 1]', "bounds on a decimal column"),
    ('type = "decimal", domain = [0, 1, 2], other = 5', "`other`"),
    ('type = "integer", domain_file = "d.txt"', "not text"),
    ('type = "integer", bins = [0, 0.5, 1]', "not integers"),
    ('type = "integer", domain = [0.5, 9], bins = 2', "not of integers"),
    ('type = "integer", domain = [0, 3], bins = 9', "too many"),
    ('type = "number", domain = [0, 9]', "needs bins or bounds"),
    ('type = "number", bins = 3', "domain = None"),
    ('type = "number", domain = [0, 9], bins = 0', "bins = 0"),
    ('type = "number", domain = [0, 9], bins = -1', "bins = -1"),
    ('type = "number", domain = [0, 9], bins = true', "bins = True"),
    ('type = "number", domain = [0, 9], bins = 2.5', "bins = 2.5"),
    ('type = "number", domain = [0, 9], bins = 1000000', "bins = 1000000"),
    ('type = "number", domain = [9, 0], bins = 2', "[9, 0]"),
    ('type = "number", domain = [0, inf], bins = 2', "Infinity"),
    ('type = "number", bins = [0]', "not increasing"),
    ('type = "number", bins = [0, 1, 1]', "not increasing"),
    ('type = "number", bins = [2, 1]', "not increasing"),
    ('type = "number", bins = [1, 1.00000000000000000001]', "not increasing"),
    ('type = "number", bins = [nan, 1]', "NaN"),
    ('type = "number", bins = ["0", 1]', "'0'"),
    ('type = "number", bins = [0, 1], domain = [0, 2]', "span"),
    ('type = "number", domain = [0, 9], bins = 3, other = 99', "`other`"),
    ('type = "number", bounds = [0, 0]', "zero width"),
    ('type = "number", bounds = [1, 0]', "reversed"),
    ('type = "number", bounds = [0]', "bounds = [0]"),
    ('type = "number", bounds = 5', "bounds = 5"),
    ('type = "number", bounds = [-inf, 0]', "-Infinity"),
    ('type = "number", bounds = [0, nan]', "NaN"),
    ('type = "number", bounds = [0, true]', "True"),
    ('type = "number", bounds = [0, "1"]', "'1'"),
    ('type = "number", bounds = [0, 9007199254740993]', "too large"),
    ('type = "number", bounds = [0, 1e9999999]', "not usable"),
    ('type = "number", bounds = [1e-99999999, 1]', "not usable"),
    ('type = "number", bounds = [0, 1], bins = 3, by = "day"', "exclude each other"),
    ('type = "number", bounds = [0, 1], bins = [0, 2]', "span"),
    ('type = "number", bounds = [0, 1], bins = 3, step = 1', "exclude each other"),
    ('type = "number", bounds = [0, 1], step = 0.3', "step = 0.3"),
    ('type = "number", domain = [0, 1], step = 0', "step = 0"),
    ('type = "number", domain = [0, 1], step = -1', "step = -1"),
    ('type = "number", domain = [0, 1], step = "1"', "'1'"),
    ('type = "text", domain = ["a"], step = 1', "`step` on a text column"),
    ('type = "number", bounds = [0, 1], domain = [0, 1]', "exclude each other"),
    ('type = "number", bounds = [0, 1], other = true', "exclude each other"),
    ('type = "text", bounds = [0, 1]', "bounds on a text column"),
    ('type = "text", domain = ["a", 1]', "1 is not text"),
    ('type = "text", domain = ["a", "a "]', "same text"),
    ('type = "text", domain = ["\\u00e9", "e\\u0301"]', "same text"),
    ('type = "text", domain = ["a\\u0000"]', "NUL"),
    ('type = "text", domain = ["a"], other = "a "', "also a domain value"),
    ('type = "text", domain = ["other"], other = true', "also a domain value"),
    ('type = "text", domain = ["a"], other = "\\u0000"', "NUL"),
    ('type = "text", domain = ["a"], other = 5', "other = 5"),
    ('type = "text", other = true', "`other`"),
    ('type = "text", domain = ["a"], bins = 3', "`bins` on a text column"),
    ('type = "text", domain_file = "missing.txt"', "cannot be read"),
    ('type = "text", domain_file = "."', "cannot be read"),
    ('type = "text", domain_file = "empty.txt"', "is empty"),
    ('type = "text", domain_file = "latin.txt"', "cannot be read"),
    ('type = "text", domain_file = "twins.txt"', "same text"),
    ('type = "text", domain_file = 5', "domain_file = 5"),
    ('type = "text", domain = ["a"], domain_file = "empty.txt"', "exclude each other"),
    ('type = "boolean", domain = [true]', "[True]"),
    ('type = "boolean", domain = [1, 0]', "[1, 0]"),
    ('type = "boolean", domain = [true, false], other = true', "`other`"),
    ('type = "date", domain = ["2020-03-01", "2020-01-01"]', "2020-03-01"),
    ('type = "date", domain = ["2020-01-01"]', "2020-01-01"),
    ('type = "date", domain = ["2020-02-30", "2021-01-01"]', "2020-02-30"),
    ('type = "date", domain = [1, 2]', "1 is not a date"),
    ('type = "date", domain = ["2020-01-01", "2020-01-02"], by = "hour"', "by = 'hour'"),
    ('type = "date", domain = ["9000-01-01", "9999-12-31"], by = "year"', "too late"),
    ('type = "date", by = "day"', "without a domain"),
    ('type = "time", domain = ["18:00", "08:00"]', "18:00"),
    ('type = "time", domain = ["08:00"]', "08:00"),
    ('type = "time", domain = ["08:00", "25:00"]', "'25:00' is not a time of day"),
    ('type = "time", domain = ["08:00", 9]', "9 is not a time of day"),
    ('type = "time", domain = ["08:00", "09:00+01:00"]', "has a zone"),
    ('type = "time", domain = ["08:00", "18:00"], by = "day"', "by = 'day'"),
    ('type = "time", domain = ["08:00", "18:00"], by = "7 minutes"', "by = '7 minutes'"),
    ('type = "time", domain = ["08:00", "18:00"], by = "24 hours"', "by = '24 hours'"),
    ('type = "time", domain = ["08:00", "18:00"], zone = "UTC"', "`zone` belongs to timestamps"),
    ('type = "time", domain = ["08:00", "18:00"], other = true', "`other`"),
    ('type = "time", domain = ["24:00", "24:00"]', "24:00"),
]


@pytest.mark.parametrize(("facts", "problem"), COLUMNS)
def test_a_malformed_column_is_named(tmp_path: Path, facts: str, problem: str) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    (tmp_path / "twins.txt").write_text("a\nb\na \n")
    error = refuse(tmp_path, catalog(f"a = {{ {facts} }}"))
    assert error.message.startswith("c.toml, line 9, table 't', column 'a': ")
    assert problem in error.message


@pytest.mark.parametrize("text", ["a = 5", "a = []", 'a = "integer"', "a = true"])
def test_a_column_is_a_table(tmp_path: Path, text: str) -> None:
    assert "column 'a'" in refuse(tmp_path, catalog(text)).message


@pytest.mark.parametrize("name", ['""', '"a\\nb"', '"\\u0000"', '"\\u001b[2J"', '"\\u202e"'])
def test_names_are_printable(tmp_path: Path, name: str) -> None:
    for text in (
        catalog(f'{name} = {{ type = "integer", domain = [0, 9] }}'),
        catalog(table=name),
        catalog(unit=f"privacy_unit = {{ column = {name}, max_rows = 2 }}"),
    ):
        refuse(tmp_path, text)


def test_names_are_compared_without_case(tmp_path: Path) -> None:
    twins = f"{GOOD}\n{GOOD.replace('a =', 'A =')}"
    assert "declared twice" in refuse(tmp_path, catalog(twins)).message
    two = catalog() + catalog(table="T").partition("\n\n")[2]
    assert "declared twice" in refuse(tmp_path, two).message


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        ("", "no epsilon"),
        ("delta = 0", "no epsilon"),
        ("epsilon = 0", "epsilon = 0"),
        ("epsilon = -1", "epsilon = -1"),
        ('epsilon = "1"', "epsilon = '1'"),
        ("epsilon = true", "epsilon = True"),
        ("epsilon = inf", "epsilon = Infinity"),
        ("epsilon = nan", "epsilon = NaN"),
        ("epsilon = [1]", "epsilon = [1]"),
        ("epsilon = 1979-05-27", "epsilon"),
        ('epsilon = "\\u001b"', "x1b"),
        ("epsilon = 1e-7", "epsilon"),
        ("epsilon = 1e7", "epsilon"),
        ("epsilon = 1e99999999999999999999", "exponent"),
        ("epsilon = 1\nepsilom = 2", "'epsilom'"),
        ("epsilon = 1\ndelta = -1e-9", "delta"),
        ("epsilon = 1\ndelta = 1", "delta = 1"),
        ("epsilon = 1\ndelta = 1e-3", "delta"),
        ("epsilon = 1\ndelta = nan", "delta = NaN"),
        ('epsilon = 1\ndelta = "0"', "delta"),
        ("epsilon = 1\nmax_epsilon_per_request = 0", "max_epsilon_per_request"),
        ("epsilon = 1\nmax_epsilon_per_request = inf", "max_epsilon_per_request"),
    ],
)
def test_a_malformed_budget_is_named(tmp_path: Path, budget: str, problem: str) -> None:
    assert problem in refuse(tmp_path, catalog(budget=budget)).message


@pytest.mark.parametrize(
    "unit",
    [
        "",
        'privacy_unit = "person"',
        "privacy_unit = 5",
        'privacy_unit = { column = "x" }',
        "privacy_unit = { max_rows = 5 }",
        'privacy_unit = { column = "x", max_rows = 5, more = 1 }',
        'privacy_unit = { column = "", max_rows = 5 }',
        "privacy_unit = { column = 5, max_rows = 5 }",
        *(
            f'privacy_unit = {{ column = "x", max_rows = {rows} }}'
            for rows in ("0", "-1", "1.5", "true", '"5"', "nan", "1000001")
        ),
    ],
)
def test_a_malformed_privacy_unit_is_named(tmp_path: Path, unit: str) -> None:
    error = refuse(tmp_path, catalog(unit=unit))
    assert re.match(r"c\.toml, line [46], table .t.: privacy_unit ", error.message)


@pytest.mark.parametrize(
    "source",
    ["", "source = 5", 'source = ""', 'source = "a\\u0000"', 'source = ["a"]',
     'source = { duckdb = "x" }', 'source = "~nobody-here/x.csv"'],
)  # fmt: skip
def test_a_malformed_source_is_named(tmp_path: Path, source: str) -> None:
    assert "table 't'" in refuse(tmp_path, catalog(source=source)).message


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe",
        b"",
        b"[budget]\nepsilon = 1\n",
        b"budget: !!python/object/apply:os.system ['ls']\n",
        b"[budget",
        b"[[table]]",
        b"table = 1\n[budget]\nepsilon = 1",
        b"budget = 1\n[table.t]",
        b"[budget]\nepsilon = 1\n[table]\nt = 1",
        b"[table.t]\n",
        b"a = " + b"[" * 5000,
        b"a = " + b"9" * 5000,
        catalog().encode() + b"x = 1",
        b"x = 1\n" + catalog().encode(),
        catalog().encode() * 2,
        catalog(column="").encode(),
        b"public = true\n" + catalog().encode(),
        catalog(unit=UNIT + "\npublic = 1").encode(),
        catalog(unit=UNIT + "\npublik = true").encode(),
    ],
)
def test_what_is_no_catalog(tmp_path: Path, text: bytes) -> None:
    refuse(tmp_path, text)


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path, Path("a\0b"), Path("~nobody-here/c.toml")):
        with pytest.raises(CatalogError) as caught:
            read_catalog(path)
        assert caught.value.code == "E_POLICY"


def test_the_product_of_sizes_is_not_limited(tmp_path: Path) -> None:
    lines = [f'c{i} = {{ type = "integer", domain = [1, 32] }}' for i in range(1000)]
    assert len(load(tmp_path, catalog("\n".join(lines))).tables["t"].columns) == 1000


ACCEPTED: list[tuple[str, object, tuple[Any, ...]]] = [
    ('type = "integer", domain = [3, 5]', IntegerRange(3, 5), (3, 4, 5)),
    ('type = "integer", domain = [-1, 0]', IntegerRange(-1, 0), (-1, 0)),
    ('type = "integer", domain = [7]', Values((7,)), (7,)),
    ('type = "integer", domain = [9, 1, 4]', Values((9, 1, 4)), (9, 1, 4)),
    ('type = "integer", domain = [0, 1], other = 9', IntegerRange(0, 1), (0, 1, 9)),
    ('type = "integer", domain = [0, 99], bins = 4', None, (0, 25, 50, 75)),
    ('type = "integer", domain = [0, 10], bins = 3', None, (0, 4, 7)),
    (
        'type = "number", domain = [0, 1], bins = 4',
        Bins(tuple(Fraction(j, 4) for j in range(5))),
        (0.0, 0.25, 0.5, 0.75),
    ),
    (
        'type = "number", bins = [-1.5, 0, 2e1], null = true',
        Bins((Fraction(-3, 2), Fraction(0), Fraction(20))),
        (-1.5, 0.0, None),
    ),
    ('type = "number", bins = [0, 1, 3], domain = [0, 3]', None, (0, 1)),
    (
        'type = "number", bounds = [0, 1], step = 0.5',
        BoundedBins((Fraction(0), Fraction(1, 2), Fraction(1))),
        (0.0, 0.5),
    ),
    ('type = "integer", bounds = [0, 9], bins = [0, 5, 9], null = true', None, (0, 5, None)),
    ('type = "text", domain = ["b", "a", ""]', Values(("b", "a", "")), ("b", "a", "")),
    ('type = "text", domain = ["A", "a"], other = true', None, ("A", "a", "other")),
    ('type = "text", domain = ["A"], other = "", null = true', None, ("A", "", None)),
    ('type = "text", domain_file = "d.txt"', Values(("x", "y z")), ("x", "y z")),
    ('type = "boolean", domain = [true, false]', Values((True, False)), (True, False)),
    (
        'type = "date", domain = ["2023-12-31", 2024-01-01]',
        Periods(dt.date(2023, 12, 31), "day", 2),
        (dt.date(2023, 12, 31), dt.date(2024, 1, 1)),
    ),
    (
        'type = "date", domain = ["2023-11-15", "2024-01-02"], by = "month", null = true',
        Periods(dt.date(2023, 11, 1), "month", 3),
        (dt.date(2023, 11, 1), dt.date(2023, 12, 1), dt.date(2024, 1, 1), None),
    ),
    (
        'type = "date", domain = ["2024-01-03", "2024-01-08"], by = "week"',
        None,
        (dt.date(2024, 1, 1), dt.date(2024, 1, 8)),
    ),
    (
        'type = "date", domain = ["2024-01-03", "2024-02-01"], by = "2 weeks", other = true',
        Spans(dt.date(2024, 1, 1), "week", 3, 2),
        (dt.date(2024, 1, 1), dt.date(2024, 1, 15), dt.date(2024, 1, 29), dt.date.max),
    ),
    (
        'type = "timestamp", domain = ["2024-01-01T00:20", 2024-01-01T01:00:00], by = "30 minutes"',
        Spans(dt.datetime(2024, 1, 1), "minute", 3, 30),
        tuple(dt.datetime(2024, 1, 1) + k * dt.timedelta(minutes=30) for k in range(3)),
    ),
    (
        'type = "timestamp", domain = ["2024-01-01", "2024-01-01"], by = "12 hours",'
        ' zone = "Europe/Berlin"',
        Spans(dt.datetime(2024, 1, 1), "hour", 2, 12, "Europe/Berlin"),
        (dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 12)),
    ),
    (
        'type = "timestamp", domain = ["2024-02-10", "2024-12-31"], by = "6 months", null = true',
        Spans(dt.datetime(2024, 2, 1), "month", 2, 6),
        (dt.datetime(2024, 2, 1), dt.datetime(2024, 8, 1), None),
    ),
    (
        'type = "time", domain = ["08:10", 09:00:00], by = "30 minutes", null = true',
        Times(dt.datetime(1970, 1, 1, 8), "minute", 3, 30),
        (dt.time(8), dt.time(8, 30), dt.time(9), None),
    ),
    (
        'type = "time", domain = ["00:00", "24:00"], by = "12 hours"',
        Times(dt.datetime(1970, 1, 1), "hour", 2, 12),
        (dt.time(0), dt.time(12)),
    ),
    (
        'type = "decimal", domain = [0, 1], step = 0.25, null = true',
        DecimalRange(Decimal("0.00"), Decimal("0.25"), 5),
        (*(Decimal(k) / 4 for k in range(5)), None),
    ),
    ('type = "decimal", domain = [3, 0.5, 1]', None, (3, Decimal("0.5"), 1)),
    ('type = "decimal", domain = [0, 2e3], step = 1e3', None, (0, 1000, 2000)),
    ('type = "date", domain = ["9990-01-01", "9998-12-31"], by = "year"', None, ()),
    ('type = "number", bounds = [-0.5, 1e3]', None, ()),
    ('type = "text"', None, ()),
]


@pytest.mark.parametrize(("facts", "domain", "cells"), ACCEPTED)
def test_accepted_forms_give_their_cells(
    tmp_path: Path, facts: str, domain: object, cells: tuple[Any, ...]
) -> None:
    (tmp_path / "d.txt").write_bytes(b"x\r\ny z\n")
    found = column(tmp_path, facts)
    assert domain is None or found.domain == domain
    assert not cells or found.cells == cells
    assert found.size == len(found.cells)
    assert found.size > 0 or found.domain is None


def test_bounds_are_exact(tmp_path: Path) -> None:
    found = column(tmp_path, 'type = "number", bounds = [-0.1, 0.3], null = true')
    assert found.bounds == (Fraction(-1, 10), Fraction(3, 10))
    assert found.null


def test_paths_are_relative_to_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert load(tmp_path, catalog()).tables["t"].source == str(tmp_path.resolve() / "t.csv")
    absolute = load(tmp_path, catalog(source='source = "/data/t.csv"'))
    assert absolute.tables["t"].source == "/data/t.csv"


def test_line_ends_and_budgets_are_read_exactly(tmp_path: Path) -> None:
    found = load(tmp_path, catalog(budget="epsilon = 0.3\ndelta = 1e-9").replace("\n", "\r\n"))
    assert found.budget.epsilon == Fraction(3, 10)
    assert found.budget.delta == Fraction(1, 10**9)
    assert found.budget.max_epsilon_per_request == 100
