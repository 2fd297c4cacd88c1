"""Writers of small tables in formats of files that are read as Arrow, and of hostile ones."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import struct
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pandas as pd
import pyarrow as pa
import pyreadstat
from pyarrow import orc

Rows = Sequence[Sequence[Any]]
Write = Callable[[Path, Sequence[str], Rows], None]
"""Writes rows of some columns to a path."""


def frame(names: Sequence[str], rows: Rows) -> pd.DataFrame:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    found = pd.DataFrame(dict(zip(names, map(list, columns), strict=True)))
    return found.astype({name: float for name in names if _is_numeric(found[name])})


def _is_numeric(values: Any) -> bool:
    return all(v is None or isinstance(v, int | float) for v in values) and len(values) > 0


def write_sheet(
    path: Path, names: Sequence[str], rows: Rows, sheets: Sequence[str] = ("S",)
) -> None:
    """A workbook of texts and numbers; sheets but the first are the same."""
    listed = "".join(
        f'<sheet name="{name}" sheetId="{i + 1}" r:id="r{i + 1}"/>' for i, name in enumerate(sheets)
    )
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    links = "".join(
        f'<Relationship Id="r{i + 1}" Type="{office}/worksheet" Target="worksheets/s.xml"/>'
        for i in range(len(sheets))
    )
    book = f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{listed}</sheets></workbook>'
    body = ""
    for i, row in enumerate([names, *rows]):
        cells = "".join(_cell(each, i + 1, place) for place, each in enumerate(row))
        body += f'<row r="{i + 1}">{cells}</row>'
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{package}/content-types"><Default Extension="xml" '
            'ContentType="application/xml"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
            f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        archive.writestr("xl/workbook.xml", book)
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{package}/relationships">{links}</Relationships>',
        )
        archive.writestr(
            "xl/worksheets/s.xml",
            f'<worksheet xmlns="{main}"><sheetData>{body}</sheetData></worksheet>',
        )


def _cell(value: Any, row: int, place: int) -> str:
    at = f'r="{chr(ord("A") + place)}{row}"'
    if value is None:
        return ""
    if isinstance(value, bool):
        return f'<c {at} t="b"><v>{int(value)}</v></c>'
    if isinstance(value, int | float) and abs(value) < 1e300:
        return f"<c {at}><v>{value!r}</v></c>"
    return f'<c {at} t="inlineStr"><is><t xml:space="preserve">{escape(str(value))}</t></is></c>'


def write_ods(path: Path, names: Sequence[str], rows: Rows) -> None:
    """A sheet of OpenDocument, with texts, numbers, flags and days."""
    of = "urn:oasis:names:tc:opendocument:xmlns"
    spaces = "".join(f' xmlns:{each}="{of}:{each}:1.0"' for each in ("office", "table", "text"))
    body = ""
    for row in [names, *rows]:
        body += f"<table:table-row>{''.join(map(_ods_cell, row))}</table:table-row>"
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document-content{spaces} '
        'office:version="1.2"><office:body><office:spreadsheet><table:table table:name="S">'
        f"{body}</table:table></office:spreadsheet></office:body></office:document-content>"
    )
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", kind)
        archive.writestr("content.xml", text)
        archive.writestr(
            "META-INF/manifest.xml", f'<manifest:manifest xmlns:manifest="{of}:manifest:1.0"/>'
        )


def _ods_cell(value: Any) -> str:
    said = "string"
    if value is None:
        return "<table:table-cell/>"
    if isinstance(value, bool):
        said = f'boolean" office:boolean-value="{str(value).lower()}'
    elif isinstance(value, int | float) and abs(value) < 1e300:
        said = f'float" office:value="{value!r}'
    elif type(value) is dt.date:
        said = f'date" office:date-value="{value.isoformat()}'
    shown = escape(str(value))
    return (
        f'<table:table-cell office:value-type="{said}"><text:p>{shown}</text:p></table:table-cell>'
    )


def write_binary_sheet(path: Path, names: Sequence[str], rows: Rows) -> None:
    """A binary workbook (.xlsb) of one sheet, with texts and numbers."""
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    body = record(0x81, b"") + record(0x94, struct.pack("<4I", 0, len(rows), 0, len(names) - 1))
    body += record(0x91, b"")
    for i, row in enumerate([names, *rows]):
        body += record(0, struct.pack("<I", i) + bytes(21))
        for place, each in enumerate(row):
            at = struct.pack("<II", place, 0)
            if isinstance(each, int | float):
                body += record(5, at + struct.pack("<d", each))
            elif each is not None:
                body += record(6, at + _wide(str(each)))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", f'<Types xmlns="{package}/content-types"/>')
        sheet = record(0x9C, struct.pack("<II", 0, 1) + _wide("r1") + _wide("S"))
        archive.writestr("xl/workbook.bin", sheet + record(0x90, b"") + record(0x9D, b""))
        archive.writestr(
            "xl/_rels/workbook.bin.rels",
            f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
            f'Type="{office}/worksheet" Target="worksheets/sheet1.bin"/></Relationships>',
        )
        archive.writestr("xl/worksheets/sheet1.bin", body + record(0x92, b""))


def record(kind: int, body: bytes) -> bytes:
    """A record of a binary workbook, of fewer than 128 kinds of two bytes, and 16 KiB."""
    head = bytes([kind]) if kind < 0x80 else bytes([kind & 0x7F | 0x80, kind >> 7])
    size = len(body)
    length = bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])
    return head + length + body


def _wide(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")


def write_json(path: Path, names: Sequence[str], rows: Rows) -> None:
    lines = (json.dumps(dict(zip(names, map(_plain, row), strict=True))) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, dt.date | dt.time) else value


def write_sqlite(path: Path, names: Sequence[str], rows: Rows) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE t ({', '.join(names)})")
        places = ", ".join("?" * len(names))
        plain = [[_plain(each) for each in row] for row in rows]
        database.executemany(f"INSERT INTO t VALUES ({places})", plain)


def write_arrow(path: Path, names: Sequence[str], rows: Rows) -> None:
    table = pa.Table.from_pandas(frame(names, rows), preserve_index=False)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, 3)


def write_orc(path: Path, names: Sequence[str], rows: Rows) -> None:
    orc.write_table(pa.Table.from_pandas(frame(names, rows), preserve_index=False), str(path))


def write_spss(path: Path, names: Sequence[str], rows: Rows) -> None:
    pyreadstat.write_sav(frame(names, rows), str(path))


def write_stata(path: Path, names: Sequence[str], rows: Rows) -> None:
    pyreadstat.write_dta(frame(names, rows), str(path))


def write_sas(path: Path, names: Sequence[str], rows: Rows) -> None:
    pyreadstat.write_xport(frame(names, rows), str(path), file_format_version=8)


WRITERS: dict[str, Write] = {
    "sav": write_spss,
    "dta": write_stata,
    "xpt": write_sas,
    "xlsx": write_sheet,
    "ods": write_ods,
    "arrow": write_arrow,
    "orc": write_orc,
    "sqlite": write_sqlite,
    "ndjson": write_json,
}
"""Writers, by the end of the name of a file."""
