"""Delimited text: how lines, fields and values of a file are written, as a catalog declares it.

Everything here is public. The sentence on each option in docs/files.md is what it means.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from dpsql.catalog.read_place import Place, show
from dpsql.errors import nearest
from dpsql.records import dataclass, fields

TAB_ENDS = (".tsv", ".tab")
"""Ends of names of files whose delimiter is a tab, but for what compresses them."""
OF_BYTES = (
    *("shift-jis", "cp932", "euc-jp", "gb2312", "gbk", "gb18030"),
    *("big5", "cp950", "big5hkscs", "euc-kr", "cp949"),
)
"""Encodings of several bytes a character, none of which is that of a newline."""
ENCODINGS = (
    *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "ascii"),
    *(f"cp{n}" for n in (437, 720, 737, 775, 850, 852, 855, 857, 858, 860, 861, 862, 863, 865)),
    *(f"cp{n}" for n in (866, 874, 1006, 1125, *range(1250, 1259))),
    *(f"iso8859-{n}" for n in range(1, 17) if n != 12),
    *("koi8-r", "koi8-u", "kz1048", "mac-roman", "mac-latin2", "mac-cyrillic", "mac-greek"),
    *OF_BYTES,
)
"""Encodings of which a line can be read by itself: UTF, those of one byte, and those OF_BYTES."""
CODES = {
    "%Y": "([0-9]{4})",
    "%y": "([0-9]{2})",
    "%m": "([0-9]{1,2})",
    "%d": "([0-9]{1,2})",
    "%H": "([0-9]{1,2})",
    "%M": "([0-9]{1,2})",
    "%S": "([0-9]{1,2})",
    "%f": "([0-9]{1,9})",
}
"""Codes of dates and times as in Python's strptime, and the patterns of what they stand for."""
MISSING_WORDS = frozenset(
    {"na", "n/a", "n.a.", "#n/a", "#na", "<na>", "k.a.", "nan", "-nan", "null", "none", "nil"}
    | {"missing", "unknown", ".", "..", "-", "--", "?"}
)
"""Words that are often written where a value is missing, in lower case."""


@dataclass(frozen=True, slots=True)
class Delimited:
    """The declared form of a file of delimited text; each default is that of plain CSV.

    ``delimiter`` is empty where the name of the file says it, ``header`` where the file has a line
    of names. ``dates`` are formats of days and times, ``missing`` the fields that hold no value,
    ``currency`` and ``percent`` what may stand beside a number. The first ``skip`` lines are no
    rows. ``partitions`` are columns that no file has: folders of the files tell them.
    By ``quoted_newlines`` the curator vouches that quotes are written as CSV has them.

    >>> Delimited.of(Delimited(delimiter=";", missing=("NA",)).options())
    Delimited(delimiter=';', missing=('NA',))
    """

    delimiter: str = ""
    encoding: str = "utf-8"
    decimal: str = "."
    thousands: str = ""
    dates: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    skip: int = 0
    percent: bool = False
    currency: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    quoted_newlines: bool = False

    @classmethod
    def of(cls, options: Iterable[tuple[str, str]]) -> Delimited:
        """Return what the options of a table say; those of other things are left aside."""
        known: dict[str, Any] = {key: json.loads(value) for key, value in options if key in KEYS}
        listed = {key: tuple(each) for key, each in known.items() if isinstance(each, list)}
        return cls(**known | listed)

    def said(self) -> dict[str, Any]:
        """Return the options that differ from plain CSV, by their keys in a catalog."""
        pairs = ((each.name, getattr(self, each.name), each.default) for each in fields(self))
        found = {name: value for name, value, default in pairs if value != default}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()}

    def options(self) -> tuple[tuple[str, str], ...]:
        """Return the same as options of a table."""
        return tuple(sorted((key, json.dumps(value)) for key, value in self.said().items()))

    def __repr__(self) -> str:
        said = ((each, getattr(self, each)) for each in self.said())
        return f"Delimited({', '.join(f'{key}={value!r}' for key, value in said)})"

    def cut(self, path: str) -> str:
        """Return the delimiter of a file.

        >>> Delimited().cut("a.tab.gz"), Delimited(delimiter=";").cut("a.tsv")
        ('\\t', ';')
        """
        ends = {f".{each}" for each in path.lower().split(".")[1:]}
        return self.delimiter or ("\t" if ends & set(TAB_ENDS) else ",")


KEYS = tuple(Delimited.__annotations__)
PLAIN = Delimited()
"""CSV as it is where nothing is declared."""


@cache
def code_page(encoding: str) -> str | None:
    """Return the characters of 256 bytes, U+DCFF for those that are none; None for several.

    >>> code_page("cp1252")[0x80], code_page("cp1252")[0x81], code_page("utf-8")
    ('€', '\\udcff', None)
    """
    if encoding.startswith("utf") or encoding in OF_BYTES:
        return None
    found = (bytes([byte]).decode(encoding, "replace") for byte in range(256))
    return "".join(each.replace("\ufffd", "\udcff") for each in found)


def read_delimited(place: Place, given: Mapping[str, Any]) -> Delimited:
    """Read the options of a delimited file. Raises: CatalogError (E_POLICY)."""
    place.check_keys(given, ("file", *KEYS))
    found: dict[str, Any] = {}
    for key in KEYS:
        if key in given:
            found[key] = _read(place, key, given[key])
    written = Delimited(**found)
    if written.decimal == written.thousands:
        place.fail(f"decimal and thousands are both {show(written.decimal)}", EXAMPLES["thousands"])
    return written


LISTS = ("dates", "missing", "header", "currency", "partitions")
"""Options that are lists; a text is a list of one."""
EXAMPLES = {
    "delimiter": 'delimiter = ";", one character of ASCII and no quote',
    "encoding": 'encoding = "cp1252"',
    "decimal": 'decimal = ","',
    "thousands": 'decimal = ",", thousands = "."',
    "dates": 'dates = "%d.%m.%Y" or a list of such formats',
    "missing": 'missing = ["NA", "."], the whole fields that hold no value',
    "header": "header = true, or the names of all columns where the file has no line of them: "
    'header = ["age", "sex"]',
    "skip": "skip = 2, the number of lines before the header",
    "percent": "percent = true: 12.5 % is read as 12.5",
    "quoted_newlines": "quoted_newlines = true, where fields in quotes hold line ends",
    "currency": 'currency = "€" or a list of such marks',
    "partitions": 'partitions = ["year"], the names of folders as year=2024 in which files lie',
}
"""Examples of right values, by option."""


def _read(place: Place, key: str, value: Any) -> Any:
    """Read one option, lists as tuples."""
    known = _as_listed(value) if key in LISTS else value
    if key == "header" and value is True:
        return ()
    if key == "encoding" and isinstance(value, str):
        return _encoding(place, value)
    if not RIGHT[key](known):
        place.fail(f"source has {key} = {show(value)}", EXAMPLES[key])
    if key == "dates":
        for each in known:
            _check_format(place, each)
    return known


def _as_listed(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    return (value,) if isinstance(value, str) else None


def _is_sign(value: Any) -> bool:
    """True if it is a character that may stand between digits."""
    is_one = isinstance(value, str) and len(value) == 1
    return is_one and not value.isalnum() and value not in '+-"\\\r\n\0' and value != "\udcff"


def _is_mark(value: str) -> bool:
    return bool(re.fullmatch(r"[^\W\d_]{1,5}|[^\w\s.,'+\"-]{1,3}", value))


RIGHT: dict[str, Callable[[Any], bool]] = {
    "delimiter": lambda v: (
        isinstance(v, str)
        and len(v) == 1
        and v.isascii()
        and not v.isalnum()
        and v not in '"\r\n\0'
    ),
    "encoding": lambda v: False,
    "decimal": _is_sign,
    "thousands": _is_sign,
    "dates": lambda v: bool(v),
    "missing": lambda v: bool(v) and all(each.isprintable() for each in v),
    "header": lambda v: (
        bool(v) and len(set(v)) == len(v) and all(each and each.isprintable() for each in v)
    ),
    "skip": lambda v: type(v) is int and 0 <= v <= 1000,
    "percent": lambda v: isinstance(v, bool),
    "quoted_newlines": lambda v: isinstance(v, bool),
    "currency": lambda v: bool(v) and all(map(_is_mark, v)),
    "partitions": lambda v: (
        bool(v)
        and len({each.casefold() for each in v}) == len(v)
        and all(each.isprintable() and not {*each} & {*"/=\\"} and each for each in v)
    ),
}
"""Tests of the values that an option may have, by its name."""


def _encoding(place: Place, value: str) -> str:
    """Return the name that Python has for an encoding. Raises: CatalogError."""
    try:
        name = codecs.lookup(value).name.replace("_", "-")
    except (LookupError, ValueError):
        name = value
    if name in ENCODINGS:
        return name
    near = nearest(name, ENCODINGS)
    others = f"did you mean {near!r}? " if near else ""
    others += f"known are {', '.join(ENCODINGS)}; iconv writes any file in UTF-8"
    place.fail(f"source has encoding = {show(value)}, which lines cannot be read in", others)


def _check_format(place: Place, text: str) -> None:
    codes = codes_of(text)
    if codes is None:
        known = ", ".join(CODES)
        problem = f"source has dates = {show(text)}, which is no format of whole days or times"
        remedy = f"{EXAMPLES['dates']}, of {known}: year, month and day, or hour and minute"
        place.fail(problem, remedy)


def codes_of(text: str) -> list[str] | None:
    """Return the codes of a format in order; None if it does not tell a day, a time or both.

    >>> codes_of("%d.%m.%y"), codes_of("%H:%M"), codes_of("%d.%m."), codes_of("%d %B %Y")
    (['%d', '%m', '%y'], ['%H', '%M'], None, None)
    """
    found = re.findall("%.?", text)
    day = {"%Y", "%y", "%m", "%d"} & {*found}
    time = {"%H", "%M", "%S", "%f"} & {*found}
    is_day = len(day) == 3 and {"%m", "%d"} < day
    is_time = {"%H", "%M"} <= time and ("%f" not in time or "%S" in time)
    known = len({*found}) == len(found) and {*found} <= CODES.keys() and text.isprintable()
    return found if known and (is_day or not day) and (is_time or not time) and found else None
