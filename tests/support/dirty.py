"""A folder of files as people write and break them, each with the truth about its rows."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import random
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from tests.support.formats import WRITERS, write_sheet

ROWS = 30
WARDS = ("Nord", "Süd", "West")
NAMES = ("nr", "ward", "day", "cost")


@dataclass(frozen=True)
class Row:
    nr: int
    ward: str
    day: dt.date
    cost: float | None


def rows_of(seed: int, count: int = ROWS) -> list[Row]:
    chosen = random.Random(seed)
    first = dt.date(2024, 1, 13)
    return [
        Row(i, chosen.choice(WARDS), first + dt.timedelta(i * 11), chosen.randrange(1, 60000) / 4)
        for i in range(count)
    ]


@dataclass(frozen=True)
class Form:
    """The form in which a text of rows is written."""

    cut: str = ","
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"
    dates: str = "%Y-%m-%d"
    end: str = "\n"
    mark: bytes = b""
    before: str = "{}"
    quoted: bool = False
    above: tuple[str, ...] = ()
    names: tuple[str, ...] = NAMES
    last: str = "\n"

    def number(self, value: float | None) -> str:
        if value is None:
            return ""
        text = f"{value:,.2f}".replace(",", "T").replace(".", "D")
        return self.before.format(text.replace("T", self.thousands).replace("D", self.decimal))

    def line(self, fields: Sequence[str]) -> str:
        def one(field: str) -> str:
            is_quoted = self.quoted or self.cut in field or '"' in field
            return '"' + field.replace('"', '""') + '"' if is_quoted else field

        return self.cut.join(map(one, fields))

    def lines(self, rows: Sequence[Row]) -> list[str]:
        header = [self.line(self.names)] if self.names else []
        return [
            *self.above,
            *header,
            *(
                self.line((str(r.nr), r.ward, r.day.strftime(self.dates), self.number(r.cost)))
                for r in rows
            ),
        ]

    def write(self, rows: Sequence[Row]) -> bytes:
        text = self.end.join(self.lines(rows)) + (self.end if self.last == "\n" else self.last)
        return self.mark + text.encode(self.encoding)


@dataclass(frozen=True)
class Dirty:
    """A file: the end of its name, its bytes, and the rows that it says; None where it says none.

    ``lost`` are rows that cannot be read by any rule of single lines, ``more`` lines that are rows
    by such a rule and hold other things. Costs and wards are told right unless they are not named,
    or hold what is not declared.
    """

    name: str
    end: str
    body: bytes
    rows: Sequence[Row] | None
    lost: int = 0
    more: int = 0
    costs: bool = True
    wards: bool = True


GERMAN = Form(cut=";", decimal=",", thousands=".", dates="%d.%m.%Y")


def dirty_files(seed: int = 0) -> Iterator[Dirty]:
    """Every kind, each with other rows."""
    for i, make in enumerate(_kinds()):
        yield make(rows_of(seed + i))


UNNAMED = {"costs": False, "wards": False}
Make = Callable[[list[Row]], Dirty]


def _kinds() -> Iterator[Make]:
    yield from _forms()
    yield from _lines()
    yield from _packed()
    yield from _books()
    yield from _others()


def _forms() -> Iterator[Make]:
    def formed(name: str, form: Form, end: str = "csv", **facts: bool) -> Make:
        return lambda rows: Dirty(name, end, form.write(rows), rows, **facts)

    yield formed("plain", Form())
    cuts = {",": ".", ";": ",", "\t": ",", "|": "."}
    for (cut, decimal), encoding in product(cuts.items(), ("utf-8", "cp1252", "utf-16")):
        form = Form(cut=cut, decimal=decimal, encoding=encoding)
        yield formed(f"cut by {cut!r} in {encoding}", form)
    for decimal, thousands in ((".", ","), (",", "."), (",", "\u00a0"), (".", "'"), (",", " ")):
        form = Form(cut=";", decimal=decimal, thousands=thousands)
        yield formed(f"numbers 1{thousands}234{decimal}5", form)
    for dates in ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%y", "%Y%m%d", "%Y.%m.%d"):
        yield formed(f"days as {dates}", Form(dates=dates))
        yield formed(f"days as {dates}, semicolons, cp1252", replace(GERMAN, dates=dates))
    for before in ("{} €", "€{}", "$ {}", "CHF {}"):
        yield formed(f"currency {before}", replace(GERMAN, before=before))
    yield formed("percent", replace(GERMAN, before="{} %"))
    yield formed("marked utf-8", Form(mark=b"\xef\xbb\xbf"))
    yield formed("marked utf-8, semicolons", replace(GERMAN, mark=b"\xef\xbb\xbf"))
    yield formed("returns and newlines", Form(end="\r\n"))
    yield formed("returns and newlines, quoted", replace(GERMAN, end="\r\n", quoted=True))
    yield formed("no newline at the end", Form(last=""))
    yield formed("titles above", Form(above=("Report of the ward", "", "printed 2024")))
    yield formed("titles above, semicolons", replace(GERMAN, above=("Report;;;", "")))
    yield formed("no header", Form(names=()), costs=False, wards=False)
    yield formed("a name twice", Form(names=("nr", "ward", "ward", "cost")))
    yield formed("a name of nothing", Form(names=("", "ward", "day", "cost")))
    yield formed("cp850", Form(encoding="cp850"), wards=False)
    yield formed("latin-1 with tabs in .txt", Form(cut="\t", encoding="latin-1"), "txt")
    yield formed("utf-16 without a mark", Form(encoding="utf-16-le"))
    yield formed("utf-7", Form(encoding="utf-7"), wards=False)
    yield lambda rows: Dirty("ebcdic", "csv", Form(encoding="cp037").write(rows), None)


def _lines() -> Iterator[Make]:
    def edited(
        name: str, edit: Callable[[list[str]], list[str]], lost: int = 0, **facts: Any
    ) -> Make:
        form = Form()

        def make(rows: list[Row]) -> Dirty:
            lines = edit(form.lines(rows))
            body = ("\n".join(lines) + "\n").encode(form.encoding, "surrogateescape")
            return Dirty(name, "csv", body, None if lost == ROWS else rows, lost, **facts)

        return make

    yield edited("a newline within quotes", lambda x: [*x[:5], _quoted(x[5], "\n"), *x[6:]], 1)
    yield edited("a return within quotes", lambda x: [*x[:5], _quoted(x[5], "\r"), *x[6:]], 1)
    yield edited(
        "a quote within a field",
        lambda x: [*x[:5], x[5].replace(",", ',12" ', 1), *x[6:]],
        wards=False,
    )
    yield edited("an open quote", lambda x: [*x[:5], x[5].replace(",", ',"', 1), *x[6:]], 1)
    yield edited("delimiters at the ends", lambda x: [f"{each}," for each in x])
    yield edited("delimiters at the ends of rows", lambda x: [x[0], *(f"{e}," for e in x[1:])])
    yield edited("a short line", lambda x: [*x[:4], x[4].rpartition(",")[0], *x[5:]], 1)
    yield edited("a long line", lambda x: [*x[:4], x[4] + ",more", *x[5:]], 1)
    yield edited("blank lines", lambda x: [*x[:4], "", "", *x[4:], ""])
    yield edited("a total below", lambda x: [*x, f"Total: {ROWS}"])
    yield edited("mixed line ends", lambda x: [f"{e}\r" if i % 2 else e for i, e in enumerate(x)])
    yield edited("returns alone", lambda x: ["\r".join(x)], ROWS)
    yield edited("a NUL", lambda x: [*x[:4], x[4].replace("-", "\0", 1), *x[5:]])
    yield edited("bytes of another encoding", lambda x: [*x[:4], f"{x[4]}\udcff", *x[5:]], 1)
    yield edited("a line of 20 MiB", lambda x: [*x[:4], f"9,{'x' * (20 << 20)},,", *x[4:]])
    for word in ("NA", "NULL", ".", "-99", "n/a", "-"):
        yield _missing(word)
    yield edited("header twice", lambda x: [x[0], x[0], *x[1:]])
    yield edited(
        "two headers", lambda x: ["number,of,first,euros", *x], more=1, costs=False, wards=False
    )


def _quoted(line: str, inside: str) -> str:
    nr, ward, rest = line.split(",", 2)
    return f'{nr},"{ward}{inside}x",{rest}'


def _missing(word: str) -> Make:
    def make(rows: list[Row]) -> Dirty:
        form = Form()
        lost = [replace(row, cost=None) if row.nr % 7 == 3 else row for row in rows]
        lines = [f"{x}{word}" if x.endswith(",") else x for x in form.lines(lost)]
        body = ("\n".join(lines) + "\n").encode()
        return Dirty(f"{word} for what is missing", "csv", body, lost)

    return make


def _packed() -> Iterator[Make]:
    def packed(name: str, end: str, pack: Callable[[bytes], bytes], is_read: bool = True) -> Make:
        def make(rows: list[Row]) -> Dirty:
            return Dirty(name, end, pack(Form().write(rows)), rows if is_read else None)

        return make

    yield packed("gzip", "csv.gz", gzip.compress)
    yield packed("gzip named .csv", "csv", gzip.compress, False)
    yield packed("text named .csv.gz", "csv.gz", bytes, False)
    yield packed("text named .parquet", "parquet", bytes, False)
    yield packed("text named .xlsx", "xlsx", bytes, False)
    yield packed("gzip that is cut off", "csv.gz", lambda body: gzip.compress(body)[:-30], False)
    yield packed("zip", "csv.zip", lambda body: _zip({"a.csv": body}))
    yield packed("zip of two files", "csv.zip", lambda b: _zip({"a.csv": b, "b.csv": b}), False)
    yield packed("encrypted zip", "csv.zip", lambda body: _locked(_zip({"a.csv": body})), False)
    yield packed("zip that is cut off", "csv.zip", lambda b: _zip({"a.csv": b})[:-40], False)
    yield packed("empty", "csv", lambda _: b"", False)
    yield lambda rows: Dirty("header alone", "csv", b"nr,ward,day,cost\n", [])
    yield lambda rows: Dirty("one line", "csv", Form(end=" ").write(rows), [], **UNNAMED)
    yield packed("a page", "csv", lambda _: b"<!DOCTYPE html>\n<p>4711</p>\n", False)
    yield packed("zeros", "csv", lambda _: bytes(4096), False)
    bomb = gzip.compress(bytes(64 << 20))
    yield packed("a bomb of zeros", "csv.gz", lambda _: bomb, False)
    head = b"nr,ward,day,cost\n"
    lines = gzip.compress(head + b"x" * (64 << 20))
    yield lambda rows: Dirty("a bomb of one line", "csv.gz", lines, [])


def _zip(files: dict[str, bytes]) -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return found.getvalue()


def _locked(body: bytes) -> bytes:
    """Say of the file in an archive that it is encrypted, in both places."""
    found = bytearray(body)
    found[6] |= 1
    found[body.index(b"PK\x01\x02") + 8] |= 1
    return bytes(found)


def _told(rows: Sequence[Row]) -> list[tuple[object, ...]]:
    return [(r.nr, r.ward, r.day.isoformat(), r.cost) for r in rows]


def _written(end: str, rows: Sequence[Row], folder: Path, sheets: Sequence[str] = ("S",)) -> bytes:
    path = folder / f"made.{end}"
    if end == "xlsx":
        write_sheet(path, NAMES, _told(rows), sheets)
    else:
        WRITERS[end](path, NAMES, _told(rows))
    return path.read_bytes()


def _books() -> Iterator[Make]:
    from tempfile import TemporaryDirectory

    def book(rows: Sequence[Row], sheets: Sequence[str] = ("S",)) -> bytes:
        with TemporaryDirectory() as folder:
            return _written("xlsx", rows, Path(folder), sheets)

    def changed(name: str, old: str, new: str, is_read: bool = True, **facts: bool) -> Make:
        def make(rows: list[Row]) -> Dirty:
            body = _edit(book(rows), old, new)
            return Dirty(name, "xlsx", body, rows if is_read else None, **facts)

        return make

    yield lambda rows: Dirty("a workbook", "xlsx", book(rows), rows)
    yield lambda rows: Dirty("a workbook named .csv", "csv", book(rows), None)
    yield lambda rows: Dirty("two sheets", "xlsx", book(rows, ("S", "T")), rows)
    yield lambda rows: Dirty("a cut workbook", "xlsx", book(rows)[:-200], None)
    locked = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(4000)
    yield lambda rows: Dirty("a workbook with a password", "xlsx", locked, None)
    merged = "</sheetData><mergeCells><mergeCell ref='A1:B1'/></mergeCells>"
    yield changed("merged cells", "</sheetData>", merged)
    far = "<row r='1048576'><c r='XFD1048576'><v>1</v></c></row></sheetData>"
    yield changed("a stray far cell", "</sheetData>", far, False)
    few = "<row r='40'><c r='F40'><v>1</v></c></row></sheetData>"
    yield changed("a stray cell", "</sheetData>", few, True)
    yield changed("a formula", "<v>", "<f>1+1</f><v>")


def _edit(body: bytes, old: str, new: str) -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(body)) as archive, zipfile.ZipFile(found, "w") as other:
        for each in archive.namelist():
            text = archive.read(each)
            if "worksheets/" in each:
                assert old.encode() in text
                text = text.replace(old.encode(), new.encode())
            other.writestr(each, text)
    return found.getvalue()


def _others() -> Iterator[Make]:
    from tempfile import TemporaryDirectory

    def made(end: str, change: Callable[[bytes], bytes] = bytes, name: str = "") -> Make:
        def make(rows: list[Row]) -> Dirty:
            with TemporaryDirectory() as folder:
                body = change(_written(end, rows, Path(folder)))
            if name and end == "ndjson":  # whole lines are rows, the last is said to be none
                return Dirty(name, end, body, rows[: body.count(b"\n")], 1)
            return Dirty(name or f"a file of {end}", end, body, None if name else rows)

        return make

    for end in WRITERS:
        if end != "xlsx":
            yield made(end)
            yield made(end, lambda body: body[: len(body) * 2 // 3], f"a cut file of {end}")
