"""What ``dpsql check`` counts is what the engine counts, and every remedy that it names works.

Columns of every declaration are drawn with defects; figures are compared with exact answers, and
every remedy is applied to the catalog or the file, after which the rows count.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.catalog.read import read_catalog
from dpsql.dbapi.checking import chosen_tables
from dpsql.errors import DataUnavailable
from dpsql.privacy.doors import check_figures
from dpsql.privacy.doors.check_figures import Figures, inspect_rows
from dpsql.privacy.vault.codes import spill
from dpsql.relation.row_view import ROOM
from dpsql.ui.check import count, figures_lines
from tests.support.effort import effort
from tests.support.seam import zero_noise

MORE = effort(1)
DEFECTS = [
    *("", "NA", "n/a", ".", "NULL", "?", "z", "abc", "\u20ac 12", "$1,200.50", "1.234,5", "3,5"),
    *("12 %", "3.5", "0.3", "99", "-7", "1e3", "31.12.2024", "12/31/2024", "Dec 31, 2024"),
    *("2031-05-06", "2024-02-31", "25:61", "half past", "8.30", "maybe", "2"),
]
COLUMNS: dict[str, tuple[str, str]] = {
    'type = "integer", domain = [0, 9]': ("3", "integer"),
    'type = "integer", domain = [0, 1, 4]': ("4", "integer"),
    'type = "integer", bounds = [0, 9]': ("3", "integer"),
    'type = "number", domain = [0, 9], bins = 3': ("2.5", "number"),
    'type = "number", bounds = [0, 9]': ("2.5", "number"),
    'type = "number", bounds = [0, 9], bins = 3': ("2.5", "number"),
    'type = "decimal", domain = [0, 9], step = 0.5': ("2.5", "decimal"),
    'type = "text", domain = ["a", "b"]': ("a", "text"),
    'type = "boolean", domain = [false, true]': ("true", "boolean"),
    'type = "date", domain = ["2024-01-01", "2024-12-31"], by = "month"': ("2024-02-03", "date"),
    'type = "timestamp", domain = ["2024-01-01", "2024-12-31"], by = "day"': (
        "2024-02-03 08:30:00",
        "timestamp",
    ),
    'type = "time", domain = ["08:00", "18:00"], by = "15 minutes"': ("08:30", "time"),
}
"""Every way to declare a column, and a value that it takes."""

HEAD = '[budget]\nepsilon = 1000000\n[table.t]\nsource = "t.csv"\nprivacy_unit = "row"\n'


def write(folder: Path, columns: list[str], rows: list[list[str]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"c{i}" for i in range(len(columns))]
    lines = [names, *rows]
    text = "\n".join(",".join(f'"{v}"' if "," in v else v for v in each) for each in lines)
    (folder / "t.csv").write_text(f"{text}\n", encoding="utf-8")
    declared = "\n".join(f"{n} = {{ {each} }}" for n, each in zip(names, columns, strict=True))
    path = folder / "t.toml"
    path.write_text(f"{HEAD}[table.t.column]\n{declared}\n", encoding="utf-8")
    return path


MORE_ROOM = "`spill` names a folder with room for more"


def figures(path: Path, name: str = "t") -> Figures:
    tables = read_catalog(path).tables
    return inspect_rows(tables[name], tables)


@pytest.mark.parametrize("seed", range(MORE))
def test_figures_are_what_the_engine_counts(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    columns = [f"{each}{draw.choice(['', ', null = true'])}" for each in COLUMNS]
    good = [value for value, _ in COLUMNS.values()]
    rows = [
        [draw.choice([value, value, draw.choice(DEFECTS)]) for value in good] for _ in range(150)
    ]
    path = write(tmp_path, [*columns, 'type = "text"'], [[*row, "x"] for row in rows])
    found = figures(path)
    assert found.columns[-1].idle
    assert (
        '  c12 (text): nothing can be asked of it: declare domain = ["a", "b"], or domain_file = '
        '"values.txt"' in figures_lines(found, False)
    )
    with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
        for i, told in enumerate(found.columns[:-1]):
            used = f"c{i} IS NULL OR c{i} IS NOT NULL"
            sums = f"SUM(c{i}), COUNT(c{i})" if "bounds" in columns[i] else f"COUNT(c{i}), 0"
            sql = f"SELECT COUNT(*) FILTER (WHERE {used}), {sums} FROM t"
            if "bounds" in columns[i] and "bins" not in columns[i]:
                sql = f"SELECT COUNT(*), {sums} FROM t"
            counted, total, known = connection.execute(sql).result.rows[0]
            assert counted == found.rows - told.outside, columns[i]
            if told.clipped is not None:
                assert total / known == pytest.approx(told.clipped.clipped_mean, abs=0.02)
            if "bounds" in columns[i]:
                assert told.clipped is not None
                values = [row[i] for row in rows]
                numbers = [float(v) for v in values if check_figures.PLAIN.fullmatch(v)]
                assert told.clipped.below == sum(v < 0 for v in numbers)
                assert told.clipped.above == sum(v > 9 for v in numbers)
                assert told.clipped.mean == pytest.approx(sum(numbers) / len(numbers))


def anew(what: str) -> Callable[[str, str], tuple[str, str]]:
    return lambda column, value: (column, what)


def wider(column: str, value: str) -> tuple[str, str]:
    for narrow, wide in {
        "[0, 9]": "[-5000, 5000]",
        '"2024-01-01", "2024-12-31"': '"1990-01-01", "2040-12-31"',
        '"08:00", "18:00"': '"00:00", "24:00"',
        "step = 0.5": "step = 0.1",
    }.items():
        column = column.replace(narrow, wide)
    return column, value


def as_text(column: str, value: str) -> tuple[str, str]:
    return 'type = "text", domain = ["a"], other = true', value


APPLIED: dict[str, Callable[[str, str], tuple[str, str]]] = {
    check_figures.EMPTY: lambda column, value: (f"{column}, null = true", ""),
    check_figures.SEPARATED: anew("1"),
    check_figures.DECIMALS: lambda c, v: (
        'type = "number", domain = [-5000, 5000], bins = 5',
        v,
    ),
    check_figures.NO_NUMBERS: as_text,
    check_figures.WIDER: wider,
    check_figures.STEP: wider,
    check_figures.LISTED: lambda column, value: (
        column.replace("4]", f"4, {int(float(value))}]"),
        value,
    ),
    check_figures.OTHER: lambda column, value: (f"{column}, other = true", value),
    check_figures.TIMES: anew("08:30"),
    'type = "text" with these in its domain would count them': lambda c, v: (
        f'type = "text", domain = ["{v}", "b"]',
        v,
    ),
}
"""What somebody does who reads a remedy: another declaration, or another value in the file."""


@pytest.mark.parametrize("column", COLUMNS)
def test_every_remedy_works(column: str, tmp_path: Path) -> None:
    inside, kind = COLUMNS[column]
    path = write(tmp_path / "all", [column], [[inside], *([value] for value in DEFECTS)])
    (told,) = figures(path).columns
    assert told.outside
    assert sum(each.rows for each in told.remedies) == told.undeclared
    day = {"date": "2024-12-31", "timestamp": "2024-12-31 08:30"}.get(kind, "")
    named = read_catalog(path).tables["t"].columns["c0"]
    cured = []
    for value, _ in told.values:
        words = check_figures.remedy_for(named, "text", value)
        assert words.split("[")[0] in {each.words.split("[")[0] for each in told.remedies}
        apply = anew(day) if words == check_figures.DAYS else APPLIED[words]
        cured.append((value, *apply(column, value)))
    declared, stored = [each for _, each, _ in cured], [each for *_, each in cured]
    again = figures(write(tmp_path / "cured", declared, [stored])).columns
    for found, each in zip(again, cured, strict=True):
        assert found.outside == 0, each


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (0, "NA", "empty fields"),
        (0, "3.5", "decimal"),
        (4, "\u20ac 1.234,50", "currency"),
        (0, "1,200", "currency"),
        (9, "31.12.2024", "2024-12-31"),
        (9, "12/31/2024", "2024-12-31"),
        (9, "2031-01-01", "wider domain"),
        (11, "25h", "08:30"),
        (0, "12", "wider domain"),
        (7, "c", "other = true"),
    ],
)
def test_each_defect_has_a_remedy_of_its_own(
    column: int, value: str, words: str, tmp_path: Path
) -> None:
    found = figures(write(tmp_path, [list(COLUMNS)[column]], [[value]]))
    (remedy,) = found.columns[0].remedies
    assert words in remedy.words
    kind = list(COLUMNS.values())[column][1]
    assert any(f"  c0 ({kind}): leaves out 1 row " in line for line in figures_lines(found, False))


def test_typed_values_have_remedies_for_types(tmp_path: Path) -> None:
    with duckdb.connect() as scribe:
        values = "VALUES (3.5::DOUBLE, 'NA', 2), (99, 'b', 1)"
        scribe.execute(f"COPY (SELECT * FROM ({values}) AS t(a, b, c)) TO '{tmp_path}/t.parquet'")
    path = tmp_path / "t.toml"
    path.write_text(
        HEAD.replace("csv", "parquet") + "[table.t.column]\n"
        'a = { type = "integer", domain = [0, 9] }\n'
        'b = { type = "text", domain = ["a"] }\n'
        'c = { type = "boolean", domain = [false, true] }\n',
        encoding="utf-8",
    )
    a, b, c = figures(path).columns
    assert {each.words for each in a.remedies} == {check_figures.DECIMALS, check_figures.WIDER}
    assert {each.words for each in b.remedies} == {
        check_figures.EMPTY.format('"NA"'),
        check_figures.OTHER,
    }
    assert {each.words[:16] for each in c.remedies} == {'type = "integer"'}
    assert any(
        "a (integer, stored as float)" in each for each in figures_lines(figures(path), False)
    )


REFERENCES = """
[budget]
epsilon = 100000
[unit.person]
[table.sales]
source = "sales.parquet"
privacy_unit = {{ column = "who", max_rows = 9 }}
[table.sales.column]
eur = {{ type = "integer", domain = [0, 9] }}
[table.brought]
source = "brought.parquet"
privacy_unit = {{ column = "who", max_rows = {most} }}
references = {{ sales = {{ on = {{ ref = "id" }} }} }}
[table.brought.column]
y = {{ type = "integer", domain = [0, 9] }}
[table.lines]
source = "lines.parquet"
privacy_unit = {{ through = "sales", on = {{ ref = "id" }}, max_rows = {most} }}
[table.lines.column]
y = {{ type = "integer", domain = [0, 9] }}
"""


@pytest.mark.parametrize("seed", range(2 * MORE))
def test_references_are_counted_as_rows_meet(seed: int, tmp_path: Path) -> None:
    """Sales of persons, what others bring back, and lines whose sale is not there."""
    draw = random.Random(seed)
    sales = [(draw.choice(["p1", "p2", "p3", None]), i, draw.randrange(12)) for i in range(40)]
    people = ["p1", "p2", "p3", "p9", None]
    brought = [(draw.choice(people), draw.choice([*range(50), None]), 1) for _ in range(100)]
    with duckdb.connect() as scribe:
        for name, columns, rows in (
            ("sales", "who VARCHAR, id INTEGER, eur INTEGER", sales),
            ("brought", "who VARCHAR, ref INTEGER, y INTEGER", brought),
            ("lines", "ref INTEGER, y INTEGER", [row[1:] for row in brought]),
        ):
            scribe.execute(f"CREATE TABLE {name} ({columns})")
            scribe.executemany(f"INSERT INTO {name} VALUES ({','.join('?' * len(rows[0]))})", rows)
            scribe.execute(f"COPY {name} TO '{tmp_path}/{name}.parquet'")
    path = tmp_path / "t.toml"
    path.write_text(REFERENCES.format(most=5), encoding="utf-8")
    owner = {i: who for who, i, _ in sales if who is not None}
    owned = [(who, ref) for who, ref, _ in brought if who is not None]
    found = figures(path, "brought")
    (met,) = found.met
    assert met.found == sum(owner.get(ref) == who for who, ref in owned)
    assert met.foreign == sum(ref in owner and owner[ref] != who for who, ref in owned)
    assert met.nowhere == len(owned) - met.found - met.foreign
    (line,) = [each for each in figures_lines(found, False) if "by ref" in each]
    assert f"{met.found:,} rows find a row of sales, {met.foreign:,} one of another who" in line
    lines = figures(path, "lines")
    assert lines.unowned == sum(ref not in owner for _, ref, _ in brought)
    assert lines.met[0].nowhere == lines.unowned
    of_sales = figures(path, "sales")
    assert of_sales.met == ()
    with zero_noise(), dpsql.connect(path, epsilon=1) as connection:
        for told in (found, lines, of_sales):
            sql = f"SELECT COUNT(*) FROM {told.table}"
            assert connection.execute(sql).result.rows[0][0] == told.most
    path.write_text(REFERENCES.format(most=500), encoding="utf-8")
    kept = dict(lines.roomier)
    assert kept[max(kept)] == figures(path, "lines").most == len(brought) - lines.unowned


@pytest.mark.parametrize("room", [0, 1, 9, 10, 79, 80, 800])
@pytest.mark.parametrize("stated", ["", "row_count_hint = 9", "row_count_hint = 10"])
def test_the_curator_is_told_how_many_rows_there_is_room_for(
    room: int, stated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, ['type = "integer", domain = [0, 9]'], [[str(i)] for i in range(10)])
    path.write_text(path.read_text().replace("[table.t]", f"[table.t]\n{stated}"))
    table = read_catalog(path).tables["t"]
    monkeypatch.setattr(spill, "memory", lambda: 2 * room * spill.bytes_of_row(table))
    if stated and room < int(stated.split()[-1]):
        with pytest.raises(DataUnavailable, match="more than is left"):
            chosen_tables(path, None)
        return
    (table,) = chosen_tables(path, None)
    lines = figures_lines(inspect_rows(table), False)
    (told,) = [each for each in lines if "room for" in each or "row_count_hint" in each]
    if stated.endswith("9"):
        assert "states 9 rows" in told
    elif stated:
        assert told == "  room for 10 rows, as row_count_hint states"
    elif room < 10:
        assert told == f"  there is room for {count(room, 'row')} alone: {MORE_ROOM}"
    else:
        assert told == f"  {ROOM.format(room)}"


FINDINGS = """
[budget]
epsilon = 1
[unit.person]
[table.t]
source = { file = "t.csv", missing = ["-99", "?"] }
privacy_unit = { column = "who", max_rows = 4 }
[table.t.column]
age = { type = "integer", domain = [0, 120] }
cost = { type = "number", bounds = [0, 100] }
ward = { type = "text", domain = ["A"] }
day = { type = "date", domain = ["2024-01-01", "2024-12-31"], by = "month" }
notes = { type = "text" }
score = { type = "number" }
when = { type = "timestamp" }
[table.bills]
source = "bills.csv"
privacy_unit = { through = "t", on = { visit = "visit" }, max_rows = 30 }
[table.bills.column]
amount = { type = "integer", bounds = [0, 40] }
"""
TOLD = (
    "1 line is no row and never counts",
    "first in line 32, column 7, of t.csv: write as many delimiters in every line as in the header",
    "3 rows without who never count: write who in each",
    "2 units, 1 beyond max_rows = 4: 19 of their rows do not count",
    "max_rows = 8 would keep 12 rows",
    "max_rows = 12 would keep 16 rows",
    "max_rows = 20 would keep 24 rows",
    "max_rows = 23 would keep 27 rows",
    "2 are NULL: null = true would count them",
    "NULL is written in 2 ways: 1 as '-99', 1 as nothing",
    "not declared, so that nothing can be asked of it: code, form",
    '5 hold 2 values not declared: words for what is missing: declare missing = ["-99", "?", "NA", '
    '"k.A."] in the source',
    "1 holds 1 value not declared: a wider domain would count them",
    "10 are below its bounds and 5 above, and clipped: their mean is 66.6667 instead of 116.667; "
    "wider bounds clip fewer",
    "4 hold 1 value not declared: other = true would count them",
    '6 hold 1 value not declared: declare their form, as dates = "%d.%m.%Y"',
    'notes (text): nothing can be asked of it: declare domain = ["a", "b"], or domain_file',
    "score (number): nothing can be asked of it: declare domain = [0, 500], bins = 100, or bounds",
    'when (timestamp): nothing can be asked of it: declare domain = ["2024-01-01", "2024-12-31"]',
    "by visit, 20 rows find a row of t, 10 none: are keys written alike in both",
)
"""The report of check on these rows, by kind of finding, with its remedy."""


def test_every_kind_of_finding_is_told_with_its_remedy(tmp_path: Path) -> None:
    lines = ["visit,who,age,cost,ward,day,notes,score,when,code,form"]
    for i in range(30):
        who = "" if i < 3 else "p1" if i < 7 else "p2"
        age = {3: "NA", 4: "NA", 5: "NA", 6: "k.A.", 7: "k.A.", 8: "-99", 9: "", 10: "200"}
        cost = -50 if i < 10 else 500 if i >= 25 else 100
        ward, day = "B" if i < 4 else "A", "03.04.2024" if i < 6 else "2024-04-03"
        lines.append(f"{i},{who},{age.get(i, 30)},{cost},{ward},{day},x,1,{day},7,8")
    (tmp_path / "t.csv").write_text("\n".join([*lines, "30,p2,"]) + "\n")
    bills = [f"{i if 3 <= i < 23 else -i},1" for i in range(30)]
    (tmp_path / "bills.csv").write_text("\n".join(["visit,amount", *bills]) + "\n")
    (tmp_path / "c.toml").write_text(FINDINGS)
    told = [
        line
        for name in ("t", "bills")
        for line in figures_lines(figures(tmp_path / "c.toml", name), False)
    ]
    missing = [each for each in TOLD if not any(each in line for line in told)]
    assert not missing, "\n".join(told)
