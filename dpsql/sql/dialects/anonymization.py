"""SELECT WITH ANONYMIZATION, ZetaSQL's older words for DIFFERENTIAL_PRIVACY, written in the newer.

``ANON_SUM(x CLAMPED BETWEEN 0 AND 9)`` is ``SUM(x, contribution_bounds_per_group => (0, 9))``, and
``ANON_COUNT(* WITH REPORT (FORMAT = JSON))`` is ``COUNT(*, report_format => JSON)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsql.records import replace
from dpsql.sql.dialects.report_format import WORD as REPORT_FORMAT
from dpsql.sql.text.clauses import PER_ROW, WORD
from dpsql.sql.text.lexemes import Fragment, Lexeme

MARK = "anon"
"""A text without these letters has none of these words."""
_BOUNDED = {
    **dict.fromkeys(("count", "sum", "avg"), WORD),
    **dict.fromkeys(("percentile_cont", "quantiles", "stddev_pop", "var_pop"), PER_ROW),
}
"""Aggregates by their names after ``anon_``, and what their bounds are of."""
_OPTIONS = {"kappa": "max_groups_contributed", "k_threshold": "min_privacy_units_per_group"}
_Change = tuple[int, int, str]


def rewrite_anonymization(fragment: Fragment, lexemes: Sequence[Lexeme]) -> Fragment:
    """A statement in the newer words; as it is where there are no older ones.

    >>> from dpsql.sql.text.lexemes import lex
    >>> text = "SELECT WITH ANONYMIZATION OPTIONS (kappa = 2) ANON_AVG(a CLAMPED BETWEEN -1 AND 9)"
    >>> solid = [each for each in lex(text) if each.kind != "space"]
    >>> written = rewrite_anonymization(Fragment(text, 0, len(text)), solid).body
    >>> written[:70]
    'SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 2) '
    >>> written[70:]
    'AVG(a, contribution_bounds_per_group => (-1, 9))'
    """
    body = fragment.body
    changes = sorted([*_clauses(lexemes), *_aggregates(lexemes, body)], reverse=True)
    for start, end, text in changes:
        body = body[:start] + text + body[end:]
    if not changes:
        return fragment
    text = fragment.text[: fragment.start] + body + fragment.text[fragment.end :]
    return replace(fragment, text=text, end=fragment.start + len(body))


def _clauses(lexemes: Sequence[Lexeme]) -> Iterator[_Change]:
    """The clause after SELECT, and the names of its options."""
    words = [each.text.lower() for each in lexemes]
    for place in range(1, len(words)):
        if words[place - 1 : place + 1] != ["with", "anonymization"]:
            continue
        yield lexemes[place].start, lexemes[place].end, "DIFFERENTIAL_PRIVACY"
        end = words.index(")", place) if ")" in words[place:] else len(words)
        for index in range(place, end):
            if words[index] in _OPTIONS and words[index + 1 : index + 2] == ["="]:
                yield lexemes[index].start, lexemes[index].end, _OPTIONS[words[index]]


def _aggregates(lexemes: Sequence[Lexeme], body: str) -> Iterator[_Change]:
    """The aggregates that begin with ANON_, and their bounds."""
    words = [each.text.lower() for each in lexemes]
    for place, word in enumerate(words):
        name = word.removeprefix("anon_")
        if name not in _BOUNDED or words[place + 1 : place + 2] != ["("]:
            continue
        end = _closing(words, place + 1)
        if name != word:
            called = "approx_quantiles" if name == "quantiles" else name
            yield lexemes[place].start, lexemes[place].end, called.upper()
        elif not any(each in words[place:end] for each in ("clamped", "report")):
            continue
        told = _report(words, place, end)
        if told is not None:
            first, value = told
            written = body[lexemes[value].start : lexemes[end - 1].start]
            yield lexemes[first - 1].end, lexemes[end].start, f", {REPORT_FORMAT} => {written}"
            end = first
        inner = [k for k in range(place, end) if words[k : k + 2] == ["clamped", "between"]]
        if not inner or "and" not in words[inner[-1] : end]:
            continue
        start, middle = inner[-1], end - 1 - words[place:end][::-1].index("and")
        low = body[lexemes[start + 2].start : lexemes[middle - 1].end]
        high = body[lexemes[middle].end : lexemes[end].start].strip()
        yield (
            lexemes[start - 1].end,
            lexemes[end - 1].end,
            f", {_BOUNDED[name]} => ({low}, {high})",
        )


def _report(words: Sequence[str], place: int, end: int) -> tuple[int, int] | None:
    """Positions of WITH REPORT (FORMAT = ...) at the end of a call, and of its format."""
    start = next((k for k in range(place, end) if words[k : k + 2] == ["with", "report"]), end)
    is_format = words[start + 2 : start + 5] == ["(", "format", "="]
    is_last = is_format and _closing(words, start + 2) == end - 1 and start + 5 < end - 1
    return (start, start + 5) if is_last else None


def _closing(words: Sequence[str], place: int) -> int:
    """Position of the parenthesis that closes one; the last word if none does."""
    depth = 0
    for index in range(place, len(words)):
        depth += (words[index] == "(") - (words[index] == ")")
        if depth == 0:
            return index
    return len(words) - 1
