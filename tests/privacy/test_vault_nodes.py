"""Nodes, joint cells and distinct units agree with a plain account of every single row."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpsql.catalog.catalog import Column, Table, Unit
from dpsql.catalog.domain import Bins, BoundedBins, IntegerRange, Values
from dpsql.errors import ProgrammingError
from dpsql.privacy.vault.codes.tally import PLACES, to_grid
from dpsql.privacy.vault.files import source
from dpsql.privacy.vault.vault import TableVault, Vault
from dpsql.workload.cells import Cells, Nodes, Resolution, cells_of
from dpsql.workload.nodes import PLACE_BITS
from dpsql.workload.weights import MOST_WEIGHT, REAL_BITS, TOTAL_BITS, block_unit, weights_of
from tests.support.tables import scribe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_reader")]

SALT = b"0123456789abcdef"
Integers = NDArray[np.int64]

HOSTILE = {
    "DOUBLE": [
        *(
            "NULL",
            "'nan'",
            "'inf'",
            "'-inf'",
            "-0.0",
            "0",
            "-5",
            "10",
            "10.000000000000002",
            "1e308",
        ),
        *("-1e308", "5e-324", "9223372036854775807", "3.7", "-5.000000000000001", "2.5"),
    ],
    "FLOAT": ["NULL", "'nan'", "'inf'", "'-inf'", "-0.0", "3.4e38", "-5", "10", "1e-45", "0.1"],
    "BIGINT": ["NULL", "9223372036854775807", "-9223372036854775808", "-5", "10", "-6", "11", "0"],
    "HUGEINT": [
        *("NULL", "170141183460469231731687303715884105727", "3", "10"),
        "-170141183460469231731687303715884105728",
    ],
    "UBIGINT": ["NULL", "0", "18446744073709551615", "10", "11", "7"],
    "UHUGEINT": ["NULL", "0", "'340282366920938463463374607431768211455'", "10", "4"],
    "UTINYINT": ["NULL", "0", "255", "10"],
    "DECIMAL(38,10)": [
        *("NULL", "-5", "10", "10.0000000001", "2.5"),
        *("9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999"),
    ],
}
OF_DUCKDB = {"DOUBLE", "HUGEINT", "UHUGEINT"}
"""Types that are read from files of DuckDB, which start a reader each; the others from Parquet."""
TEXTS = [
    *(
        "",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "-0.0",
        "-5",
        "10",
        "1e400",
        "-1e400",
        "9223372036854775807",
    ),
    *("0.1", "+3", "3.0000000000000000000001", "word", "1 2", "0x10", "'; --"),
]
LOW, HIGH = Fraction(-5), Fraction(10)
EDGES = (Fraction(-5), Fraction(-1, 10), Fraction(0), Fraction(3), Fraction(10))


def column(form: str, kind: str, null: bool) -> Column:
    """A column v as a measure, a range of integers or bins, from -5 to 10."""
    match form:
        case "bounds":
            return Column("v", kind, None, (LOW, HIGH), null)
        case "range":
            return Column("v", "integer", IntegerRange(-5, 10), None, null)
        case "other":
            return Column("v", "integer", IntegerRange(-5, 10), None, null, -99)
        case "bounded":
            return Column("v", kind, BoundedBins(EDGES), None, null)
        case _:
            return Column("v", kind, Bins(EDGES), None, null)


def in_runs(nodes: Nodes) -> Nodes:
    """Nodes of runs of the bins: the first two together, and the others."""
    return replace(nodes, intervals=2, starts=(0, 2))


def nodes_of(each: Column, degree: int, grid: int, keep: bool = True) -> Nodes:
    declared = each.null + (each.other is not None)
    others = tuple(range(declared)) if keep else (-1,) * declared
    intervals = each.domain.size if isinstance(each.domain, Bins) else 1
    return Nodes("v", degree, intervals, grid, others)


def store(path: Path, columns: dict[str, str], rows: Sequence[Sequence[str]]) -> Path:
    """Write rows of SQL values to Parquet or to a DuckDB file, or of texts to CSV."""
    if path.suffix == ".csv":
        lines = [",".join(columns), *(",".join(f'"{each}"' for each in row) for row in rows)]
        path.write_text("\n".join(lines).replace('""', "") + "\n", "utf-8")
        return path
    stored = path.suffix == ".duckdb"
    connection, kind = (duckdb.connect(str(path)), "") if stored else (scribe(), "TEMP")
    connection.execute(
        f"CREATE {kind} TABLE t ({', '.join(f'{n} {k}' for n, k in columns.items())})"
    )
    listed = (
        ", ".join(f"CAST({v} AS {k})" for v, k in zip(row, columns.values(), strict=True))
        for row in rows
    )
    connection.execute(f"INSERT INTO t VALUES {', '.join(f'({row})' for row in listed)}")
    if path.suffix == ".parquet":
        connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    connection.close()
    return path


def vault_of(path: Path, columns: Sequence[Column], unit: Unit | None = None) -> Vault:
    return TableVault(
        Table("t", str(path), unit or Unit(), {each.name: each for each in columns}), SALT
    )


def tally(
    path: Path,
    columns: Sequence[Column],
    resolutions: Sequence[Resolution],
    threads: int | None = None,
    units: bool = False,
    unit: Unit | None = None,
) -> Integers:
    table = Table("t", str(path), unit or Unit(), {each.name: each for each in columns})
    with mock.patch.dict(source.CONFIG, {} if threads is None else {"threads": threads}):
        return TableVault(table, SALT).tally(resolutions, units)


def number(text: str) -> float | None:
    """The number that SQL text stands for, None for NULL and NaN."""
    found = math.nan if text == "NULL" else float(text.strip("'"))
    return None if math.isnan(found) else found


FORMS = ["bounds", "range", "other", "bins", "bounded"]


def each_row(path: Path, rows: int, measured: Column) -> Callable[[Nodes], Integers]:
    """What every single row adds, shape (rows, nodes): rows are numbered by a column i."""
    number = Column("i", "integer", IntegerRange(0, rows - 1))
    table = Table("t", str(path), Unit(), {"i": number, "v": measured})
    vault = TableVault(table, SALT)
    return lambda nodes: vault.tally([cells_of("i", np.arange(rows)), nodes])


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A file of hostile values of a kind: of DuckDB where Parquet has no such type."""
    folder = tmp_path_factory.mktemp("hostile")

    def file(kind: str) -> Path:
        path = folder / f"{kind}.{'duckdb' if kind in OF_DUCKDB else 'parquet'}"
        if path.exists():
            return path
        rows = [[str(i), value] for i, value in enumerate(HOSTILE[kind])]
        return store(path, {"i": "INTEGER", "v": kind}, rows)

    return file


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_one_row_adds_exactly_the_unit_whatever_its_value(
    form: str, kind: str, hostile: Callable[[str], Path]
) -> None:
    values, path = HOSTILE[kind], hostile(kind)
    for null in (False, True):
        measured = column(form, "number", null)
        found_for = each_row(path, len(values), measured)
        for degree, grid, keep in itertools.product((1, 2), (1, 15, 4096), (True, False)):
            nodes = nodes_of(measured, degree, grid, keep)
            if isinstance(measured.domain, Bins) and grid % 2:
                nodes = in_runs(nodes)
            found = found_for(nodes)
            assert found.shape == (len(values), nodes.size)
            assert (found >= 0).all()
            for value, row in zip(values, found, strict=True):
                total, known = int(row.sum()), number(value)
                inside = known is not None and LOW <= known <= HIGH
                counted = form in ("bounds", "bounded") or (
                    inside and (form == "bins" or known == int(known or 0))
                )
                if known is None:
                    assert total == (block_unit([nodes]) if null and keep else 0)
                    assert not (null and keep) or row[-1] == block_unit([nodes])
                elif form == "other":
                    assert total == (block_unit([nodes]) if keep or counted else 0)
                else:
                    assert total == (block_unit([nodes]) if counted else 0)


@pytest.mark.parametrize("form", FORMS)
def test_text_of_csv_files(form: str, tmp_path: Path) -> None:
    rows = [[str(i), text] for i, text in enumerate(TEXTS)]
    path = store(tmp_path / "t.csv", {"i": "", "v": ""}, rows)
    measured = column(form, "number", True)
    found_for = each_row(path, len(TEXTS), measured)
    for degree in (1, 2):
        nodes = nodes_of(measured, degree, 64)
        for text, row in zip(TEXTS, found_for(nodes), strict=True):
            assert (row >= 0).all()
            assert int(row.sum()) in (0, block_unit([nodes]))
            if text in ("", "nan", "NaN"):
                assert row[-1] == block_unit([nodes])
            if form in ("bounds", "bounded") and text != "0x10":
                is_number = text not in ("word", "1 2", "'; --")
                assert int(row.sum()) == (block_unit([nodes]) if is_number else 0)


@pytest.mark.parametrize("form", FORMS)
def test_one_more_row_changes_the_vector_by_the_unit(form: str, tmp_path: Path) -> None:
    measured = column(form, "number", True)
    base = [["1"], ["NULL"], ["2.5"]]
    nodes = nodes_of(measured, 2, 100)
    before = tally(store(tmp_path / "t.parquet", {"v": "DOUBLE"}, base), [measured], [nodes])
    for i, value in enumerate(["NULL", "'nan'", "'inf'", "-0.0", "10", "1e308"]):
        path = store(tmp_path / f"{i}.parquet", {"v": "DOUBLE"}, [*base, [value]])
        change = tally(path, [measured], [nodes]) - before
        assert (change >= 0).all()
        assert change.sum() == block_unit([nodes]) or (
            value in ("'inf'", "1e308") and form in ("bins", "range")
        )


def brute(rows: Sequence[float | None], each: Column, nodes: Nodes) -> list[int]:
    """The nodes by exact fractions, rounding halves up; None is NULL."""
    out = [0] * nodes.size
    first = nodes.intervals * (nodes.degree + 1)
    for value in rows:
        if value is None:
            if nodes.others[-1] >= 0:
                out[first + nodes.others[-1]] += block_unit([nodes])
            continue
        exact = Fraction(value)
        edges = each.domain.edges if isinstance(each.domain, Bins) else (LOW, HIGH)
        edges = (*(edges[start] for start in nodes.starts), edges[-1]) if nodes.starts else edges
        low = edges[0] if nodes.low is None else nodes.low
        high = edges[-1] if nodes.high is None else nodes.high
        exact = min(max(exact, low), high)
        j = 0
        if isinstance(each.domain, Bins):
            j = max(k for k in range(len(edges) - 1) if edges[k] <= exact)
            low, high = edges[j], edges[j + 1]
        w = math.floor((exact - low) / (high - low) * nodes.steps + Fraction(1, 2))
        rest = nodes.steps - w
        weights = [rest, w] if nodes.degree == 1 else [rest**2, 2 * w * rest, w**2]
        for t, weight in enumerate(weights):
            out[j * (nodes.degree + 1) + t] += weight
    return out


@pytest.mark.parametrize("form", ["bounds", "range", "bins"])
@pytest.mark.parametrize("degree", [1, 2])
def test_nodes_are_those_of_exact_fractions(form: str, degree: int, tmp_path: Path) -> None:
    draw = random.Random(degree)
    values = [draw.choice([None, *range(-5, 11)]) for _ in range(300)]
    path = store(
        tmp_path / "t.parquet",
        {"v": "BIGINT"},
        [["NULL" if value is None else str(value)] for value in values],
    )
    each = column(form, "integer", True)
    if form == "bins":
        each = Column("v", "integer", Bins(tuple(map(Fraction, (-5, 0, 3, 10)))), None, True)
    vault = vault_of(path, [each])
    for grid in (1, 7, 15, 105, 4095):
        nodes = nodes_of(each, degree, grid)
        assert vault.tally([nodes]).tolist() == brute(values, each, nodes)
    for starts in ((0,), (0, 1), (0, 2)) if form == "bins" else ():
        merged = Nodes("v", degree, len(starts), 840, (0,), starts=starts)
        assert vault.tally([merged]).tolist() == brute(values, each, merged)


def test_runs_that_are_no_runs_of_the_bins_do_not_fit(tmp_path: Path) -> None:
    path = store(tmp_path / "t.parquet", {"v": "DOUBLE"}, [["1"]])
    bins = column("bins", "number", False)
    for starts in ((0, 0), (1, 2), (0, 3, 2), (0, 4), (0, -1), (0, 1, 2)):
        for intervals in (2, 4):
            if starts != (0, 1, 2) or intervals != 3:
                with pytest.raises(ProgrammingError, match="do not fit"):
                    tally(path, [bins], [Nodes("v", 1, intervals, 9, starts=starts)])
    bounds = column("bounds", "number", False)
    with pytest.raises(ProgrammingError, match="do not fit"):
        tally(path, [bounds], [Nodes("v", 1, 1, 9, starts=(0,))])


@pytest.mark.parametrize("form", ["bounds", "range", "bins"])
def test_counts_and_sums_of_whole_numbers_are_exact(form: str, tmp_path: Path) -> None:
    draw = random.Random(5)
    values = [draw.randrange(-5, 11) for _ in range(400)]
    path = store(tmp_path / "t.duckdb", {"v": "INTEGER"}, [[str(value)] for value in values])
    each = column(form, "integer", False)
    if form == "bins":
        each = Column("v", "integer", Bins(tuple(map(Fraction, (-5, 0, 5, 10)))))
    edges = each.domain.edges if isinstance(each.domain, Bins) else (LOW, HIGH)
    ends = np.array(list(itertools.pairwise(edges)))
    for grid in (15, 150, 1 << 16):
        found = tally(path, [each], [nodes_of(each, 1, grid)])
        assert found.sum() == grid * len(values)
        total = sum(Fraction(int(x)) * t for x, t in zip(found, ends.ravel(), strict=True)) / grid
        slack = len(values) * max(b - a for a, b in ends) / (2 * grid) if grid % 15 else 0
        assert abs(total - sum(values)) <= slack
        if grid <= 1 << 12:
            squares = tally(path, [each], [nodes_of(each, 2, grid)]).reshape(-1, 3)
            assert squares.sum() == grid**2 * len(values)
            second = sum(
                int(b0) * a * a + int(b1) * a * b + int(b2) * b * b
                for (b0, b1, b2), (a, b) in zip(squares, ends, strict=True)
            ) / Fraction(grid**2)
            assert second == sum(value * value for value in values)


def test_sums_of_reals_are_within_half_a_step_per_row(tmp_path: Path) -> None:
    draw = random.Random(6)
    values = [draw.uniform(-8, 14) for _ in range(500)]
    path = store(tmp_path / "t.parquet", {"v": "DOUBLE"}, [[repr(value)] for value in values])
    for form in ("bounds", "bins"):
        each = column(form, "number", False)
        edges: tuple[Fraction, ...] = EDGES if form == "bins" else (LOW, HIGH)
        ends = list(itertools.chain.from_iterable(itertools.pairwise(edges)))
        nodes = nodes_of(each, 1, 0)
        found, unit = tally(path, [each], [nodes]), block_unit([nodes])
        kept = [v for v in values if form == "bounds" or LOW <= Fraction(v) <= HIGH]
        assert found.sum() == unit * len(kept)
        terms = (Fraction(int(x)) * t for x, t in zip(found, ends, strict=True))
        total = sum(terms, Fraction(0)) / unit
        exact = sum((min(max(Fraction(v), LOW), HIGH) for v in kept), Fraction(0))
        assert abs(total - exact) <= len(kept) * (HIGH - LOW) / (2 * unit)


@pytest.mark.parametrize("bounds", [(Fraction(0), Fraction(1, 3)), (Fraction(-5), Fraction(2))])
def test_narrower_bounds_clip_further(bounds: tuple[Fraction, Fraction], tmp_path: Path) -> None:
    values = [-9.0, -5.0, -1.0, 0.0, 0.1, 0.25, 0.3333333, 1.0, 2.0, 9.0, None]
    rows = [["NULL" if value is None else repr(value)] for value in values]
    path = store(tmp_path / "t.parquet", {"v": "DOUBLE"}, rows)
    each = column("bounds", "number", True)
    for degree in (1, 2):
        nodes = Nodes("v", degree, 1, 999, (0,), *bounds)
        assert tally(path, [each], [nodes]).tolist() == brute(values, each, nodes)


@pytest.mark.parametrize("unit", [Unit(), Unit("who", 3)])
def test_row_order_and_threads_do_not_matter(unit: Unit, tmp_path: Path) -> None:
    draw = random.Random(1)
    rows = [
        [draw.choice(HOSTILE["DOUBLE"]), str(draw.random()), f"'p{draw.randrange(40)}'"]
        for _ in range(300)
    ]
    columns = [column("bounds", "number", True), Column("w", "number", Bins(EDGES))]
    resolutions: list[Resolution] = [nodes_of(columns[0], 2, 4096), Nodes("w", 1, 4, 1)]
    answers = []
    for i, threads in enumerate((1, 2, 8)):
        path = store(
            tmp_path / f"{i}.parquet", {"v": "DOUBLE", "w": "DOUBLE", "who": "VARCHAR"}, rows
        )
        answers.append(tally(path, columns, resolutions, threads, unit=unit))
        draw.shuffle(rows)
    assert answers[0].sum() > 0
    assert answers[0].sum() % block_unit(resolutions) == 0
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_two_measures_in_one_block_are_products_of_weights(tmp_path: Path) -> None:
    values = [(-5, 0), (10, 3), (0, 1), (7, 9)]
    path = store(
        tmp_path / "t.parquet",
        {"v": "INTEGER", "w": "INTEGER"},
        [[str(a), str(b)] for a, b in values],
    )
    columns = [
        Column("v", "integer", None, (LOW, HIGH)),
        Column("w", "integer", IntegerRange(0, 9)),
    ]
    found = tally(path, columns, [Nodes("w", 2, 1, 9), Nodes("v", 1, 1, 15)])
    expected = np.zeros((3, 2), dtype=np.int64)
    for v, w in values:
        left = np.array([(9 - w) ** 2, 2 * w * (9 - w), w * w])
        expected += np.outer(left, [10 - v, v + 5])
    np.testing.assert_array_equal(found, expected)
    groups: list[Resolution] = [cells_of("w", np.arange(10) // 5), Nodes("v", 1, 1, 15)]
    by_group = np.zeros((2, 2), dtype=np.int64)
    for v, w in values:
        by_group[w // 5] += [10 - v, v + 5]
    np.testing.assert_array_equal(tally(path, columns, groups), by_group)


def small_table(tmp_path: Path, seed: int, n: int = 200) -> tuple[Path, list[Column], list[Any]]:
    """A table of three small columns and an owner."""
    draw = random.Random(seed)
    rows = [
        (
            draw.randrange(4),
            draw.choice(["a", "b", "c"]),
            draw.randrange(3),
            f"p{draw.randrange(30)}",
        )
        for _ in range(n)
    ]
    path = store(
        tmp_path / f"{seed}.parquet",
        {"x": "INTEGER", "y": "VARCHAR", "z": "INTEGER", "who": "VARCHAR"},
        [[str(x), f"'{y}'", str(z), f"'{who}'"] for x, y, z, who in rows],
    )
    columns = [
        Column("x", "integer", IntegerRange(0, 3)),
        Column("y", "text", Values(("a", "b", "c"))),
        Column("z", "integer", IntegerRange(0, 2)),
    ]
    return path, columns, rows


@pytest.mark.parametrize("seed", range(4))
def test_joint_cells_agree_with_brute_force(seed: int, tmp_path: Path) -> None:
    path, columns, rows = small_table(tmp_path, seed)
    draw = np.random.default_rng(seed)
    x, y = np.array([0, 1, -1, 1]), np.array([1, 0, 2])
    labels = draw.integers(-1, 5, (2, 3))
    labels[0, 0] = 4
    joint = Cells(("x", "y"), (x, y), labels)
    found = tally(path, columns, [joint, cells_of("z", np.array([0, -1, 1]))])
    expected = np.zeros((5, 2), dtype=np.int64)
    for a, b, c, _ in rows:
        label = labels[x[a], y["abc".index(b)]] if x[a] >= 0 else -1
        if label >= 0 and c != 1:
            expected[label, c // 2] += 1
    np.testing.assert_array_equal(found, expected)


def test_counts_have_room_beside_them(tmp_path: Path) -> None:
    path, columns, _ = small_table(tmp_path, 5)
    vault = TableVault(Table("t", str(path), Unit(), {each.name: each for each in columns}), SALT)
    asked = [cells_of("x", np.array([0, 1, -1, 1])), cells_of("z", np.arange(3))]
    expected, found = np.zeros((3, 5), dtype=np.int64), vault.tally(asked, False, (3, 5))
    expected[:2, :3] = vault.tally(asked)
    np.testing.assert_array_equal(found, expected)
    assert expected.sum() == found.sum() > 0


@pytest.mark.parametrize("c", [1, 2, 1000])
def test_distinct_units_agree_with_brute_force(c: int, tmp_path: Path) -> None:
    path, columns, rows = small_table(tmp_path, 9)
    unit = Unit("who", c)
    whole: list[Resolution] = [cells_of("x", np.arange(4)), cells_of("y", np.array([0, -1, 1]))]
    found = tally(path, columns, whole, units=True, unit=unit)
    counts = tally(path, columns, whole, unit=unit)
    assert (found <= counts).all()
    if c == 1:
        np.testing.assert_array_equal(found, counts)
    if c == 1000:
        expected = np.zeros((4, 2), dtype=np.int64)
        for a, b in itertools.product(range(4), "ac"):
            expected[a, int(b == "c")] = len({who for x, y, _, who in rows if (x, y) == (a, b)})
        np.testing.assert_array_equal(found, expected)
    owners = {row[3] for row in rows}
    assert int(tally(path, columns, [], units=True, unit=unit)) == len(owners)
    assert tally(path, columns, [], units=True).tolist() == len(rows)


def test_removing_a_unit_takes_one_from_at_most_as_many_cells_as_it_may_have_rows(
    tmp_path: Path,
) -> None:
    path, columns, rows = small_table(tmp_path, 3)
    cells: list[Resolution] = [cells_of("x", np.arange(4)), cells_of("z", np.arange(3))]
    for c in (1, 2, 5):
        unit = Unit("who", c)
        before = tally(path, columns, cells, units=True, unit=unit)
        for who in ("p0", "p1", "p2"):
            rest = [row for row in rows if row[3] != who]
            less = store(
                tmp_path / f"{c}{who}.parquet",
                {"x": "INTEGER", "y": "VARCHAR", "z": "INTEGER", "who": "VARCHAR"},
                [[str(x), f"'{y}'", str(z), f"'{w}'"] for x, y, z, w in rest],
            )
            change = before - tally(less, columns, cells, units=True, unit=unit)
            assert set(change.ravel().tolist()) <= {0, 1}
            assert change.sum() <= min(c, change.size)
            assert tally(path, columns, [], units=True, unit=unit) == 1 + tally(
                less, columns, [], units=True, unit=unit
            )


def test_what_does_not_fit_the_table_is_refused(tmp_path: Path) -> None:
    path, columns, _ = small_table(tmp_path, 1, 5)
    refused: list[Resolution] = [
        Nodes("x", 3, 1, 4),
        Nodes("x", 1, 2, 4),
        Nodes("x", 1, 1, -1),
        Nodes("x", 1, 1, grid=4),
        Nodes("x", 1, 1, 4, (0,)),
        Nodes("x", 1, 1, 4, (), Fraction(0), Fraction(1)),
        Nodes("y", 1, 1, 4),
        Nodes("none", 1, 1, 4),
        cells_of("x", np.arange(3)),
        Cells((), ()),
        Cells(("x", "y"), (np.arange(4), np.arange(3)), np.zeros((4, 2), dtype=np.int64)),
    ]
    vault = vault_of(path, columns)
    for resolution in refused:
        with pytest.raises(ProgrammingError, match="E_WORKLOAD"):
            vault.tally([resolution])
    with pytest.raises(ProgrammingError, match="E_WORKLOAD"):
        tally(path, columns, [Nodes("x", 1, 1, 3)], units=True)


@settings(max_examples=200, deadline=None)
@given(st.floats(), st.floats(), st.integers(1, 1 << 24))
def test_places_are_always_within_the_grid(part: float, width: float, grid: int) -> None:
    (found,) = to_grid(np.array([part]), width, grid).tolist()
    assert 0 <= found <= grid


@given(
    st.lists(
        st.tuples(st.just(0) | st.integers(1, 1 << 62), st.sampled_from([1, 2])),
        min_size=1,
        max_size=6,
    )
)
def test_what_a_row_adds_fits_its_bits(meeting: list[tuple[int, int]]) -> None:
    nodes = [Nodes(f"x{i}", degree, 1, steps) for i, (steps, degree) in enumerate(meeting)]
    found = weights_of(nodes)
    own = [steps**degree for steps, degree in meeting]
    assert sorted(found.order) == list(range(len(nodes)))
    even = found.order[: found.even]
    assert found.unit % math.prod(own[i] for i in even) == 0
    assert all(own[i] for i in even)
    if all(own) and math.prod(own) <= MOST_WEIGHT:
        assert (found.unit, found.even) == (math.prod(own), len(own))
        assert found.rounding == 0
    else:
        assert 1 <= found.unit <= 1 << TOTAL_BITS
        assert (found.even < len(own)) == (found.rounding > 0)
        bits = REAL_BITS * sum(degree for i, (_, degree) in enumerate(meeting) if i not in even)
        exact = math.prod(own[i] for i in even)
        assert found.unit > 1 << (TOTAL_BITS - 1) or found.unit == exact << bits


def test_planning_knows_how_far_places_in_bins_are_kept() -> None:
    assert 1 << PLACE_BITS == PLACES
