"""Every cause for which a file of data, or a line of it, is refused: one message, with its place.

Whoever drafts, checks or opens a catalog is told the same; a line that is no row is told by check.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zipfile
from pathlib import Path

import pytest

from dpsql.dbapi.checking import chosen_tables, examine
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import Error
from dpsql.privacy.doors.check_figures import Figures
from dpsql.ui.check import figures_lines

GOOD = b"id,age\n1,30\n2,40\n"


def packed(**files: bytes) -> bytes:
    """A zip archive of files."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return body.getvalue()


CUT_OFF = "what is compressed in it was cut off"
FILES: dict[str, tuple[str, bytes, str]] = {
    "nothing": ("csv", b"", "it is empty: 0 bytes"),
    "a blank header": ("csv", b"\n\n", "line 1 is blank"),
    "a NUL byte": ("csv", b"id,a\0ge\n1,2\n", "line 1, column 5 is a NUL byte"),
    "an open quote": ("csv", b'id,"age\n1,30\n', "line 1, column 4 has a quote that is not closed"),
    "returns alone": ("csv", b"id,age\r1,30\r", "line 1, column 7 has a carriage return"),
    "a long header": ("csv", b"x" * (1 << 20) + b",y\n1,2\n", "line 1 is longer than 1 MiB"),
    "a workbook": ("csv", b"PK\x03\x04aa", "it is a zip archive, or a workbook"),
    "Parquet": ("csv", b"PAR1\x15..", "it is Parquet"),
    "a page": ("csv", b"<!DOCTYPE html>\n", "it is a page of HTML"),
    "gzip by name": ("csv.gz", GOOD, "it is not compressed as .gz says"),
    "bzip2 by name": ("csv.bz2", GOOD, "it is not compressed as .bz2 says"),
    "xz by name": ("csv.xz", GOOD, "it is not compressed as .xz says"),
    "zstd by name": ("csv.zst", GOOD, "it is not compressed as .zst says"),
    "a part of gzip": ("csv.gz", gzip.compress(GOOD * 99)[:-9], CUT_OFF),
    "a part of bzip2": ("csv.bz2", bz2.compress(GOOD)[:-5], CUT_OFF),
    "a part of xz": ("csv.xz", lzma.compress(GOOD)[:-5], CUT_OFF),
    "damaged zstd": ("csv.zst", b"\x28\xb5\x2f\xfdabc", CUT_OFF),
    "two files": ("csv.zip", packed(a=GOOD, b=GOOD), "the archive holds 2 files"),
    "no file": ("csv.zip", packed(), "the archive holds 0 files"),
    "a part of zip": ("csv.zip", packed(a=GOOD)[:-30], "it is no zip archive"),
    "no Parquet": ("parquet", b"PAR1xxxx", "not a readable parquet file"),
    "no SPSS": ("sav", b"$FL2abc", "it is no .sav file, damaged, encrypted"),
    "no Stata": ("dta", b"abc", "it is no .dta file, damaged, encrypted"),
    "no SAS": ("sas7bdat", b"abc", "it is no .sas7bdat file, damaged, encrypted"),
    "no transport file": ("xpt", b"abc", "it is no .xpt file, damaged"),
    "no workbook": ("xlsx", b"PK\x03\x04", "it is no workbook, or a damaged one"),
    "no Arrow": ("arrow", b"ARROW1\0\0..", "it is neither a file nor a stream of Arrow"),
    "no ORC": ("orc", b"ORC", "it is no ORC file"),
    "no database": ("sqlite", b"SQLite format 3\0abc", "it is no SQLite database"),
}
"""Files that are refused: the end of their name, their bytes, and what is told."""
LINES: dict[str, tuple[str, bytes, str]] = {
    "few fields": (
        "csv",
        b"3\n",
        "another number of fields than the header, first in line 4, column 2,",
    ),
    "many fields": ("csv", b"3,4\n5,6,7\n", "than the header, first in line 5, column 4,"),
    "many, in quotes": ("csv", b'3,"a,b",c\n', "than the header, first in line 4, column 8,"),
    "an open quote": ("csv", b'3,"x\n', "a quote that is not closed, first in line 4, column 3,"),
    "a return": ("csv", b"3,4\r5,6\n", "a carriage return within it, first in line 4, column 4,"),
    "other bytes": ("csv", b"3,J\xf6rg\n", "not of its encoding, first in line 4, column 4,"),
    "no object": (
        "ndjson",
        b'{"id": 1, "age": 3}\n{"id":\n',
        "no object of JSON, first in line 2, column 7,",
    ),
    "a list": (
        "ndjson",
        b'{"id": 1, "age": 3}\n[1]\n',
        "no object of JSON, first in line 2, column 1,",
    ),
}
"""Lines that are no rows, after a header and two rows in CSV."""
CATALOG = """
[budget]
epsilon = 1
[table.t]
source = "{}"
privacy_unit = "row"
[table.t.column]
age = {{ type = "integer", domain = [0, 99] }}
"""


def checked(folder: Path, file: str) -> str:
    """The report of check on a file, as text."""
    (folder / "c.toml").write_text(CATALOG.format(file))
    (found,) = examine(chosen_tables(str(folder / "c.toml"), None), {})
    assert isinstance(found, Figures | Error)
    return str(found) if isinstance(found, Error) else "\n".join(figures_lines(found, False))


@pytest.mark.parametrize("cause", FILES)
def test_a_file_is_refused_by_its_cause(cause: str, tmp_path: Path) -> None:
    end, body, told = FILES[cause]
    (tmp_path / f"t.{end}").write_bytes(body)
    with pytest.raises(Error) as caught:
        draft_catalog(tmp_path / f"t.{end}")
    assert told in caught.value.message
    assert caught.value.hint
    assert told in checked(tmp_path, f"t.{end}")


@pytest.mark.parametrize("cause", LINES)
def test_a_line_that_is_no_row_is_told_with_its_place(cause: str, tmp_path: Path) -> None:
    end, body, told = LINES[cause]
    (tmp_path / f"t.{end}").write_bytes((GOOD if end == "csv" else b"") + body)
    draft_catalog(tmp_path / f"t.{end}")
    (found,) = (each for each in checked(tmp_path, f"t.{end}").split("\n") if "first in" in each)
    assert told in found
    assert re.search(rf"of t\.{end}: \w", found)


@pytest.mark.parametrize(
    ("ends", "told"),
    [("\n\n\n", "LF"), ("\r\n\r\n\r\n", "CR LF"), ("\r\n\n\r\n", "CR LF, and some in LF")],
)
def test_a_draft_says_how_lines_end(ends: str, told: str, tmp_path: Path) -> None:
    marks = re.findall("\r?\n", ends)
    text = "".join(line + end for line, end in zip(("id,age", "1,30", "2,40"), marks, strict=True))
    (tmp_path / "t.csv").write_bytes(text.encode())
    assert f"in utf-8, lines that end in {told}.\n" in draft_catalog(tmp_path / "t.csv")
    first = "LF" if marks[0] == "\n" else "CR LF"
    assert f"lines that end in {first}.\n" in draft_catalog(tmp_path / "t.csv", blind=True)
