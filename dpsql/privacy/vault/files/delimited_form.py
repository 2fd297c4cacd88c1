"""The form of a file of delimited text, and types of its columns, as they look: for a draft alone.

The curator, who has the file, looks at its first lines before there is a catalog. Of values their
spelling is told and nothing else: no value, no bound and no number of rows. The curator confirms
it; what a catalog does not declare is never sniffed when rows are read.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from dpsql.catalog.column_guesses import guess_family
from dpsql.catalog.delimited import MISSING_WORDS, Delimited
from dpsql.privacy.vault.data_engine import Form, Unreadable
from dpsql.privacy.vault.files.csv_patterns import pattern, spelling
from dpsql.privacy.vault.files.lines import MAX_HEADER, split_line
from dpsql.privacy.vault.files.text_files import MARKS, open_text, refuse_foreign
from dpsql.records import dataclass, replace

SAMPLE = 1 << 20
"""Bytes that are looked at."""
MOST = 2000
"""Lines that are looked at."""
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SIGNS = (
    *((".", ""), (".", ","), (",", ""), (",", "."), (",", "\u00a0"), (",", "\u202f")),
    *((",", " "), (".", " "), (".", "'"), (".", "\u2019"), (",", "'")),
)
"""Decimal marks and marks of thousands, the most ordinary first."""
CURRENCIES = [
    "€",
    "$",
    "£",
    "¥",
    "₹",
    "₽",
    "EUR",
    "USD",
    "GBP",
    "CHF",
    "SEK",
    "NOK",
    "DKK",
    "PLN",
    "CZK",
    "kr",
    "zł",
    "Kč",
    "Ft",
    "Fr",
]
DAYS = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y.%m.%d"),
    *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%m-%y"),
)
CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", "T%H:%M:%S")
ISO = tuple("%Y-%m-%d" + clock for clock in CLOCKS)
FORMATS = tuple(day + clock for day in DAYS for clock in CLOCKS)
DIGITS = ("%Y%m%d", "%d%m%Y")
"""Days without signs, which are looked for where the name is that of a day."""
FLAGS = ({"true", "false"}, {"yes", "no"}, {"t", "f"}, {"y", "n"})
LOST = "\ufffd"
"""The text that stands for bytes that are not of the encoding of a line, which is no row."""
TIME = re.compile(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?")
LOOKS = {
    "integer": "whole numbers",
    "float": "numbers",
    "date": "days",
    "timestamp": "days with times",
    "time": "times of day",
    "boolean": "flags",
    "text": "texts",
}
"""Looks of the values of a family, in words."""


@dataclass(frozen=True, slots=True)
class DelimitedForm:
    """The form of a file as it looks, and its columns as (name, family, how its values look).

    ``told`` are sentences for the curator on the file.
    """

    written: Delimited
    columns: tuple[tuple[str, str, str], ...]
    told: tuple[str, ...]


def sniff(path: str, blind: bool = False) -> DelimitedForm:
    """Look at the first lines of a file, or at its header alone. Raises: OSError, Unreadable."""
    with open_text(path) as file:
        raw = file.readline(MAX_HEADER) if blind else file.read(SAMPLE)
    encoding = _encoding(raw)
    refuse_foreign(path, encoding)
    with open_text(path, encoding) as file:
        raw = file.readline(MAX_HEADER) if blind else file.read(SAMPLE)
    *ended, last = raw.decode("utf-8-sig", "replace").split("\n")
    returned = sum(each.endswith("\r") for each in ended)
    ends = "LF" if not returned else "CR LF" if returned == len(ended) else "CR LF, and some in LF"
    lines = [*ended, *([] if len(raw) == SAMPLE else [last])]
    lines = [each.removesuffix("\r") for each in lines[:MOST]]
    delimiter, count = _delimiter(lines, Delimited().cut(path))
    written = Delimited("" if delimiter == Delimited().cut(path) else delimiter, encoding)
    skip = next((i for i, each in enumerate(lines) if _is_whole(each, delimiter, count)), 0)
    rows = [
        each
        for e in lines[skip:]
        if LOST not in e and (each := split_line(e, delimiter, count)) is not None
    ]
    if not rows:  # what opens the file says why
        return DelimitedForm(written, (), ())
    names, *values = rows
    if not any(names):
        return DelimitedForm(written, (), ())
    if not any(each.isprintable() and each for each in names):
        problem = f"line {skip + 1} holds no name that can be read as {encoding}"
        raise Unreadable(problem, "put the file in UTF-8 by iconv, and draft again")
    above = None if blind or not skip else _shorter(lines[skip - 1], rows, delimiter)
    again = above is None and not blind and _are_names(names, values)
    if again and values[0] == names:
        skip += 1
    values = values[again:]
    said = [] if blind else _values_of(values, names)
    form = _form(said, names) if said else Delimited()
    named = _names(names, [_look(each, "", form)[0] for each in said], form)
    if above is not None:
        named, skip = (above, True), skip - 1
    if named is not None and named[1]:
        said = _values_of([names, *values], names)
        form = _form(said, names)
    form = replace(form, delimiter=written.delimiter, encoding=encoding, skip=skip)
    if named is not None:
        form = replace(form, header=named[0], skip=skip + (not named[1] or above is not None))
        names = [*named[0]]
    looks = [_look(each, name, form) for name, each in zip(names, said, strict=False)]
    looks = looks or [(guess_family(name), "") for name in names]
    columns = tuple((name, *look) for name, look in zip(names, looks, strict=True))
    told = [*_told(form, delimiter, lines, named, said)]
    if ended:
        told[0] += f", lines that end in {ends}"
    if above is not None:
        told = [each for each in told if not each.startswith("no header")]
        told.append("a delimiter at the end of each row and not of the header: a column is added")
    if again and rows[1] != rows[0]:
        told.append(
            f"line {skip + 2} looks like names or units, and is a row: delete it, or name it"
            " the header by skip"
        )
    if not blind and not values:
        told.append("no line after the header is a row")
    return DelimitedForm(form, columns, tuple(told))


def sniff_rows(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> DelimitedForm:
    """Look at texts of some rows (rows, columns), of a source that says where its fields end."""
    said = [[text for row in rows[:MOST] if (text := row[i])] for i in range(len(names))]
    form = _form(said, names)
    looks = (_look(each, name, form) for name, each in zip(names, said, strict=True))
    columns = tuple((name, *look) for name, look in zip(names, looks, strict=True))
    return DelimitedForm(form, columns, tuple(_said(form, said)))


def _encoding(raw: bytes) -> str:
    if raw[:2] in MARKS:
        return "utf-16"
    # In UTF-16, every other byte of Latin text is zero.
    if 4 * raw[:1000].count(0) > len(raw[:1000]):
        return "utf-16-be" if raw[:2].find(b"\0") == 0 else "utf-16-le"
    lines = [each for each in raw.split(b"\n")[:-1] or [raw] if not each.isascii()]
    if 2 * sum(map(_is_utf8, lines)) >= len(lines):  # a few others are faults of their own
        return "utf-8"
    # cp1252 has no characters for these five bytes; in cp850 they are letters.
    return "cp850" if {*raw} & {0x81, 0x8D, 0x8F, 0x90, 0x9D} else "cp1252"


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _fields(line: str, delimiter: str) -> int:
    """The number of fields of a line, 0 if a quote is open."""
    try:
        return len(next(csv.reader([line], delimiter=delimiter, strict=True)))
    except (csv.Error, StopIteration):
        return 0


def _is_whole(line: str, delimiter: str, count: int) -> bool:
    """True if a line has so many fields, half of them not empty, as those above a header are."""
    fields = split_line(line, delimiter, count)
    return fields is not None and 2 * sum(map(bool, fields)) >= count


def _delimiter(lines: Sequence[str], usual: str) -> tuple[str, int]:
    """The delimiter by which most lines have as many fields, and how many these are."""
    found = []
    for each in dict.fromkeys([usual, *DELIMITERS]):
        counts = Counter(_fields(line, each) for line in lines[:200] if line.strip())
        ((fields, times),) = counts.most_common(1) or [(1, 0)]
        found.append((fields > 1, times, fields, each))
    best = max(found, key=lambda each: each[:3])  # the first of those that are alike
    return (best[3], best[2]) if best[0] else (usual, 1)


def _names(
    names: Sequence[str], families: Sequence[str], written: Delimited
) -> tuple[tuple[str, ...], bool] | None:
    """Names to declare, and whether the first line is a row; None where it is a usable header."""
    years = [each for each in names if re.fullmatch("(19|20)[0-9]{2}", each)]
    kinds = [_look([each], "", written)[0] for each in names]
    like = [k == f or {k, f} == {"integer", "float"} for k, f in zip(kinds, families, strict=False)]
    is_row = bool(like) and all(like) and {*kinds} != {"text"} and len(years) < 2
    if is_row:
        return tuple(f"c{i + 1}" for i in range(len(names))), True
    if len({*names}) == len(names):
        return None
    taken: set[str] = set()
    found = []
    for i, name in enumerate(names):
        plain = name if name and name.isprintable() else f"c{i + 1}"
        tries = (plain if n == 1 else f"{plain}_{n}" for n in range(1, len(names) + 2))
        found.append(next(each for each in tries if each not in taken))
        taken.add(found[-1])
    return tuple(found), False


def _shorter(line: str, rows: Sequence[Sequence[str]], delimiter: str) -> tuple[str, ...] | None:
    """Names from a header with one field less than the rows, all of which end in a delimiter."""
    names = split_line(line, delimiter, len(rows[0]) - 1)
    is_so = names is not None and all(names) and not any(row[-1] for row in rows)
    return (*names, f"c{len(rows[0])}") if is_so and names is not None else None


def _are_names(above: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """True if the first row is one of names, without which some columns are no texts."""
    if len(rows) < 2 or len({*rows[0]}) < len(above) or not all(rows[0]):
        return False
    if any(map(_digits, rows[0])) or any(map(_is_lost, rows[0])):
        return False
    columns = _values_of(rows[1:], above)
    form = _form(columns, above)
    return any(_look(each, "", form)[0] not in ("text", "boolean") for each in columns if each)


def _values_of(rows: Sequence[Sequence[str]], names: Sequence[str]) -> list[list[str]]:
    """The values of each column that are not empty."""
    return [[row[i] for row in rows if row[i]] for i in range(len(names))]


def _is_lost(value: str) -> bool:
    return value.strip().casefold() in MISSING_WORDS


def _form(columns: Sequence[Sequence[str]], names: Sequence[str]) -> Delimited:
    """The form of values with which most columns are numbers or days."""
    known = [[value for value in each if not _is_lost(value)] for each in columns]
    marks = [
        mark
        for mark in (*CURRENCIES, "%")
        if any(any(map(_beside(mark), each)) and all(map(_digits, each)) for each in known)
    ]
    base = Delimited(currency=tuple(m for m in marks if m != "%"), percent="%" in marks)
    tried = [replace(base, decimal=decimal, thousands=more) for decimal, more in SIGNS]
    best = max(tried, key=lambda form: sum(_numeric(each, form) for each in known))
    found = [_formats(each, name)[:1] for name, each in zip(names, known, strict=True)]
    formats = dict.fromkeys(format_ for each in found for format_ in each)
    if formats and any(_fits(each, "day", Delimited()) for each in known):
        formats |= dict.fromkeys(ISO)  # is no usual form any more where others are declared
    best = replace(best, dates=tuple(formats))
    lost = {
        value
        for name, all_, each in zip(names, columns, known, strict=True)
        if len(each) < len(all_) and _look(each, name, best)[0] != "text"
        for value in all_
        if _is_lost(value)
    }
    return replace(best, missing=tuple(sorted(lost)))


def _beside(mark: str) -> Callable[[str], object]:
    part = re.escape(mark)
    return re.compile(rf"[+-]?{part}\s*[+-]?\d.*|.*\d\s*{part}").fullmatch


def _digits(value: str) -> bool:
    return any(map(str.isdigit, value))


def _fits(values: Sequence[str], form: Form, written: Delimited) -> bool:
    """True if there are values, and all are of a form."""
    known, fits = spelling(form, written), re.compile(pattern(form)).fullmatch
    return bool(values) and all(fits(v if known is None else known.plain(v)) for v in values)


def _numeric(values: Sequence[str], written: Delimited) -> bool:
    return _fits(values, "number", written) and any(map(_digits, values))


def _formats(values: Sequence[str], name: str) -> list[str]:
    """The formats that all values have; none where they are days in the usual form."""
    if not values or _fits(values, "day", Delimited()):
        return []
    tried = (*(DIGITS if guess_family(name) == "date" else ()), *FORMATS)
    return [each for each in tried if _fits(values, "day", Delimited(dates=(each,)))]


def _look(values: Sequence[str], name: str, written: Delimited) -> tuple[str, str]:
    """The family that the values of a column have by their spelling, and how they look."""
    known = [value for value in values if not _is_lost(value)]
    if not known:
        return guess_family(name), ""
    family = _family(known, name, written)
    return family, LOOKS[family]


def _family(values: Sequence[str], name: str, written: Delimited) -> str:
    if {value.casefold() for value in values} in FLAGS:
        return "boolean"
    if all(map(TIME.fullmatch, values)):
        return "time"
    is_dated = not all(map(str.isdigit, values)) or guess_family(name) == "date"
    if is_dated and _fits(values, "day", written):
        return "timestamp" if any(":" in value for value in values) else "date"
    if not _numeric(values, written):
        return "text"
    known = spelling("number", written)
    plain = [value.strip() if known is None else known.plain(value) for value in values]
    if not all(re.fullmatch(r"[+-]?\d+", each) for each in plain):
        return "float"
    # Numbers with a leading zero, or longer than a double holds, are names of something.
    is_code = any(re.fullmatch(r"0\d+", each) or len(each) > 15 for each in plain)
    return "text" if is_code else "integer"


def _told(
    written: Delimited,
    delimiter: str,
    lines: Sequence[str],
    named: tuple[tuple[str, ...], bool] | None,
    columns: Sequence[Sequence[str]],
) -> Iterator[str]:
    yield f"fields between {DELIMITERS.get(delimiter, repr(delimiter))}, in {written.encoding}"
    if written.encoding in ("cp1252", "cp850"):
        yield "bytes that are not UTF-8: other encodings of one byte would read them differently"
    if written.skip and named is None:
        yield f"lines before the header: {written.skip}"
    if named is not None and named[1]:
        yield "no header: the first line looks like a row, so that names are made up"
    if named is not None and not named[1]:
        yield "a header with the same name twice, so that it is skipped and names are declared"
    yield from _said(written, columns)
    if any('"' in each and _fields(each.replace("\r", " "), delimiter) == 0 for each in lines):
        yield "lines that leave a quote open, which are no rows: quoted_newlines = true joins them"


def _said(written: Delimited, columns: Sequence[Sequence[str]]) -> Iterator[str]:
    """Sentences on how values are written."""
    if written.decimal != "." or written.thousands:
        shown = f"1{written.thousands}234{written.decimal}5"
        yield f"numbers as {shown}, read as 1234.5: with other marks all would be other numbers"
    for format_ in (each for each in written.dates if each not in ISO):
        fits = [f for v in columns if v for f in [_formats([e for e in v if not _is_lost(e)], "")]]
        both = next((f[1] for f in fits if f[:1] == [format_] and len(f) > 1), None)
        yield f"days as {format_}" + (f", which might be {both}: look" if both else "")
    if written.missing:
        yield f"words for what is missing: {', '.join(written.missing)}"
