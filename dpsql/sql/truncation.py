"""OPTIONS(clip = ..., sum_mechanism = ...): where the values of a sum are clipped, and how it is
answered."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

from dpsql.errors import ProgrammingError, Span, printable
from dpsql.sql.lexemes import Fragment
from dpsql.sql.options import Options

CLIPS = (
    *("none", "svt", "svt-ratio", "recursive", "quantile", "approx-bounds"),
    *("sure", "eb", "r2t"),
)
"""How a threshold may be chosen; a number is one that is given."""

SUM_MECHANISMS = ("tamm", "timm", "identity", "workload", "sqm")

_NUMBER = re.compile(r"\d{1,18}(\.\d{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cut:
    """Values of a column of a table, both case-folded, count as ``level`` where they are above it.

    It holds for all SUM, AVG and variances of a statement.
    """

    table: str
    column: str
    level: float


@dataclass(frozen=True, slots=True)
class Truncation:
    """The rule that chooses a threshold, or the given ``level``; how a batch is answered.

    ``mechanism`` is None where it was not named.
    """

    rule: str
    level: Fraction | None
    mechanism: str | None
    span: Span = field(compare=False)


def read_truncation(fragment: Fragment, options: Options) -> Truncation | None:
    """Read the options about clipping; None where there are none.

    Raises: ProgrammingError (E_SETTING).
    """
    given = dict(options)
    clip, mechanism = given.get("clip"), given.get("sum_mechanism")
    if clip is None and mechanism is None:
        return None
    if mechanism is not None and mechanism.lower() not in SUM_MECHANISMS:
        raise _unknown(fragment, "sum_mechanism", mechanism, f"one of {', '.join(SUM_MECHANISMS)}")
    named = None if mechanism is None else mechanism.lower()
    if clip is None:
        return Truncation("none", None, named, _span(fragment, "sum_mechanism"))
    span = _span(fragment, "clip")
    if clip.lower() in CLIPS:
        return Truncation(clip.lower(), None, named, span)
    level = Fraction(clip) if _NUMBER.fullmatch(clip) else None
    if not level:
        known = ", ".join(f"'{each}'" for each in CLIPS)
        raise _unknown(fragment, "clip", clip, f"one of {known}, or a number above 0")
    return Truncation("given", level, named, span)


def _unknown(fragment: Fragment, name: str, text: str, hint: str) -> ProgrammingError:
    return ProgrammingError(
        "E_SETTING", f"{name} = {printable(text)}", hint=hint, span=_span(fragment, name)
    )


def _span(fragment: Fragment, name: str) -> Span:
    """Where an option stands in its statement."""
    option = rf"options\s*\([^)]*?\b({name}\s*=\s*('[^']*'|[^\s,()']+))"
    found = re.search(option, fragment.body, re.IGNORECASE)
    start, end = (0, len(fragment.body)) if found is None else found.span(1)
    return fragment.span(start, end)
