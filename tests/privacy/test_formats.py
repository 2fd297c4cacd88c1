"""Formats of files: their rows are those of their parts, and what does not open says why."""

from __future__ import annotations

import base64
import datetime as dt
import math
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from dpsql.catalog.catalog import Table, Unit
from dpsql.catalog.delimited import PLAIN, Delimited
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.codes.byte_texts import ByteTexts
from dpsql.privacy.vault.conformance import FORMS, HOSTILE, TEXTS, rows_told
from dpsql.privacy.vault.data_engine import VERSION, RequestedColumn, StoredTable
from dpsql.privacy.vault.files.arrow_rows import FORMATS
from dpsql.privacy.vault.files.duckdb import FILES
from dpsql.records import replace
from tests.support.formats import WRITERS, write_json, write_sheet, write_spss, write_sqlite

TRIED: dict[str, dict[str, Sequence[Any]]] = {
    "sav": {"text": [*HOSTILE["text"], "x" * 300], "date": HOSTILE["date"], "float": [1e300, -0.0]},
    "dta": {"date": HOSTILE["date"], "text": HOSTILE["text"]},
    "xpt": {"float": [None, 0.5, -2.5, 1e10]},
    "xlsx": {"text": HOSTILE["text"], "boolean": [True, False]},
    "ods": {"text": ["a", "\u00e9", "x" * 300, "1", "<&>"], "boolean": [True, False]},
    "arrow": {"date": HOSTILE["date"], "time": HOSTILE["time"]},
    "orc": {"date": HOSTILE["date"], "text": HOSTILE["text"]},
    "sqlite": {"float": [*HOSTILE["integer"], "no", b"\xff", 1.5, math.inf, 7, "7"]},
    "ndjson": {"text": [*HOSTILE["text"], 7, 1.5, True, {"a": [1]}]},
}
"""Values that are tried of each format, by family."""
SAMPLE: dict[str, Any] = {
    "float": 1.0,
    "text": "z",
    "date": dt.date(2024, 1, 1),
    "time": dt.time(8),
}
ROWS: list[list[Any]] = [
    ["p1", 1.0, "a", dt.date(2024, 2, 29)],
    ["p2", 2.0, "\u00e9", dt.date(1899, 12, 31)],
    ["p2", None, "", dt.date(2024, 1, 1)],
]
NAMES = ["who", "code", "word", "day"]


class Written:
    """The engine of files, for sources that are written in a declared form."""

    version = VERSION

    def __init__(self, written: Delimited) -> None:
        self.written = written

    def open(self, table: Table) -> StoredTable:
        return FILES.open(replace(table, options=self.written.options()))


@pytest.mark.parametrize("end", WRITERS)
def test_the_rows_of_a_format_are_those_of_its_parts(end: str, tmp_path: Path) -> None:
    numbers, names = count(), ["k", "v"]
    engine = Written(Delimited(header=tuple(names)) if end == "ndjson" else PLAIN)
    for family, values in TRIED[end].items():
        asked = RequestedColumn("v", FORMS[family][-1], TEXTS if family == "text" else ())
        first: list[Any] = ["k", SAMPLE.get(family, True)]  # says what the column is stored as

        def told(
            rows: Sequence[Any], first: Any = first, asked: RequestedColumn = asked
        ) -> Counter[object]:
            path = tmp_path / f"{next(numbers)}.{end}"
            WRITERS[end](path, names, [first, *rows])
            return Counter(rows_told(engine.open(Table("t", str(path), Unit(), {})), asked, "v"))

        alone, rows = told([]), [["k", value] for value in values]
        whole = told(rows)
        assert whole.total() == 1 + len(rows)
        parts = [told(part) for part in (rows[::2], rows[1::4], rows[3::4])]
        assert whole + alone + alone == sum(parts, Counter()), family
        assert len(whole) > 2 or family == "boolean"


def opened(path: Path, **options: str) -> StoredTable:
    return FILES.open(Table("t", str(path), Unit(), {}, options=tuple(options.items())))


@pytest.mark.parametrize("end", WRITERS)
def test_the_same_rows_are_the_same_values_in_every_format(end: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.{end}"
    WRITERS[end](path, NAMES, ROWS)
    written = Delimited(header=tuple(NAMES)) if end == "ndjson" else PLAIN
    found = Written(written).open(Table("t", str(path), Unit(), {}))
    asked = [
        RequestedColumn("code", "number"),
        RequestedColumn("word", "place", ("a", "\u00e9")),
        RequestedColumn("day", "day"),
    ]
    batches = [batch for batch in found.read(asked, "who") if batch.rows]
    columns = [[each for b in batches for each in b.columns[i].numbers.tolist()] for i in range(3)]
    missing = [[each for b in batches for each in b.columns[i].missing.tolist()] for i in range(3)]
    assert columns[0][:2] == [1.0, 2.0]
    assert columns[1][:2] == [0, 1]
    days = [(row[3] - dt.date(1970, 1, 1)).days for row in ROWS]
    assert columns[2] == days
    assert missing[0] == [False, False, True]
    if end not in ("arrow", "orc"):  # have texts that are empty, and those that are missing
        assert missing[1] == [False, False, True]
    (batch,) = batches
    assert isinstance(batch.units, ByteTexts)
    assert batch.units.tolist() == ["p1", "p2", "p2"]
    assert batch.owned is not None
    assert batch.owned.all()
    assert found.kind in FORMATS


OLD_WORKBOOK = (
    "c-rk)O=uHA6#iy6n?Kt8)KqAN5(-wW?V;*HgmzV`#Y0NfgFgtGHUXuQlpvIP&}z+55IiX&6zaiC)k{_Mpy0uSP|<"
    "@R2#KDgCqcnOoAu4x-I!>E1~g!qZ`n6*-kbO4?aZ6m*?qkjEzCY>FX9&rKu5_6z*`{`bO+o@1f;ht$-1SVZcE|6L"
    "cmWG={4}A`IS%3p`7m`G~D+*CklL|`vfL1oXw=;4a8oKAt_`G{X_+BktBpRj;e*}7}Ir3?{UkgOn0;7D${;yTM);"
    "wXbyMpbh7xU*2%gMq~C{Z^PVMrXvIsJ#TTy$yRCsexiiVLYemuFX~G<6riap*bWYa8xPu^YjL@4%^bQUd5Th)Z!#"
    "67qe07)mv$&EsRxUvD@6~eOALM?T#9Hz|4f%D=15Cp@#j7e$Z4P+s967v<9lXKIja&yNPiILpmQAIpn9Sx<Bugcy"
    "XrWB>QCcM>vyGU~LHT0fjU-aFku>uHYa*ILnE5C#vk3LDeD}+n#OR25k|opJr~QiAC<BCrOVWajL#*+XX*XMJWqO"
    "&tZeYHhX^c{x%C3=ChuJ^FZLYAki~8Blcx!H|;5QSWUpn}xBmc?VLj3$t@qBFlojHq68j%#)%WDQbqDS1kA@SIBO"
    "W|xsADFiNwl(>+h!eZzyhp=Wk!y|+Wop;t=!kMnbH>W9=~UAlU!sOD!M^0^T+o6XYm{fe)=6JRS*KIHw_j-NORM2"
    "aV_#mUy*+D7Ivkz!<tyuSdd7uawlAIItoEgseF@D=HEBJdwO~PZLL2o@1figyprD|jprFtI2tI1^ai5QmhI4fHIs"
    "bK5=q{<>Bx@FjkfrM!eIxEehRPhK>dK$>Fof$%tkTB)Unp^ede31Tqa4S0-T6zOUZV1OR&5yhdrPR^{!8`5`H%bm"
    "0ioIDPy"
)
"""A workbook as Excel 97 has them, written by xlwt: compressed, in base 85."""


def test_a_workbook_of_old_excel_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.xls"
    path.write_bytes(zlib.decompress(base64.b85decode(OLD_WORKBOOK)))
    asked = [
        RequestedColumn("code", "number"),
        RequestedColumn("word", "place", ("a", "\u00e9")),
        RequestedColumn("day", "day"),
    ]
    (batch,) = [each for each in opened(path).read(asked, "who") if each.rows]
    told = [
        [
            None if no else each
            for each, no in zip(column.numbers.tolist(), column.missing, strict=True)
        ]
        for column in batch.columns
    ]
    days = [
        (day - dt.date(1970, 1, 1)).days for day in (dt.date(2024, 2, 29), dt.date(1999, 12, 31))
    ]
    assert told == [[1.0, 2.5, None], [0, 1, None], [*days, None]]
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(DataUnavailable, match="no workbook, or a damaged one"):
        opened(path)


def test_a_day_beyond_the_calendar_keeps_no_other_from_being_read(tmp_path: Path) -> None:
    import pandas as pd
    import pyreadstat

    path = tmp_path / "t.sav"
    frame = pd.DataFrame({"day": [13_000_000_000.0, 1e300, -1e300, math.nan]})
    pyreadstat.write_sav(frame, str(path), variable_format={"day": "DATETIME20"})
    for form in ("day", "clock"):
        (values,) = [
            b.columns[0] for b in opened(path).read([RequestedColumn("day", form)], None) if b.rows
        ]
        assert values.unknown.tolist() == [False, True, True, False]
        assert values.missing.tolist() == [False, False, False, True]


def test_bytes_of_another_encoding_reach_their_own_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.sav"
    write_spss(path, ["who", "word"], [["p1", "abcdefg"], ["p2", "xbcdefg"]])
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"xbcdefg", b"\xff\xfecdefg"))
    asked = [RequestedColumn("word", "place", ("abcdefg",))]
    (batch,) = [each for each in opened(path).read(asked, "who") if each.rows]
    assert batch.columns[0].unknown.tolist() == [False, True]
    (batch,) = [
        each for each in opened(path).read([RequestedColumn("word", "key")], "word") if each.rows
    ]
    assert batch.owned is not None
    assert batch.owned.tolist() == [True, False]


BAD: dict[str, tuple[str, bytes | None, str]] = {
    "no file of SPSS": ("t.sav", b"$FL2 and no more", "it is no .sav file"),
    "an empty one": ("t.dta", b"", "it is no .dta file"),
    "no workbook": ("t.xlsx", b"PK\x03\x04 and no more", "it is no workbook"),
    "a password": ("t.xlsx", b"\xd0\xcf\x11\xe0" + b"\0" * 600, "the workbook has a password"),
    "no Arrow": ("t.arrow", b"ARROW1\0\0 and no more", "neither a file nor a stream of Arrow"),
    "no ORC": ("t.orc", b"ORC and no more", "no ORC file"),
    "no SQLite": ("t.sqlite", b"SQLite format 3\0" + b"\xff" * 4096, "no SQLite database"),
    "an unknown end": ("t.xyz", b"", "or another known format"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_does_not_open_says_why_and_shows_no_byte(what: str, tmp_path: Path) -> None:
    name, content, why = BAD[what]
    (tmp_path / name).write_bytes(content or b"")
    with pytest.raises(DataUnavailable) as caught:
        opened(tmp_path / name)
    assert why in caught.value.message
    assert "and no more" not in f"{caught.value.message} {caught.value.hint}"


def test_workbooks_and_databases_of_several_tables_name_one(tmp_path: Path) -> None:
    book = tmp_path / "t.xlsx"
    write_sheet(book, NAMES[:3], [row[:3] for row in ROWS], ("One", "Two"))
    with pytest.raises(DataUnavailable, match="the workbook has sheets: 'One', 'Two'"):
        opened(book)
    assert [name for name, _ in opened(book, table="Two").columns] == NAMES[:3]
    assert opened(book, table="Two").table == "Two"
    write_sheet(book, ["a", None, "b"], [[1, 2, 3]])  # type: ignore[list-item]
    with pytest.raises(DataUnavailable, match="column 2 has no name in row 1"):
        opened(book)
    write_sheet(book, ["a", "a"], [[1, 2]])
    with pytest.raises(DataUnavailable, match="two columns are called 'a'"):
        opened(book)
    base = tmp_path / "t.sqlite"
    write_sqlite(base, ["v", "u"], [])
    import sqlite3

    with sqlite3.connect(base) as database:
        database.execute("CREATE TABLE other (a, b AS (a / 0))")
        database.execute("CREATE VIEW w AS SELECT * FROM t")
    database.close()
    with pytest.raises(DataUnavailable, match="the database has tables: 'other', 't'"):
        opened(base)
    with pytest.raises(DataUnavailable, match="worked out of others"):
        opened(base, table="other")
    with pytest.raises(DataUnavailable, match="has no table 'w'"):
        opened(base, table="w")


def test_lines_of_json_that_are_no_objects_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.ndjson"
    write_json(path, ["v"], [[1]])
    with path.open("ab") as file:
        file.write(
            b'[1]\n{"v": 1\n\xff\n{"v": {"a": 2}}\n\n{"v": "\\ud800"}\n' + b"[" * 10**5 + b"\n"
        )
    from dpsql.privacy.vault.rejected_lines import find_rejected_lines

    table = Table("t", str(path), Unit(), {}, options=Delimited(header=("v",)).options())
    asked = [RequestedColumn("v", "number")]
    values = [b.columns[0] for b in FILES.open(table).read(asked, None) if b.rows]
    assert [each for v in values for each in v.unknown.tolist()] == [False, True, True]
    assert [n for n, _, _ in find_rejected_lines(str(path), Delimited(), "json")] == [2, 3, 4, 8]


def test_files_of_one_glob_have_the_same_columns(tmp_path: Path) -> None:
    for i in range(2):
        table = pa.table({"v": [i], **({"w": [1]} if i else {})})
        path = str(tmp_path / f"{i}.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(DataUnavailable, match="differ in their columns"):
        opened(tmp_path / "*.arrow")


@pytest.mark.parametrize("version", [5, 8])
@pytest.mark.parametrize("width", [1, 7, 110])
def test_a_transport_file_that_is_cut_between_records_is_refused(
    version: Literal[5, 8], width: int, tmp_path: Path
) -> None:
    """Version 8 has the number of rows; of version 5 what is left is seen where it is no row."""
    import pandas as pd
    import pyreadstat

    path = tmp_path / "t.xpt"
    frame = pd.DataFrame({"n": [1.5] * 21, "w": ["x" * width] * 21})
    pyreadstat.write_xport(frame, str(path), file_format_version=version)
    whole = path.read_bytes()
    first = whole.index(b"HEADER RECORD*******OBS") + 80
    asked = [RequestedColumn("n", "number")]
    assert sum(batch.rows for batch in opened(path).read(asked, None)) == 21
    for cut in range(first, len(whole), 80):
        path.write_bytes(whole[:cut])
        rows, rest = divmod(cut - first, 8 + width)
        blank = not whole[cut - rest : cut].strip(b" ")
        if version == 5 and rest < 80 and blank:
            assert sum(batch.rows for batch in opened(path).read(asked, None)) == rows
            continue
        with pytest.raises(DataUnavailable, match="cut off"):
            opened(path)
