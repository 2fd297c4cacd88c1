"""Results and forecasts as a notebook or Python's prompt shows them: few rows, all that is said."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar

from dpsql.answer.dataframes import frame_columns
from dpsql.answer.numbers import ErrorRange, Numbers
from dpsql.answer.rounding import NOT_KNOWN, column_texts, short
from dpsql.errors import printable, printable_lines
from dpsql.records import dataclass, replace
from dpsql.vectors import Vector

ENDS = 10
"""Rows that are shown from either end of a long result."""

MOST = 60
"""Rows that are shown all; pandas has the same bound."""

_NUMBERS = ("integer", "number")


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column as text: its name, cells, their standard errors, and whether it is of numbers."""

    name: str
    cells: tuple[str, ...]
    errors: tuple[str, ...] | None
    right: bool

    def joined(self, mark: str) -> tuple[str, ...]:
        """The cells with their errors."""
        if self.errors is None:
            return self.cells
        pairs = zip(self.cells, self.errors, strict=True)
        return tuple(f"{cell} {mark} {error}" if error else cell for cell, error in pairs)


N = TypeVar("N", bound=Numbers)


def errors_as_columns(result: N) -> N:
    """The result with a column of standard errors after every noisy one."""
    found = frame_columns(result, True)
    return replace(
        result,
        columns=tuple(each.name for each in found),
        types=tuple(each.kind for each in found),
        vectors=tuple(each.values for each in found),
        stddev=(None,) * len(found),
    )


def errors_as_text(result: N) -> N:
    """The result with standard errors beside the numbers, which are text then."""
    texts = list(texts_of(result, range(result.count)))
    noisy = [each is not None for each in result.stddev]
    vectors = tuple(
        Vector.of(text.joined("\u00b1")) if noisy[j] else result.vectors[j]
        for j, text in enumerate(texts)
    )
    types = tuple("text" if n else kind for n, kind in zip(noisy, result.types, strict=True))
    return replace(result, types=types, vectors=vectors, stddev=(None,) * len(noisy))


def shown_rows(count: int) -> list[int | None]:
    """The rows of a result that are shown; None stands for those between.

    >>> shown_rows(2), len(shown_rows(1000))
    ([0, 1], 21)
    """
    if count <= MOST:
        return list(range(count))
    return [*range(ENDS), None, *range(count - ENDS, count)]


def texts_of(result: Numbers, rows: Sequence[int]) -> Iterator[TextColumn]:
    """The columns of some rows of a result; digits follow from the errors of all rows."""
    kinds = zip(result.columns, result.types, result.errors, strict=True)
    for j, (name, kind, told) in enumerate(kinds):
        values = list(result.vectors[j].take(rows))
        errors = None if told is None else list(told.take(rows))
        yield TextColumn(printable(name), *column_texts(values, errors), kind in _NUMBERS)


def count_text(result: Numbers, shown: int) -> str:
    """Return the numbers of rows and columns as text.

    >>> from dpsql.answer.result import listing
    >>> count_text(listing(("n",), [(1,)]), 1)
    '1 row, 1 column'
    """
    rows, columns = result.count, len(result.columns)
    part = f" ({shown} shown)" if shown < rows else ""
    plural = "" if rows == 1 else "s"
    return f"{rows:,} row{plural}{part}, {columns} column{'' if columns == 1 else 's'}"


def errors_text(result: Numbers, mark: str = " ") -> str:
    """The standard errors of all noisy columns: their range, or that none is known.

    >>> from dpsql.answer.result import Result
    >>> rows, errors = ((7, 1.5), (8, 2.5)), ((1414.2, 1414.2), (8.0, None))
    >>> errors_text(Result.of_rows(("n", "d"), ("integer", "number"), rows, errors, ""))
    'n 1414; d 8, some not known'
    """
    return "; ".join(f"{printable(each.name)}{mark}{span_text(each)}" for each in result.spans)


def span_text(span: ErrorRange) -> str:
    """The least and the greatest of the standard errors of a column."""
    if span.least is None or span.greatest is None:
        return NOT_KNOWN
    ends = list(dict.fromkeys(map(short, (span.least, span.greatest))))
    return " to ".join(ends) + (f", some {NOT_KNOWN}" if span.unknown else "")


def said_of(result: Numbers) -> list[str]:
    """The cost of a result and its notes."""
    cost = [] if result.cost is None else [f"cost: {result.cost}"]
    return [*cost, *(f"note: {note}" for note in result.notes)]


def result_text(result: Numbers) -> str:
    """A result as a table of text, its cost and notes below."""
    if not result.columns:
        return printable_lines(result.message or "")
    wanted = shown_rows(result.count)
    rows = [i for i in wanted if i is not None]
    columns = [(c.name, c.joined("±"), c.right) for c in texts_of(result, rows)]
    widths = [max(map(len, (name, *cells))) for name, cells, _ in columns]
    rights = [right for *_, right in columns]
    lines = [_line([name for name, *_ in columns], widths, rights)]
    lines += [_line(row, widths, rights) for row in zip(*(c[1] for c in columns), strict=True)]
    if len(rows) < len(wanted):
        lines.insert(ENDS + 1, _line(["..."] * len(columns), widths, rights))
    below = [f"[{count_text(result, len(rows))}]", *map(printable, said_of(result))]
    return "\n".join([*lines, *below])


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = zip(cells, widths, right, strict=True)
    return "  ".join(f"{c:>{w}}" if r else f"{c:<{w}}" for c, w, r in padded).rstrip()


def result_html(result: Numbers) -> str:
    """A result as a table of HTML, its cost and notes below; all text is escaped."""
    if not result.columns:
        return f"<p>{html.escape(printable_lines(result.message or ''))}</p>"
    wanted = shown_rows(result.count)
    rows = [i for i in wanted if i is not None]
    columns = list(texts_of(result, rows))
    head = "".join(_cell("th", html.escape(c.name), c.right) for c in columns)
    lines = zip(*(_cells(column) for column in columns), strict=True)
    body = [f"<tr>{''.join(line)}</tr>" for line in lines]
    if len(rows) < len(wanted):
        body.insert(ENDS, f"<tr>{''.join(_cell('td', '&hellip;', c.right) for c in columns)}</tr>")
    below = [count_text(result, len(rows)), *said_of(result)]
    said = "<br>".join(html.escape(printable(line)) for line in below)
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        f"<p><small>{said}</small></p>"
    )


def _cells(column: TextColumn) -> list[str]:
    errors = column.errors or ("",) * len(column.cells)
    return [
        _cell("td", html.escape(cell) + (f" <small>&plusmn; {error}</small>" if error else ""), r)
        for cell, error, r in zip(column.cells, errors, (column.right,) * len(errors), strict=True)
    ]


def _cell(tag: str, inner: str, right: bool) -> str:
    return f'<{tag} style="text-align:{"right" if right else "left"}">{inner}</{tag}>'


class LabelledFacts(ABC):
    """Labels and what is said under each, as text and as a table of HTML."""

    __slots__ = ()

    @abstractmethod
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The labels and texts."""

    def __str__(self) -> str:
        return "\n".join(printable(f"{label:<12}{text}") for label, text in self.rows())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = [[html.escape(printable(each)) for each in row] for row in self.rows()]
        body = (f"<tr>{_cell('th', a, False)}{_cell('td', b, False)}</tr>" for a, b in cells)
        return f"<table><tbody>{''.join(body)}</tbody></table>"
