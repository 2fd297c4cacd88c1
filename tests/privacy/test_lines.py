"""Lines that are cut together, in DuckDB, are the rows that each line is by itself."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import duckdb
import pytest

from dpsql.privacy.vault.files import lines
from dpsql.privacy.vault.files.lines import FIELDS_SQL, read_rows, split_line
from tests.support.effort import effort

PIECES = (
    *(b"a", b"bc", b"7", b" ", "é".encode(), "\u2028".encode(), b"\x1c", b"\xff", b"\x00"),
    *(b",", b",", b",", b"\t", b'"', b'""', b'"x,y"', b"\r", b"\n", b"\n", b"\r\n"),
    *(b'"a",', b',"bc"', b'"x"\t', b'\t"y"', b'"",', b'\n"7"', b'"8"\n', b'"9"\r\n'),
)


def by_line(block: bytes, delimiter: str, columns: int) -> list[list[str]]:
    """What the module says of itself: every line decoded and split by itself."""
    found = []
    for raw in block.split(b"\n"):
        try:
            line = raw.removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            continue
        row = split_line(line, delimiter, columns)
        if row is not None:
            found.append(row)
    return found


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
def test_rows_are_those_of_each_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, path, seen = random.Random(name), tmp_path / name, 0
    delimiter = "\t" if ".tsv" in name else ","
    database = duckdb.connect()
    for _ in range(effort(120)):
        columns, head = rng.randint(1, 4), b"h\n"
        body = b"".join(rng.choices(PIECES, k=rng.randint(0, 60)))
        path.write_bytes(gzip.compress(head + body) if name.endswith(".gz") else head + body)
        monkeypatch.setattr(lines, "BLOCK", rng.choice((1, 7, 64, 1 << 22)))
        found: list[list[str]] = []
        for block in read_rows(str(path), columns):
            database.register("block", block)
            sql = f"SELECT {FIELDS_SQL} FROM block"
            found += [fields for (fields,) in database.execute(sql).fetchall()]
        ended = body.removesuffix(b"\n") if body.endswith(b"\n") else body
        expected = by_line(ended, delimiter, columns) if body else []
        assert found == expected, (body, columns)
        seen += len(found)
    assert seen > effort(50)


def test_no_line_is_cut_by_itself_whatever_its_quotes_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(lines, "split_line")
    text = b'1,2\n"3",4\n5\n6,"7"\r\n8\r,9\n\x00,1\n"a""b",2\n3"",4\n"",""\n"a,b",c'
    text += b'\n\xff,"\n\x00"x,1\n"a",5"\n"a"b,6\n"a,7'
    found = lines.split_lines(text, ",", 2)["line"]
    rows = ["1,2", "3,4", "6,7", "\0,1", 'a"b,2', '3"",4', ",", "a;b,c", '\0"x,1', 'a,5"']
    assert found.tolist() == [each.replace(",", "\r").replace(";", ",") for each in rows]
