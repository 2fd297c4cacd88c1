"""Every format of files and every damage: the true rows or one typed refusal, free of charge.

Lines of plain text are rows by themselves, so that a part of those has a part of the rows; of all
other formats no part is read as the whole. No damage makes a text of a file part of what is told,
and none ends in a failure without a reason.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.dbapi.checking import chosen_tables, examine
from dpsql.dbapi.drafting import draft_catalog
from dpsql.errors import Error
from tests.support.effort import effort, first_seed
from tests.support.formats import WRITERS, write_binary_sheet

SECRET = "avoca"
NAMES = ["who", "k", "n"]
ROWS: list[list[Any]] = [
    [float(i // 3), SECRET if i % 3 else "b", float(i % 10)] for i in range(60)
]
CSV = "who,k,n\n" + "".join(f"{who:.0f},{k},{n:.0f}\n" for who, k, n in ROWS)


def table() -> pa.Table:
    return pa.table({name: [row[i] for row in ROWS] for i, name in enumerate(NAMES)})


def zipped(body: bytes, flags: int = 0) -> bytes:
    """An archive of one file; bit 1 of its flags says that it is encrypted."""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        archive.writestr("t.csv", body)
    return bytes(found.getvalue()) if not flags else with_flags(found.getvalue())


def with_flags(archive: bytes) -> bytes:
    """Mark all that a zip archive holds as encrypted."""
    found = bytearray(archive)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = found.find(mark)
        while at >= 0:
            found[at + place] |= 1
            at = found.find(mark, at + 4)
    return bytes(found)


def database(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.register("r", table())
        connection.execute("CREATE TABLE t AS FROM r")


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "csv": bytes,
    "tsv": lambda body: body.replace(b",", b"\t"),
    "csv.gz": gzip.compress,
    "csv.bz2": bz2.compress,
    "csv.xz": lzma.compress,
    "csv.zst": lambda body: pa.compress(body, codec="zstd", asbytes=True),
    "csv.zip": zipped,
}
OTHERS: dict[str, Callable[[Path], None]] = {
    "parquet": lambda path: pq.write_table(table(), path),
    "duckdb": database,
    "xlsb": lambda path: write_binary_sheet(path, NAMES, ROWS),
}
ENDS = [*PACKED, *WRITERS, *OTHERS]
LINES = frozenset({"csv", "tsv", "ndjson"})
"""Formats of which each line is read by itself."""
_written: dict[str, bytes] = {}


def whole(end: str, folder: Path) -> bytes:
    """The bytes of a sound file in a format."""
    if end not in _written:
        if end in PACKED:
            _written[end] = PACKED[end](CSV.encode())
        else:
            path = folder / f"sound.{end}"
            path.unlink(missing_ok=True)
            (OTHERS[end] if end in OTHERS else lambda p: WRITERS[end](p, NAMES, ROWS))(path)
            _written[end] = path.read_bytes()
    return _written[end]


Damage = Callable[[bytes, random.Random], bytes]
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504) + "EncryptedPackage".encode("utf-16-le")


def flipped(body: bytes, chosen: random.Random) -> bytes:
    found, start = bytearray(body), chosen.randrange(len(body))
    for i in range(start, min(start + chosen.choice([1, 8, 99]), len(body))):
        found[i] ^= chosen.choice([0xFF, 0x10, 1])
    return bytes(found)


DAMAGES: dict[str, Damage] = {
    "nothing at all": lambda body, _: b"",
    "one byte": lambda body, _: body[:1],
    "zeros": lambda body, _: bytes(len(body)),
    "one half": lambda body, _: body[: len(body) // 2],
    "all but the last bytes": lambda body, _: body[:-5],
    "all but the first bytes": lambda body, _: body[5:],
    "a hole": lambda body, _: body[: len(body) // 3] + body[len(body) // 2 :],
    "zeros in the middle": lambda body, _: (
        body[: len(body) // 3] + bytes(len(body) // 3) + body[len(body) * 2 // 3 :]
    ),
    "twice": lambda body, _: body + body,
    "more behind": lambda body, chosen: body + chosen.randbytes(99),
    "encrypted": lambda body, chosen: chosen.randbytes(len(body)),
    "password-protected as Office does": lambda body, _: OLE + bytes(4096),
    "password-protected as zip does": lambda body, _: (
        with_flags(body) if body[:2] == b"PK" else zipped(b"x", 1)
    ),
    "encrypted as Parquet is": lambda body, _: b"PARE" + body[4:-4] + b"PARE",
    "a page": lambda body, _: f"<!DOCTYPE html><p>{SECRET}</p>".encode(),
    "UTF-16": lambda body, _: CSV.encode("utf-16"),
    "bytes flipped": flipped,
}
CATALOG = """
[budget]
epsilon = 100
[table.t]
source = "t.{}"
privacy_unit = "row"
[table.t.column]
n = {{ type = "integer", domain = [0, 9] }}
"""


def told(folder: Path, end: str) -> tuple[list[str], float | None]:
    """Go the way of a curator and an analyst: the faults of what is told, and the count if any."""
    faults, count = [], None

    def refusal(where: str, error: Error) -> None:
        text = str(error)
        if error.code not in ("E_DATA", "E_POLICY") or not error.hint:
            faults.append(f"{where}: {text}")
        if SECRET in text:
            faults.append(f"{where} tells a value: {text}")

    try:
        draft_catalog(folder / f"t.{end}", folder=folder)
    except Error as error:
        refusal("init", error)
    (folder / "c.toml").write_text(CATALOG.format(end))
    (found,) = examine(chosen_tables(str(folder / "c.toml"), None), {})
    if isinstance(found, Error):
        refusal("check", found)
    with dpsql.connect(folder / "c.toml", epsilon=50) as connection:
        try:
            ((count,),) = connection.execute("SELECT COUNT(*) FROM t").fetchall()
        except Error as error:
            refusal("statement", error)
            if connection.budget.entries:
                faults.append("it is charged")
    return faults, count


def count_faults(end: str, count: float | None) -> list[str]:
    """Say where a file that is more than lines is read in part; twice packed text is read twice."""
    true = [len(ROWS), 2 * len(ROWS) + 1] if end in PACKED else [len(ROWS)]
    is_part = end not in LINES and count is not None and round(count) not in true
    return [f"{count} rows are counted"] if is_part else []


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("end", ENDS)
def test_every_damage_of_every_format_is_refused_or_read(end: str, tmp_path: Path) -> None:
    chosen, faults = random.Random(f"{first_seed(1)} {end}"), []
    asked = chosen.sample([*DAMAGES], min(len(DAMAGES), effort(4)))
    for number, name in enumerate(asked):
        folder = tmp_path / str(number)
        folder.mkdir()
        body = DAMAGES[name](whole(end, tmp_path), chosen)
        (folder / f"t.{end}").write_bytes(body)
        found, count = told(folder, end)
        faults += [f"{name}: {each}" for each in [*found, *count_faults(end, count)]]
    assert not faults


def test_a_part_of_the_rows_is_found(tmp_path: Path) -> None:
    pq.write_table(table()[1:], tmp_path / "t.parquet")
    faults, count = told(tmp_path, "parquet")
    assert not faults
    assert count_faults("parquet", count)


@pytest.mark.parametrize("end", ENDS)
def test_a_sound_file_of_every_format_is_read(end: str, tmp_path: Path) -> None:
    (tmp_path / f"t.{end}").write_bytes(whole(end, tmp_path))
    faults, count = told(tmp_path, end)
    assert (faults, round(count or 0)) == ([], len(ROWS))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for number, end in enumerate(ENDS):
        folder = tmp_path / str(number)
        (folder / f"t.{end}").mkdir(parents=True)
        faults, count = told(folder, end)
        assert (faults, count) == ([], None), end


LONG = 1 << 26


def test_one_line_without_an_end_is_no_row(tmp_path: Path) -> None:
    """The file is sparse: a line of NUL bytes, with which no memory is filled."""
    (tmp_path / "t.csv").write_bytes(b"who,k,n\n1,b,2\n")
    os.truncate(tmp_path / "t.csv", LONG)
    with pytest.raises(Error) as caught:
        draft_catalog(tmp_path / "t.csv", folder=tmp_path)
    assert caught.value.code == "E_DATA"
