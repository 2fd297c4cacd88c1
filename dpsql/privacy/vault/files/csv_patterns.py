"""Spellings of numbers, flags, dates and times in CSV files: patterns of what DuckDB reads.

DuckDB takes five to twenty times as long for a text that it cannot convert, since it writes an
error that nobody sees. So a text is converted where it has the form of a value, and a conversion
never fails: what a row costs does not depend on whether its value is one.

Guarantee: DuckDB converts every text that fits; years are 1 to 9999, as those of the catalog are.
"""

from __future__ import annotations

import re
from functools import cache

from dpsql.catalog.delimited import CODES, Delimited
from dpsql.privacy.vault.data_engine import Form
from dpsql.records import dataclass

SPACE = r"[ \t\n\v\f\r]*"
DIGITS = r"[0-9]+(?:_[0-9]+)*"
NUMBER = (
    rf"(?i:{SPACE}\+?-?(?:(?:{DIGITS}\.?(?:{DIGITS})?|\.{DIGITS})(?:e[+-]?{DIGITS})?"
    rf"|inf(?:inity)?|nan){SPACE})"
)
FLAG = "(?i:true|false|t|f|yes|no|y|n|1|0)"
YEAR = "0*[1-9][0-9]{0,3}"
LEAP = (
    "0*(?:[48]|[0-9]{0,2}(?:0[48]|[2468][048]|[13579][26])"
    "|(?:[48]|[02468][48]|[2468]0|[13579][26])00)"
)
LONG, SHORT = "(?:0?[13578]|1[02])", "(?:0?[469]|11)"
ENDS = "(?:0?[1-9]|[12][0-9]{})"
HOURS = r"(?:[01]?[0-9]|2[0-3]):[0-5]?[0-9]"
SECONDS = r":[0-5]?[0-9](?:\.[0-9]*)?"
END = r"24:0?0(?::0?0(?:\.0*)?)?"
OFFSET = "[+-](?:0[0-9]|1[0-5])(?::?[0-5][0-9])?"
ZONE = r"(?: ?(?:Z|[+-][0-9]{2}(?::?[0-9]{2}(?::[0-9]{2})?)?)| [A-Za-z][A-Za-z_/]*)?"


@cache
def pattern(form: Form) -> str:
    """Return the pattern of all of a text that has a form, in the syntax of RE2."""
    if form == "number":
        return NUMBER
    if form == "boolean":
        return FLAG
    days = "|".join(_days(each) for each in ("-", "/", " ", r"\\"))
    instant = rf"(?:{days})(?:T|[ \t]+)(?:{HOURS}(?:{SECONDS})?|{END}){ZONE} *"
    if form == "time":
        timed = (
            rf"(?:{HOURS}|{END}|(?:{HOURS}{SECONDS}|24:0?0:0?0(?:\.0*)?)(?: ?(?:Z|{OFFSET}))? *)"
        )
        return rf"{SPACE}(?:{timed}|{days}|{instant})"
    after = SPACE if form == "day" else ""
    return rf"{SPACE}(?:(?i:epoch){SPACE}|(?:{days}){after}|{instant})"


def _days(between: str) -> str:
    """Write the days of the calendar, whose parts have a sign between them."""
    ends = [
        rf"{LONG}{between}{ENDS.format('|3[01]')}",
        rf"{SHORT}{between}{ENDS.format('|30')}",
        rf"0?2{between}(?:0?[1-9]|1[0-9]|2[0-8])",
    ]
    return rf"(?:{YEAR}{between}(?:{'|'.join(ends)})|{LEAP}{between}0?2{between}29)"


MARK = "\x02"
"""Beginning of a text that has been put in the standard spelling."""
BLANK = "[ \t\u00a0\u2009\u202f]*"


@dataclass(frozen=True, slots=True)
class Spelling:
    """Declared spellings of a value: patterns, and what each of them is in the standard spelling.

    ``signs`` are the decimal mark, then the mark of thousands.
    Guarantee: a text becomes another one by the same steps whatever it is, and none of them fails.
    What has no declared spelling becomes a text that is no value.
    """

    ways: tuple[tuple[str, str], ...]
    signs: str = "."

    def sql(self, raw: str) -> str:
        """Return a text in the standard spelling; NULL for NULL alone."""
        ways = self.ways if len(self.ways) == 1 else ((f"{MARK}(.*)", r"\1"),)
        for pattern, standard in self.ways if len(self.ways) > 1 else ():
            raw = _replaced(raw, f"(?s)^(?:{pattern})$", MARK + standard)
        raw = _replaced(raw, f"(?s)^(?:{ways[0][0]}|.*)$", ways[0][1])
        return raw if self.signs == "." else f"translate({raw}, {_text(self.signs)}, '.')"

    def plain(self, text: str) -> str:
        """Return the same of one text.

        >>> spelling("number", Delimited(decimal=",", thousands=".")).plain("-1.234,5")
        '-1234.5'
        >>> spelling("day", Delimited(dates=("%d.%m.%Y", "%m/%d/%y"))).plain("1/31/69")
        '1969-1-31'
        """
        for pattern, standard in self.ways:
            found = re.fullmatch(pattern, text)
            if found:
                return found.expand(standard).translate(str.maketrans(self._turned()))
        return ""

    def _turned(self) -> dict[str, str | int | None]:
        return {**dict.fromkeys(self.signs, ""), self.signs[0]: "."} if self.signs != "." else {}


@cache
def spelling(form: Form, written: Delimited) -> Spelling | None:
    """Return how values of a form are spelled by declaration; None where in the standard way."""
    if form in ("number", "whole"):
        signs = written.decimal + written.thousands
        is_plain = signs == "." and not written.percent and not written.currency
        return None if is_plain else Spelling(((_number(written), r"\1\2\3"),), signs)
    if form not in ("day", "clock", "time"):
        return None
    chosen = [each for each in written.dates if ("%d" in each) == (form != "time")]
    return Spelling(tuple(way for each in chosen for way in _ways(each))) if chosen else None


def _number(written: Delimited) -> str:
    """Write the pattern of a number with its sign in the first or second group, beside a mark."""
    marks = [re.escape(each) for each in (*written.currency, *["%"] * written.percent)]
    mark = f"(?:(?:{'|'.join(marks)}){BLANK})?" if marks else ""
    point, digits = re.escape(written.decimal), "[0-9]+"
    if written.thousands:
        apart = re.escape(written.thousands)
        digits = f"(?:[0-9]{{1,3}}(?:{apart}[0-9]{{2,3}})*{apart}[0-9]{{3}}|[0-9]+)"
    plain = f"(?:{digits}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"
    return rf"{BLANK}([+-]?){BLANK}{mark}([+-]?)({plain}|(?i:inf(?:inity)?|nan)){BLANK}{mark}"


YEARS = (("[0-5][0-9]|6[0-8]", "20"), ("69|[7-9][0-9]", "19"))
"""Years of two digits, which are those of 1969 to 2068 as in POSIX, and their centuries."""


def _ways(format_: str) -> list[tuple[str, str]]:
    """Return the patterns of a format, each with the standard spelling of what it matches."""
    parts = re.findall("%.|[^%]+", format_)
    codes = [each for each in parts if each in CODES]
    group = {code: rf"\{i + 1}" for i, code in enumerate(codes)}
    time = ":".join(group[each] for each in ("%H", "%M", "%S") if each in group)
    time += f".{group['%f']}" if "%f" in group else ""
    found = []
    for digits, century in YEARS if "%y" in group else (("", ""),):
        near = zip(parts, [*parts[1:], ""], strict=True)
        pattern = "".join(_part(part, after, digits) for part, after in near)
        day = f"{century}{group.get('%Y', group.get('%y'))}-{group.get('%m')}-{group.get('%d')}"
        standard = " ".join([*([day] if "%d" in group else []), *([time] if time else [])])
        found.append((f"[ \t]*{pattern}[ \t]*", standard))
    return found


def _part(part: str, after: str, year: str) -> str:
    """Write the pattern of a part of a format, of full length where no sign ends it."""
    if part not in CODES:
        return re.escape(part)
    found = f"({year})" if part == "%y" else CODES[part]
    return found.replace("{1,2}", "{2}") if after in CODES else found


def _replaced(raw: str, pattern: str, by: str) -> str:
    return f"regexp_replace({raw}, {_text(pattern)}, {_text(by)})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
