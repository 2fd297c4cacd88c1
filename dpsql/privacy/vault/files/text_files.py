"""Bytes of files of text: uncompressed, and in UTF-8 whatever they are stored in.

Guarantee: the bytes of a line follow from those of this line alone. A character of one byte is
replaced by that of a table, the same steps for every byte; what is none becomes a byte that is not
UTF-8, so that its line is no row. Of UTF-16 every pair of bytes is one, also of what is no text.
"""

from __future__ import annotations

import codecs
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpsql.catalog.delimited import OF_BYTES, code_page
from dpsql.privacy.vault.data_engine import DamagedError, Unreadable

NOT_TEXT = b"\xff"
"""A byte that is in no text in UTF-8."""
LONGEST = 1 << 24
"""Most bytes of a line that is a row."""
_FAULTS = (EOFError, ValueError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
"""Faults that readers of compressed files raise, beside an OSError without a number."""
CHUNK = 1 << 18
"""Bytes that are put in another encoding at once."""
NAMED = "give the file its ending"
MAGIC = {
    b"PK\x03\x04": (
        "a zip archive, or a workbook of Excel or OpenOffice",
        f"{NAMED}, .xlsx, .ods or .csv.zip",
    ),
    b"\xd0\xcf\x11\xe0": (
        "a workbook of old Excel, or one with a password",
        f"{NAMED}, .xls; save one with a password without it",
    ),
    b"\x1f\x8b": ("compressed by gzip", f"{NAMED}, .csv.gz"),
    b"BZh91AY&SY": ("compressed by bzip2", f"{NAMED}, .csv.bz2"),
    b"\xfd7zXZ": ("compressed by xz", f"{NAMED}, .csv.xz"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", f"{NAMED}, .csv.zst"),
    b"PAR1\x15": ("Parquet", f"{NAMED}, .parquet"),
    b"SQLite format 3": ("a database of SQLite", f"{NAMED}, .sqlite"),
    b"$FL2": ("a file of SPSS", f"{NAMED}, .sav"),
    b"$FL3": ("a file of SPSS", f"{NAMED}, .sav"),
    b"<stata_dta>": ("a file of Stata", f"{NAMED}, .dta"),
    b"\x00" * 12 + b"\xc2\xea\x81\x60": ("a file of SAS", f"{NAMED}, .sas7bdat"),
    b"HEADER RECORD*******": ("a transport file of SAS", f"{NAMED}, .xpt"),
    b"\x89HDF": ("a file of HDF", "export its table as CSV"),
    b"ARROW1\0\0": ("a file of Arrow", f"{NAMED}, .arrow"),
    b"%PDF": ("a document", "ask for the table as CSV"),
    b"<!DOCTYPE": ("a page of HTML", "the address leads to a page: get the file itself"),
    b"<html": ("a page of HTML", "the address leads to a page: get the file itself"),
    **dict.fromkeys(
        (b'{"', b"{\n", b"[{", b"[\n"), ("JSON", f"{NAMED}, .ndjson, if each line is an object")
    ),
}
"""First bytes of files that are no text of rows, what they are, and what to do."""
MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class Utf8Reader(io.RawIOBase):
    """The bytes of a file in UTF-8. Whatever a damaged file makes of its reader is an OSError."""

    def __init__(self, file: Any, encoding: str) -> None:
        self._file, self._turn, self._rest = file, _turner(encoding), b""

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, into: Any) -> int:
        """Fill a buffer, or less of it; 0 is the end."""
        while not self._rest:
            try:
                found = self._file.read(CHUNK)
            except (*_FAULTS, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # of the disk
                what = "what is compressed in it was cut off, or is damaged"
                raise DamagedError(what) from error
            self._rest = self._turn(found)
            if not found:
                break
        count = min(len(into), len(self._rest))
        into[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    def close(self) -> None:
        """Close the file as well."""
        self._file.close()
        super().close()


def open_text(path: str, encoding: str = "utf-8") -> io.BufferedIOBase:
    """Open a file as bytes in UTF-8. Raises: OSError, Unreadable."""
    found = _unpacked(path)
    if encoding == "utf-8" and isinstance(found, io.BufferedReader):
        return found
    return io.BufferedReader(Utf8Reader(found, encoding), CHUNK)


def refuse_foreign(path: str, encoding: str) -> None:
    """Refuse a file that begins as no text of rows does, by its first line.

    Only where this is a header, or a line before it, which are public.
    Raises: OSError, Unreadable.
    """
    with open_text(path) as file:
        start = file.readline(64)  # what comes after it may be of a row
    if not start:
        raise Unreadable("it is empty: 0 bytes", "give a file with a header and rows")
    for magic, (what, hint) in MAGIC.items():
        if start.removeprefix(codecs.BOM_UTF8).startswith(magic):
            raise Unreadable(f"it is {what}, by its first bytes, and no lines of text", hint)
    is_wide = start[:2] in MARKS or b"\0" in start
    if is_wide and not encoding.startswith("utf-16"):
        hint = 'if it is text in UTF-16: source = { file = "x.csv", encoding = "utf-16" }'
        what = f"line 1, column {start.find(0) + 1} is a NUL byte, as in UTF-16"
        what = "it is UTF-16, by its first bytes" if start[:2] in MARKS else what
        raise Unreadable(f"{what}, and it is declared {encoding}", hint)


def _unpacked(path: str) -> Any:
    """Open what a file holds, by the end of its name."""
    ending = Path(path).suffix.lower()
    opened = OPENERS.get(ending)
    if opened is not None and ending in PACKED:
        with open(path, "rb") as file:
            start = file.read(8)
            if start and not start.startswith(PACKED[ending]):
                problem = f"it is not compressed as {ending} says, by its first bytes"
                raise Unreadable(problem, f"{NAMED} of what it is, as .csv")
    return Path(path).open("rb") if opened is None else opened(path)


def _open_gzip(path: str) -> Any:
    import gzip

    return gzip.open(path)


def _open_bz2(path: str) -> Any:
    import bz2

    return bz2.open(path)


def _open_zip(path: str) -> Any:
    try:
        archive = zipfile.ZipFile(path)
        inside = [each for each in archive.infolist() if not each.is_dir()]
        inside = [each for each in inside if not each.filename.startswith("__MACOSX/")]
        if len(inside) != 1:
            raise Unreadable(f"the archive holds {len(inside)} files", "give it one file alone")
        if inside[0].flag_bits & 1:
            raise Unreadable("the archive is encrypted", "unpack it, and declare the file in it")
        return archive.open(inside[0])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError):
        raise Unreadable("it is no zip archive", "pack it again") from None


def _open_zstd(path: str) -> Any:
    try:
        from pyarrow import input_stream
    except ImportError:
        hint = "pip install 'dpsql[arrow]', or compress by gzip, bzip2 or xz"
        problem = "files compressed by zstd are read by pyarrow, which is missing"
        raise Unreadable(problem, hint) from None
    return input_stream(path, compression="zstd")


OPENERS: dict[str, Callable[[str], Any]] = {
    ".gz": _open_gzip,
    ".bz2": _open_bz2,
    ".xz": lzma.open,
    ".zst": _open_zstd,
    ".zip": _open_zip,
}
"""Functions that open a compressed file, by the end of its name."""


PACKED: dict[str, tuple[bytes, ...]] = {
    ".gz": (b"\x1f\x8b",),
    ".bz2": (b"BZh",),
    ".xz": (b"\xfd7zXZ",),
    ".zst": (b"\x28\xb5\x2f\xfd", *(bytes([n]) + b"\x2a\x4d\x18" for n in range(0x50, 0x60))),
}
"""First bytes of compressed files, by the end of the name; of zstd there may be other frames."""
NONE = "dpsql.none"
"""The name by which codecs know what bytes become that are no character."""
codecs.register_error(NONE, lambda error: ("\udcff", getattr(error, "end", 0)))


class LineDecoder:
    """Lines in an encoding of several bytes a character, each put in UTF-8 by itself.

    What is no character becomes a byte that no UTF-8 has. Of a line that is too long to be a row
    no more is held than shows that.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding, self._rest = encoding, b""

    def turn(self, found: bytes) -> bytes:
        """Return the lines that have ended, and at the end what is left."""
        *lines, self._rest = (self._rest + found).split(b"\n")
        ended = b"".join(self._turned(line) + b"\n" for line in lines)
        if found and len(self._rest) <= LONGEST:
            return ended
        left, self._rest = self._rest, b""
        return ended + (left if len(left) > LONGEST else self._turned(left))

    def _turned(self, line: bytes) -> bytes:
        return line.decode(self._encoding, NONE).encode(errors="surrogateescape")


def _turner(encoding: str) -> Callable[[bytes], bytes]:
    """Return a function that puts bytes in UTF-8, a few at a time; the last are none."""
    table = code_page(encoding)
    if encoding == "utf-8":
        return bytes
    if table is not None:
        page = table

        def turn(found: bytes) -> bytes:
            return codecs.charmap_decode(found, "strict", page)[0].encode(errors="surrogateescape")

        return turn
    if encoding in OF_BYTES:
        return LineDecoder(encoding).turn
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")

    def turn_wide(found: bytes) -> bytes:
        text = decoder.decode(found)
        if found or not decoder.getstate()[0]:
            return text.encode(errors="surrogatepass")
        decoder.reset()
        return NOT_TEXT

    return turn_wide
