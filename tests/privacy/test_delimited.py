"""Files of delimited text in declared forms: read as pandas and DuckDB read them, or refused.

FILES says how many random files of random forms are compared.
"""

from __future__ import annotations

import bz2
import csv
import datetime as dt
import gzip
import io
import lzma
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpsql.catalog.catalog import Table, Unit
from dpsql.catalog.delimited import ENCODINGS, KEYS, OF_BYTES, Delimited, code_page
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.data_engine import Form, RequestedColumn
from dpsql.privacy.vault.files import lines, quoted_newlines
from dpsql.privacy.vault.files.csv_patterns import spelling
from dpsql.privacy.vault.files.duckdb import FILES as ENGINE
from dpsql.privacy.vault.files.fetched_columns import NOT_FOUND, UNKNOWN, fetch_column
from dpsql.privacy.vault.files.lines import find_unread
from dpsql.privacy.vault.files.source import connect
from dpsql.privacy.vault.files.text_files import open_text
from dpsql.records import replace
from tests.support.effort import effort

FILES = effort(60)
NAMES = ("who", "höhe", "tag", "wort")
FORMATS = ("%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d-%m-%y")
CHOICES: dict[str, tuple[Any, ...]] = {
    "delimiter": ("", ";", "\t", "|", " "),
    "encoding": ("utf-8", "cp1252", "iso8859-1", "utf-16", "mac-roman", "cp850"),
    "decimal": (".", ","),
    "thousands": ("", ".", ",", "'", "\u00a0"),
    "dates": ((), *((each,) for each in FORMATS)),
    "missing": ((), ("NA",), ("NA", ".", "-99")),
    "header": ((), NAMES),
    "skip": (0, 2),
    "percent": (False, True),
    "currency": ((), ("€",), ("kr", "€")),
    "quoted_newlines": (False, True),
}
"""Values of every option; a random form has any of them, so that pairs meet."""
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
}


def drawn(rng: random.Random) -> Delimited:
    """A random form, of which the signs differ and can be encoded."""
    said = {key: rng.choice(values) for key, values in CHOICES.items()}
    if said["thousands"] == said["decimal"]:
        said["thousands"] = ""
    if said["encoding"] in ("iso8859-1", "cp850"):
        said["currency"] = ()
    return Delimited(**said)


def number(rng: random.Random, written: Delimited) -> str:
    """A number as it is written in that form."""
    whole, part = rng.randint(0, 10 ** rng.randint(1, 7)), rng.choice(["", "5", "25"])
    text = f"{whole:,}".replace(",", written.thousands) if written.thousands else str(whole)
    text = rng.choice(["", "-"]) + text + (written.decimal + part if part else "")
    marks = [*written.currency, *["%"] * written.percent]
    mark = rng.choice([*marks, ""]) if marks else ""
    return rng.choice([f"{mark} {text}", f"{text}{mark}", text]) if mark else text


def rows_of(rng: random.Random, written: Delimited) -> list[list[str]]:
    """Rows of a name, a number, a day and a word, some of them missing."""
    day = written.dates[0] if written.dates else "%Y-%m-%d"
    first, found = dt.date(1990, 1, 1), []
    for _ in range(rng.randint(1, 12)):
        lines = ["\nx\n", 'say "\n"', "a,\nb"] if written.quoted_newlines else []
        words = [*lines, "a b", "Zoë", 'say "x"', f"x{written.cut('x.csv')}y", "ja"]
        row = [
            rng.choice(words),
            number(rng, written),
            (first + dt.timedelta(rng.randint(0, 20_000))).strftime(day),
            rng.choice(words),
        ]
        lost = rng.choice(["", *written.missing])
        found.append([lost if rng.random() < 0.2 else each for each in row])
    return found


def packed(path: Path, written: Delimited, rows: list[list[str]], end: str) -> None:
    """Write a file in a form, compressed as its name says."""
    text = io.StringIO()
    text.write(f"über dies{end}" * written.skip)
    writer = csv.writer(text, delimiter=written.cut(path.name), lineterminator=end)
    writer.writerows(rows if written.header else [NAMES, *rows])
    data = text.getvalue().encode(written.encoding)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("inside.csv", data)
    else:
        path.write_bytes(PACKERS[path.suffix if path.suffix in PACKERS else ""](data))


def opened(path: Path, written: Delimited) -> Any:
    return ENGINE.open(Table("t", str(path), Unit(), {}, options=written.options()))


def values(stored: Any, asked: RequestedColumn) -> list[Any]:
    """Values of a column as they are handed over, None where they are missing or none."""
    found = []
    for batch in stored.read([asked], None):
        (column,) = batch.columns
        lost = column.missing | column.unknown
        found += [None if no else each for each, no in zip(column.numbers.tolist(), lost)]  # noqa: B905
    return found


@pytest.mark.parametrize("part", range(6))
def test_files_are_read_as_pandas_and_duckdb_read_them(part: int, tmp_path: Path) -> None:
    rng = random.Random(part)
    for i in range(FILES // 6):
        written, ending = drawn(rng), rng.choice([*PACKERS, ".zip"])
        path = tmp_path / f"{i}{rng.choice(['.csv', '.txt', '.tab', '.tsv'])}{ending}"
        rows = rows_of(rng, written)
        packed(path, written, rows, rng.choice(["\n", "\r\n"]))
        stored = opened(path, written)
        assert [name for name, _ in stored.columns] == [*NAMES]
        frame = by_pandas(path, written)
        numbers = values(stored, RequestedColumn("höhe", "number"))
        assert numbers == [None if pd.isna(each) else each for each in frame["höhe"]], written
        days = values(stored, RequestedColumn("tag", "day"))
        since = frame["tag"] - pd.Timestamp(0)
        known = [None if pd.isna(each) else each.days for each in since]
        assert days == known, written
        texts = [*frame["wort"].dropna().unique()]
        words = values(stored, RequestedColumn("wort", "place", tuple(texts)))
        assert [None if each is None else texts[each] for each in words] == [
            None if pd.isna(each) else each for each in frame["wort"]
        ]
        if written.encoding == "utf-8" and ending in ("", ".gz"):
            assert by_duckdb(path, written) == days, written
        assert list(find_unread(str(path), written)) == []


def by_pandas(path: Path, written: Delimited) -> pd.DataFrame:
    """The same file as pandas reads it; marks beside numbers are taken off before."""
    is_zstd = path.suffix == ".zst"  # pandas needs a package of its own for these
    frame = pd.read_csv(
        pa.input_stream(str(path), "zstd") if is_zstd else path,
        sep=written.cut(path.name),
        encoding=written.encoding,
        skiprows=written.skip,
        header=None if written.header else 0,
        names=[*NAMES],
        keep_default_na=False,
        na_values=["", *written.missing],
        dtype=str,
    )
    bare = frame["höhe"].str.replace("|".join([*written.currency, "%", " "]), "", regex=True)
    bare = bare.str.replace("\u00a0", "'")  # pandas knows marks of one byte
    frame["höhe"] = pd.read_csv(
        io.StringIO("\n".join(["höhe", *(f'"{each}"' for each in bare.fillna("nan"))])),
        sep=";",
        decimal=written.decimal,
        thousands=written.thousands.replace("\u00a0", "'") or None,
        na_values=["nan"],
        dtype=float,
    )["höhe"].to_numpy()
    format_ = written.dates[0] if written.dates else "%Y-%m-%d"
    frame["tag"] = pd.to_datetime(frame["tag"], format=format_)
    return frame


def by_duckdb(path: Path, written: Delimited) -> list[int | None]:
    """The days of the same file as DuckDB reads them."""
    form = written.dates[0] if written.dates else "%Y-%m-%d"
    missing = ", ".join(f"'{each}'" for each in ("", *written.missing))
    columns = ", ".join(f"'{each}': 'VARCHAR'" for each in NAMES)
    sql = f"""SELECT strptime(tag, '{form}')::DATE - DATE '1970-01-01' FROM read_csv('{path}',
        delim = '{written.cut(path.name)}', quote = '"', escape = '"', auto_detect = false,
        nullstr = [{missing}], skip = {written.skip}, header = {not written.header},
        columns = {{{columns}}}, allow_quoted_nulls = true)"""
    with duckdb.connect() as database:
        return [day for (day,) in database.execute(sql).fetchall()]


@pytest.mark.parametrize("form", ["number", "day", "clock", "time"])
def test_declared_spellings_of_any_text_are_total_and_never_fail(form: Form) -> None:
    """SQL makes of a text what Python makes of it, and no conversion fails."""
    rng, signs = random.Random(form), "0123456789.,;:'%€ -+/eE\u00a0\x02\nkr"
    pool = ["1.234,5", "31.12.2024", "1.1.70 12:30", "-5 %", "€ 5", "inf", "2024-01-01", "24:00"]
    ways = (), ("%d.%m.%Y", "%d.%m.%y %H:%M"), ("%H:%M", "%Y%m%d"), ("%m/%d/%y",)
    with connect(threads=1) as database:
        for _ in range(effort(20)):
            written = replace(drawn(rng), dates=rng.choice(ways))
            texts = [*pool, *("".join(rng.choices(signs, k=rng.randint(0, 12))) for _ in range(60))]
            texts += [number(rng, written) for _ in range(20)]
            known = spelling(form, written)
            raw = "v" if known is None else known.sql("v")
            listed = f"(SELECT {raw} AS p, v FROM (SELECT unnest(CAST($1 AS VARCHAR[])) AS v))"
            found = fetch_column(RequestedColumn("p", form), "p", "VARCHAR")
            sent = f"SELECT {found.value}, {found.state or 0}, p, v FROM {listed}"
            kept = database.execute(sent, [texts]).fetchall()
            daring = sent.replace("TRY_CAST(", "CAST(")
            assert repr(database.execute(daring, [texts]).fetchall()) == repr(kept)
            for value, state, plain, text in kept if known is not None else []:
                expected = known.plain(text) if known is not None else ""
                is_none = value == UNKNOWN or state == NOT_FOUND
                is_marked = text.startswith("\x02") and written.dates
                same = plain == expected or (is_none and not expected) or is_marked
                assert same, (text, plain, expected, written)


def test_formats_of_days_that_python_knows_are_the_same_days() -> None:
    rng = random.Random(3)
    formats = ["%d.%m.%Y", "%m/%d/%y", "%Y%m%d", "%d%m%y", "%y-%m-%d", "%d.%m.%Y %H:%M:%S", "%H:%M"]
    for _ in range(effort(300)):
        moment = dt.datetime(1969, 1, 1) + dt.timedelta(seconds=rng.randint(0, 99 * 365 * 86_400))
        format_ = rng.choice(formats)
        text = moment.strftime(format_)
        known = spelling("time" if "%d" not in format_ else "clock", Delimited(dates=(format_,)))
        assert known is not None
        again = dt.datetime.strptime(text, format_)
        parsed = known.plain(text)
        if "%d" not in format_:
            assert dt.time.fromisoformat(parsed) == again.time()
        else:
            assert [int(each) for each in parsed.replace(":", "-").replace(" ", "-").split("-")][
                :3
            ] == [again.year, again.month, again.day]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_byte_is_what_python_says_or_makes_its_line_no_row(
    encoding: str, tmp_path: Path
) -> None:
    page, path = code_page(encoding), tmp_path / "t.csv"
    if page is None:
        return
    assert page[:128] == bytes(range(128)).decode("ascii")
    bytes_ = range(128, 256)
    path.write_bytes(b"".join(b"%d,%c\n" % (byte, byte) for byte in bytes_))
    written = Delimited(encoding=encoding, header=("n", "v"))
    wrong = {number - 1 + 128 for number, _, _ in find_unread(str(path), written)}
    assert wrong == {byte for byte in bytes_ if page[byte] == "\udcff"}
    found = [text for texts in opened(path, written).texts("v") for text in texts]
    assert found == [page[byte] for byte in bytes_ if byte not in wrong]


def test_long_lines_are_no_rows_wherever_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, longest = tmp_path / "t.csv", 40
    monkeypatch.setattr(lines, "LONGEST", longest)
    lengths = [3, longest, longest + 1, 1, 900, 2]
    path.write_bytes(b"v\n" + b"".join(b"x" * each + b"\n" for each in lengths))
    for block in (1, 7, 39, 64):
        monkeypatch.setattr(lines, "BLOCK", block)
        found = [text for texts in opened(path, Delimited()).texts("v") for text in texts]
        assert [len(each) for each in found] == [each for each in lengths if each <= longest]
        assert list(find_unread(str(path))) == [
            (4, longest + 1, lines.LONG),
            (6, longest + 1, lines.LONG),
        ]


def workbook() -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    return found.getvalue()


@pytest.mark.parametrize(
    ("data", "problem", "remedy"),
    [
        (b"", "0 bytes", "header"),
        (b"age,sex,age\n1,f,2\n", "'age', fields 1 and 3 of line 1", "skip = 1, header"),
        (b"gr\xf6\xdfe,sex\n1,f\n", "line 1, column 3 has bytes that are not utf-8", "cp1252"),
        ("a,b\n1,2\n".encode("utf-16"), "it is UTF-16", 'encoding = "utf-16"'),
        (workbook(), "workbook of Excel", ".xlsx"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 99, "password", ".xls"),
        (gzip.compress(b"a\n1\n"), "gzip", ".csv.gz"),
        (b"a,b\r1,2\r", "line 1, column 4 has a carriage return", "newlines"),
        (b"\n1,2\n", "line 1 is blank", "skip = 1"),
        (b'a,"b\n1,2\n', "line 1, column 3 has a quote that is not closed", "quoted_newlines"),
        (b'{"a": 1}\n', "JSON", ".ndjson"),
        (b"<html>\n", "HTML", "file itself"),
        (b"a" * (1 << 20), "longer than 1 MiB", "newlines"),
    ],
    ids=range(13),
)
def test_each_cause_has_a_message_of_its_own(
    data: bytes, problem: str, remedy: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_bytes(data)
    with pytest.raises(DataUnavailable) as caught:
        opened(tmp_path / "t.csv", Delimited())
    assert problem in caught.value.message
    assert remedy in str(caught.value.hint)


def test_packed_files_that_are_no_file_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "two.csv.zip", "w") as archive:
        archive.writestr("a.csv", "a\n")
        archive.writestr("b.csv", "a\n")
    (tmp_path / "cut.csv.xz").write_bytes(lzma.compress(b"a\n" + b"1\n" * 999)[:20])
    (tmp_path / "no.csv.zip").write_bytes(b"a,b\n")
    (tmp_path / "no.csv.bz2").write_bytes(b"a,b\n")
    for name, problem in {
        "two.csv.zip": "holds 2 files",
        "cut.csv.xz": "was cut off",
        "no.csv.zip": "no zip archive",
        "no.csv.bz2": "not compressed as .bz2 says",
    }.items():
        with pytest.raises(DataUnavailable, match=problem):
            opened(tmp_path / name, Delimited())


def test_no_byte_of_a_row_decides_whether_a_file_opens(tmp_path: Path) -> None:
    """Without a header line the first line is somebody's: nothing is said of it."""
    for data in (b"", b"PK\x03\x04\n", b"{\n", b"\0\n", b"\xff\xfe\n", b"a,a\n", b"\n", b'"\n'):
        (tmp_path / "t.csv").write_bytes(data)
        stored = opened(tmp_path / "t.csv", Delimited(header=("a", "b")))
        assert len(values(stored, RequestedColumn("a", "number"))) == (data == b"a,a\n")


def test_options_are_what_options_of_a_table_say() -> None:
    rng = random.Random(5)
    for _ in range(50):
        written = drawn(rng)
        assert Delimited.of([*written.options(), ("spill", "/tmp")]) == written
    assert np.all([key in KEYS for key in CHOICES])


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


PARTS = ['"', '""', '"a\n', 'b"', ",", "x", "\n", "\r\n", ',"', '",', '"\n', "7", '1,"a\n\nb"\n']


def test_lines_are_joined_as_csv_has_them(
    database: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, written, path = random.Random(3), Delimited(quoted_newlines=True), tmp_path / "t.csv"
    for _ in range(effort(60)):
        cells = [
            [rng.choice(["", "a", "\n", 'a"\nb', "\n\n", '"', "x,y\n", "\u00e9"]) for _ in "ab"]
            for _ in range(rng.randint(1, 9))
        ]
        kept = [each for each in cells if any(each)]  # a blank line is no row
        text = io.StringIO()
        csv.writer(text, lineterminator=rng.choice(["\n", "\r\n"])).writerows([["a", "b"], *kept])
        path.write_text(text.getvalue(), newline="")
        monkeypatch.setattr(lines, "BLOCK", rng.choice((1, 7, 1 << 22)))
        assert fields_of(database, path, written) == kept
        assert list(find_unread(str(path), written)) == []
        # by parts, where quotes are written as CSV has them
        ends = [fields_of(database, part, written) for part in in_parts(tmp_path, kept, rng)]
        assert sorted(each for part in ends for each in part) == sorted(kept)


def in_parts(folder: Path, rows: list[list[str]], rng: random.Random) -> list[Path]:
    """The same rows in two files, in any order."""
    cut, mixed = rng.randint(0, len(rows)), rng.sample(rows, len(rows))
    paths = [folder / "one.csv", folder / "two.csv"]
    for path, some in zip(paths, (mixed[:cut], mixed[cut:]), strict=True):
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([["a", "b"], *some])
    return paths


def fields_of(
    database: duckdb.DuckDBPyConnection, path: Path, written: Delimited
) -> list[list[str]]:
    """The fields of all rows, as DuckDB is to fetch them."""
    found: list[list[str]] = []
    for block in lines.read_rows(str(path), 2, written):
        if len(block["line"]):
            database.register("lines", block)
            sql = ", ".join(lines.field_sql(i, written) for i in range(2))
            found += map(list, database.execute(f"SELECT {sql} FROM lines").fetchall())
    return found


def test_a_line_that_is_no_row_takes_others_with_it_only_into_a_row(
    database: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    rng, written = random.Random(8), Delimited(quoted_newlines=True, header=("a", "b"))
    for _ in range(effort(80)):
        text = "".join(rng.choices(PARTS, k=rng.randint(1, 25)))
        (tmp_path / "t.csv").write_text(text, newline="")
        rows, places = fields_of(database, tmp_path / "t.csv", written), 0
        for line in text.split("\n"):  # what is a row by itself and in no longer one is one
            places += (
                line.count('"') % 2 == 0
                and lines.split_line(line.removesuffix("\r"), ",", 2) is not None
            )
        joined = sum(1 for row in rows for field in row if "\n" in field)
        assert len(rows) >= places - sum(field.count("\n") for row in rows for field in row)
        assert joined <= text.count('"') // 2
        unread = [n for n, _, _ in find_unread(str(tmp_path / "t.csv"), written)]
        assert all(1 <= n <= text.count("\n") + 1 for n in unread)
        assert unread == sorted({*unread})


def test_an_open_quote_holds_no_more_than_a_line_may_have(
    database: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BLOCK", 64)
    monkeypatch.setattr(quoted_newlines, "LONGEST", 200)
    written = Delimited(quoted_newlines=True)
    (tmp_path / "t.csv").write_text('a,b\n1,"x\n' + "2,y\n" * 200 + '3,"z\nz"\n')
    rows = fields_of(database, tmp_path / "t.csv", written)
    assert rows == [["2", "y"]] * 200 + [["3", "z\nz"]]
    assert list(find_unread(str(tmp_path / "t.csv"), written)) == [(2, 3, lines.UNCLOSED)]


def test_a_mark_before_a_line_is_no_part_of_it_wherever_the_line_is(tmp_path: Path) -> None:
    path, form = tmp_path / "t.csv", Delimited(header=("a", "b"))
    for order in ("\ufeff1,x\n2,y\n", "2,y\n\ufeff1,x\n", '\ufeff"1",x\n\ufeff2,"y"\n'):
        path.write_text(order, encoding="utf-8")
        assert sorted(values(opened(path, form), RequestedColumn("a", "number"))) == [1, 2]


@pytest.mark.parametrize("encoding", OF_BYTES)
def test_lines_of_several_bytes_a_character_are_read_one_by_one(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a line holds, among it bytes that begin a character before its end."""
    word = {"euc": "\uac00", "cp949": "\uac00"}.get(encoding.partition("-")[0], "\u4e2d")
    word = "\u65e5" if encoding in ("shift-jis", "euc-jp") else word
    good = f"{word}|,1".encode(encoding)
    random_ = random.Random(encoding)
    spoilt = [random_.randbytes(6).replace(b"\n", b"") + b",2" for _ in range(200)]
    spoilt += [bytes([each]) for each in range(128, 256)] + [b"\xc3\xa9,3"]

    def read(some: list[bytes]) -> list[str]:
        (tmp_path / "t.csv").write_bytes(b"\n".join([b"w,n", *some]))
        with open_text(str(tmp_path / "t.csv"), encoding) as file:
            text = file.read()
        blocks = lines.split_lines(text.partition(b"\n")[2], ",", 2)
        return [str(each) for each in blocks["line"]]

    assert read([good]) == [f"{word}|\r1"]
    # within lines and characters
    monkeypatch.setattr("dpsql.privacy.vault.files.text_files.CHUNK", 7)
    mixed = [line for each in spoilt for line in (each, good)]
    alone = [row for each in mixed for row in read([each])]
    assert read(mixed) == alone
    assert alone.count(f"{word}|\r1") >= len(spoilt)


def test_a_line_of_several_bytes_that_is_too_long_is_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("lines", "text_files"):
        monkeypatch.setattr(f"dpsql.privacy.vault.files.{module}.LONGEST", 50)
    monkeypatch.setattr("dpsql.privacy.vault.files.text_files.CHUNK", 16)
    monkeypatch.setattr("dpsql.privacy.vault.files.lines.BLOCK", 20)
    (tmp_path / "t.csv").write_bytes(b"w,n\na,1\n" + b"b" * 200 + b",2\nc,3\n")
    found = list(lines.read_rows(str(tmp_path / "t.csv"), 2, Delimited(encoding="gbk")))
    assert [each for block in found for each in block["line"]] == ["a\r1", "c\r3"]
