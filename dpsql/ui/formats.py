"""The output formats: one registry, one small renderer each."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import chain

from dpsql.answer.rounding import for_spreadsheets
from dpsql.errors import UsageError, is_seen, printable_fields, text_width
from dpsql.records import dataclass
from dpsql.ui.grid import DisplayedColumn, Grid, pad, plain, shown_columns
from dpsql.ui.style import Style as Style


@dataclass(frozen=True, slots=True)
class Format:
    """One output format: its name, file extension and renderer (text or bytes)."""

    name: str
    extension: str
    render: Callable[[Grid, Style], Iterator[str]] | None = None
    encode: Callable[[Grid, Style], bytes] | None = None


FORMATS: dict[str, Format] = {}
Renderer = Callable[[Grid, Style], Iterator[str]]


def text_format(name: str, extension: str) -> Callable[[Renderer], Renderer]:
    """Register a text format."""

    def register(render: Renderer) -> Renderer:
        FORMATS[name] = Format(name, extension, render=render)
        return render

    return register


def find_format(name: str) -> Format:
    """Return a format by name, checking that what it needs is installed.

    Raises: UsageError for an unknown name or a missing optional package.
    """
    found = FORMATS.get(name.lower())
    if found is None:
        raise UsageError(
            "E_FORMAT", f"unknown format {name!r}", hint=f"formats: {', '.join(FORMATS)}"
        )
    if found.encode is not None:
        from importlib.util import find_spec  # asks without importing: pyarrow takes 0.15 s

        if find_spec("pyarrow") is None:
            raise UsageError(
                "E_FORMAT",
                f"the format {found.name} needs the package pyarrow",
                hint="pip install 'dpsql[arrow]', or choose csv or jsonl",
            )
    return found


def _with_errors(grid: Grid, style: Style) -> Grid:
    return grid.with_stddev() if style.stddev else grid


@text_format("box", "txt")
def render_box(grid: Grid, style: Style) -> Iterator[str]:
    """Draw a table with a ± column next to every noisy column."""
    from dpsql.ui.box import draw_box  # files and pipes get other formats

    yield draw_box(grid, style)


def _separated(
    grid: Grid, style: Style, field: Callable[[object], str], mark: str
) -> Iterator[str]:
    """Lines of fields, a header and then a batch of rows at a time.

    Fields end with their mark, so that those of a batch are put together at once.
    """
    from dpsql.vectors import batches_of  # numpy, which help needs not

    grid = _with_errors(grid, style)
    if not grid.columns:
        return

    def one(value: object) -> str:
        is_text = isinstance(value, str | list)
        return field(for_spreadsheets(plain(value)) if is_text else value)

    written = field if style.formulas else one
    alone = field("") if len(grid.columns) < 2 else ""
    fields: list[Callable[[object], str]] = [lambda value: written(value) + mark] * len(
        grid.columns
    )
    fields[-1:] = [lambda value: f"{written(value) or alone}\n"]
    header = ["".join(write(name) for write, name in zip(fields, grid.columns, strict=True))]
    parts = ("".join(chain.from_iterable(rows)) for rows in batches_of(grid.vectors, fields))
    for text in chain(header, parts):
        yield printable_fields(text) if style.terminal else text


@text_format("csv", "csv")
def render_csv(grid: Grid, style: Style) -> Iterator[str]:
    """Write RFC 4180 lines in full precision; NULL is an empty field, empty text is ``""``."""
    return _separated(grid, style, _csv_field, ",")


def _csv_field(value: object) -> str:
    """Quote a field where needed.

    >>> [_csv_field(value) for value in (None, "", "a,b", 1.5)]
    ['', '""', '"a,b"', '1.5']
    """
    if value is None:
        return ""
    text = plain(value)
    if text and not re.search(r'[,"\r\n]', text):
        return text
    return '"' + text.replace('"', '""') + '"'


@text_format("tsv", "tsv")
def render_tsv(grid: Grid, style: Style) -> Iterator[str]:
    """Write tab-separated lines; tabs, line breaks and backslashes in values are escaped."""
    return _separated(grid, style, _tsv_field, "\t")


def _tsv_field(value: object) -> str:
    escapes = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
    return "" if value is None else plain(value).translate(escapes)


def json_value(value: object) -> object:
    """Return the JSON form of one value; NaN and infinities become null."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Fraction | Decimal):
        return float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [json_value(each) for each in value]
    return plain(value)


def _records(grid: Grid, style: Style) -> Iterator[list[str]]:
    """The rows as objects, a batch at a time."""
    from dpsql.vectors import batches_of  # numpy, which help needs not

    grid = _with_errors(grid, style)
    for part in batches_of(grid.vectors, [_json_cell] * len(grid.columns)):
        yield [json_text(dict(zip(grid.columns, row, strict=True))) for row in part]


def _json_cell(value: object) -> object:
    """The JSON form of a cell; an error that is not known is "NaN", as PostgreSQL writes it."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else json_value(value)


def json_text(value: object, indent: int | None = None) -> str:
    """Encode without leaving any character in the text that is not seen."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return "".join(c if c == "\n" or is_seen(c) else json.dumps(c)[1:-1] for c in text)


@text_format("json", "json")
def render_json(grid: Grid, style: Style) -> Iterator[str]:
    """Write one array of objects, in full precision."""
    before = "[\n"
    for records in _records(grid, style):
        yield before + ",\n".join(f"  {record}" for record in records)
        before = ",\n"
    yield "\n]\n" if grid.count else "[]\n"


@text_format("jsonl", "jsonl")
def render_jsonl(grid: Grid, style: Style) -> Iterator[str]:
    """Write one object per line, in full precision."""
    for records in _records(grid, style):
        yield "".join(f"{record}\n" for record in records)


@text_format("markdown", "md")
def render_markdown(grid: Grid, style: Style) -> Iterator[str]:
    """Write a pipe table with a ± column next to every noisy column."""
    columns = shown_columns(grid)
    escaped = [[_pipe(text) for text in (c.header, *c.cells)] for c in columns]
    widths = [max(3, *map(text_width, texts)) for texts in escaped]
    lines = [
        " | ".join(pad(t[i], w, c.right) for t, w, c in zip(escaped, widths, columns, strict=True))
        for i in range(grid.count + 1)
    ]
    dashes = " | ".join(
        "-" * (w - 1) + (":" if c.right else "-") for w, c in zip(widths, columns, strict=True)
    )
    yield "".join(f"| {line} |\n" for line in [lines[0], dashes, *lines[1:]])


def _pipe(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


@text_format("html", "html")
def render_html(grid: Grid, style: Style) -> Iterator[str]:
    """Write one ``<table>`` element; all text is escaped."""
    from html import escape  # of 2,000 entities

    columns = shown_columns(grid)
    head = "".join(f"<th>{escape(column.header)}</th>" for column in columns)
    rows = "".join(
        "<tr>" + "".join(_html_cell(c, escape(c.cells[i])) for c in columns) + "</tr>\n"
        for i in range(grid.count)
    )
    yield f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"


def _html_cell(column: DisplayedColumn, text: str) -> str:
    kind = ' class="error"' if column.error else ' class="number"' if column.right else ""
    return f"<td{kind}>{text}</td>"


@text_format("line", "txt")
def render_line(grid: Grid, style: Style) -> Iterator[str]:
    """Write one ``name = value`` line per column, records separated by a blank line."""
    columns = shown_columns(grid)
    width = max((text_width(column.header) for column in columns), default=0)
    records = [
        "".join(f"{pad(column.header, width, True)} = {column.cells[i]}\n" for column in columns)
        for i in range(grid.count)
    ]
    yield "\n".join(records)


def _encode_parquet(grid: Grid, style: Style) -> bytes:
    from dpsql.ui.columnar import encode_parquet  # pyarrow is optional

    return encode_parquet(_with_errors(grid, style))


def _encode_arrow(grid: Grid, style: Style) -> bytes:
    from dpsql.ui.columnar import encode_arrow  # pyarrow is optional

    return encode_arrow(_with_errors(grid, style))


FORMATS["parquet"] = Format("parquet", "parquet", encode=_encode_parquet)
FORMATS["arrow"] = Format("arrow", "arrow", encode=_encode_arrow)


def encoded(grid: Grid, name: str, style: Style) -> Iterator[bytes]:
    """The parts of a file in the named format, UTF-8 for text formats.

    Args:
        grid: its rows are written some at a time, so that a large file is never whole in memory.
        name: of a format, such as csv; an unknown one is refused.
        style: width, error columns and escapes, of which a format takes what it has.
    """
    found = find_format(name)
    if found.encode is not None:
        yield found.encode(grid, style)
        return
    assert found.render is not None
    for part in found.render(grid, style):
        yield part.encode()


def encode(grid: Grid, name: str, style: Style) -> bytes:
    """Return a whole file in the named format, UTF-8 for text formats.

    Args:
        grid: one result.
        name: of a format, such as csv; an unknown one is refused.
        style: width, error columns and escapes, of which a format takes what it has.
    """
    return b"".join(encoded(grid, name, style))
