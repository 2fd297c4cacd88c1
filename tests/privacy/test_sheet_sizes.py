"""Workbooks with a far cell, or a repeated one: refused before they are held in memory."""

from __future__ import annotations

import base64
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dpsql.catalog.catalog import Table, Unit
from dpsql.errors import DataUnavailable
from dpsql.privacy.vault.data_engine import RequestedColumn, Unreadable
from dpsql.privacy.vault.files.duckdb import FILES
from dpsql.privacy.vault.formats import sheet_sizes
from tests.privacy.test_formats import OLD_WORKBOOK
from tests.support.formats import record, write_binary_sheet, write_ods, write_sheet

NAMES = ["who", "n"]
ROWS = [["a", 1.5], ["b", 2.5]]
MEMBERS = {
    "xlsx": "xl/worksheets/s.xml",
    "xlsb": "xl/worksheets/sheet1.bin",
    "ods": "content.xml",
}
WRITERS: dict[str, Callable[..., None]] = {
    "xlsx": write_sheet,
    "xlsb": write_binary_sheet,
    "ods": write_ods,
}


def edited(path: Path, old: bytes, new: bytes) -> None:
    """Put other bytes into the sheet of a packed workbook."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = MEMBERS[path.suffix[1:]]
    assert old in parts[name]
    parts[name] = parts[name].replace(old, new, 1)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, body in parts.items():
            archive.writestr(each, body)


def far_binary(row: int, column: int) -> bytes:
    return (
        record(0, struct.pack("<I", row) + bytes(21))
        + record(5, struct.pack("<IId", column, 0, 1.0))
        + record(0x92, b"")
    )


CELL = b'<table:table-cell office:value-type="float" office:value="1"'
END = b"</table:table>"
BOMBS: dict[str, tuple[str, bytes, bytes]] = {
    "far cell": ("xlsx", b"</sheetData>", b'<row r="999999"><c r="XFD999999"/></row></sheetData>'),
    "far record": ("xlsb", record(0x92, b""), far_binary(1_000_000, 16_000)),
    "farther record": ("xlsb", record(0x92, b""), far_binary(4_000_000_000, 1)),
    "repeated cell": (
        "ods",
        b"</table:table-row>",
        CELL + b' table:number-columns-repeated="999999999"/></table:table-row>',
    ),
    "repeated row": (
        "ods",
        END,
        b'<table:table-row table:number-rows-repeated="999999999">'
        + CELL
        + b"/></table:table-row>"
        + END,
    ),
    "far below": (
        "ods",
        END,
        b'<table:table-row table:number-rows-repeated="99999999"><table:table-cell/>'
        b"</table:table-row><table:table-row>" + CELL + b"/></table:table-row>" + END,
    ),
    "far beside": (
        "ods",
        END,
        b'<table:table-row><table:table-cell table:number-columns-repeated="99999999"/>'
        + CELL
        + b"/></table:table-row>"
        + END,
    ),
    "text alone": (
        "ods",
        END,
        b'<table:table-row><table:table-cell table:number-columns-repeated="99999999">'
        b"<text:p>x</text:p></table:table-cell></table:table-row>" + END,
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_far_and_repeated_cells_are_refused_before_the_work(name: str, tmp_path: Path) -> None:
    end, old, new = BOMBS[name]
    path = tmp_path / f"t.{end}"
    WRITERS[end](path, NAMES, ROWS)
    sheet_sizes.refuse_large(str(path))
    edited(path, old, new)
    with pytest.raises(Unreadable, match="would take more than"):
        sheet_sizes.refuse_large(str(path))
    with pytest.raises(DataUnavailable, match="a sheet has a cell in row") as refused:
        FILES.open(Table("t", str(path), Unit(), {}))
    assert refused.value.hint


def test_a_sheet_is_found_wherever_the_workbook_says_it_is(tmp_path: Path) -> None:
    path = tmp_path / "t.xlsx"
    write_sheet(path, NAMES, ROWS)
    edited(path, *BOMBS["far cell"][1:])
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in parts.items():
            text = body.replace(b"worksheets/s.xml", b"/xl/Other/s.txt")
            archive.writestr(name.replace("worksheets/s.xml", "other/s.txt"), text)
    with pytest.raises(Unreadable, match="would take more than"):
        sheet_sizes.refuse_large(str(path))


def test_empty_cells_that_are_repeated_to_the_end_are_none(tmp_path: Path) -> None:
    """The usual end of every sheet that LibreOffice writes."""
    path = tmp_path / "t.ods"
    write_ods(path, NAMES, ROWS)
    empty = b'<table:table-cell table:number-columns-repeated="16382"/></table:table-row>'
    last = b'<table:table-row table:number-rows-repeated="1048573">' + empty + END
    edited(path, END, last)
    edited(path, b"</table:table-row>", empty)
    stored = FILES.open(Table("t", str(path), Unit(), {}))
    found = [each for each in stored.read([RequestedColumn("n", "number")], "who") if each.rows]
    assert [each.columns[0].numbers.tolist() for each in found] == [[1.5, 2.5]]


def test_a_binary_workbook_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.xlsb"
    rows = [[f"p{i}" * (i % 50 + 1), float(i)] for i in range(3000)]
    write_binary_sheet(path, NAMES, rows)
    stored = FILES.open(Table("t", str(path), Unit(), {}))
    found = [b for b in stored.read([RequestedColumn("n", "number")], "who") if b.rows]
    assert [n for b in found for n in b.columns[0].numbers.tolist()] == [row[1] for row in rows]


@pytest.mark.parametrize("seed", range(3))
def test_records_are_counted_however_the_file_is_read(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = random.Random(seed)
    reached: list[tuple[int, int]] = []
    monkeypatch.setattr(sheet_sizes, "PIECE", chosen.randint(1, 60))
    monkeypatch.setattr(sheet_sizes.Size, "reach", lambda _, *at: reached.append(at))
    cells = [(chosen.randrange(1 << 20), chosen.randrange(1 << 14)) for _ in range(9)]
    body = b"".join(
        far_binary(*cell)[: -len(record(0x92, b""))] + record(0x93, bytes(chosen.randrange(900)))
        for cell in cells
    )
    path = tmp_path / "t.xlsb"
    write_binary_sheet(path, NAMES, [])
    edited(path, record(0x92, b""), body + record(0x92, bytes(20)))
    sheet_sizes.refuse_large(str(path))
    assert {(row + 1, column + 1) for row, column in cells} <= {*reached}


def test_old_workbooks_are_counted_record_by_record(tmp_path: Path) -> None:
    path = tmp_path / "t.xls"
    whole = zlib.decompress(base64.b85decode(OLD_WORKBOOK))
    path.write_bytes(whole)
    sheet_sizes.refuse_large(str(path))
    number = struct.pack("<HH", 0x027E, 10)
    at = whole.find(number)
    assert at > 0, "a number"
    far = whole[: at + 4] + struct.pack("<HH", 65_000, 65_000) + whole[at + 8 :]
    path.write_bytes(far)
    with pytest.raises(DataUnavailable, match=r"row 65,001, and one in column 65,001"):
        FILES.open(Table("t", str(path), Unit(), {}))
    for cut in (600, 900, len(whole) - 300):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataUnavailable):
            FILES.open(Table("t", str(path), Unit(), {}))
