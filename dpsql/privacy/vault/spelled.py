"""Spellings of numbers, flags, dates and times in CSV files: patterns of what DuckDB reads.

DuckDB takes five to twenty times as long for a text that it cannot convert, since it writes an
error that nobody sees. So a text is converted where it has the form of a value, and a conversion
never fails: what a row costs does not depend on whether its value is one.

Guarantee: DuckDB converts every text that fits; years are 1 to 9999, as those of the catalog are.
"""

from __future__ import annotations

from functools import cache

from dpsql.privacy.vault.data_engine import Form

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
