"""A rectangular result, and the text of its cells as people see them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import cell_width, printable, text_width

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Result

MAX_DECIMALS = 12
"""Decimal places that are shown: a float of ordinary size has no more to tell."""


def decimals_for(stddevs: Iterable[float | None]) -> int:
    """Return the decimal places that keep two significant digits of the smallest stddev.

    >>> decimals_for([1.41, 86.0]), decimals_for([86.0]), decimals_for([0.0031, None])
    (1, 0, 4)
    """
    finite = [s for s in stddevs if s is not None and 0 < s < math.inf]
    if not finite:
        return 0
    return min(MAX_DECIMALS, max(0, 1 - math.floor(math.log10(min(finite)))))


def fixed(value: float, decimals: int) -> str:
    """Write a number with a fixed number of decimals and without a negative zero.

    >>> fixed(-0.04, 1), fixed(1203.37, 1)
    ('0.0', '1203.4')
    """
    text = f"{value:.{decimals}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def plain(value: object) -> str:
    """Write one value in full precision: ISO dates, lower-case booleans, shortest float.

    >>> plain(True), plain(0.1), plain(dt.date(2024, 2, 1)), plain("x"), plain([1, None])
    ('true', '0.1', '2024-02-01', 'x', '[1, NULL]')
    """
    match value:
        case bool():
            return "true" if value else "false"
        case dt.date():
            return value.isoformat()
        case list():
            return f"[{', '.join('NULL' if each is None else plain(each) for each in value)}]"
        case Fraction():
            return plain(value.numerator if value.denominator == 1 else float(value))
        case _:
            return str(value)


def floor_text(value: Fraction, digits: int = 4) -> str:
    """Write a budget amount with at most ``digits`` significant digits, rounded down.

    >>> floor_text(Fraction(27, 10)), floor_text(Fraction(2, 3)), floor_text(Fraction(1, 10**9))
    ('2.7', '0.6666', '1e-9')
    """
    with localcontext() as context:
        context.prec, context.rounding = digits, ROUND_DOWN
        number = Decimal(value.numerator) / Decimal(value.denominator)
    if number == 0:
        return "0"
    if -5 < number.adjusted() < 12:
        text = f"{number:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, exponent = f"{number.normalize():e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def short(value: float) -> str:
    """Write a forecast error with four significant digits.

    >>> short(5.26135), short(86.0), short(12345.6)
    ('5.261', '86', '12346')
    """
    if math.isnan(value):
        return "not known"
    return fixed(value, 0) if abs(value) >= 1000 else f"{value:.4g}"


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns, their types, rows, and per column either None or one stddev per row."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    stddev: tuple[tuple[float | None, ...] | None, ...]

    @classmethod
    def of(cls, result: Result) -> Grid:
        """Take what a format needs from a result."""
        return cls(result.columns, result.value_types, result.rows, result.stddev)

    @classmethod
    def exact(
        cls, columns: tuple[str, ...], types: tuple[str, ...], rows: list[tuple[object, ...]]
    ) -> Grid:
        """Make a grid of public facts, none of them noisy."""
        return cls(columns, types, tuple(rows), (None,) * len(columns))

    def first(self, count: int) -> Grid:
        """Return the grid with its first rows alone."""
        errors = tuple(None if each is None else each[:count] for each in self.stddev)
        return Grid(self.columns, self.types, self.rows[:count], errors)

    def with_stddev(self) -> Grid:
        """Return the grid with a column ``<name>_stddev`` after every noisy column."""
        columns: list[str] = []
        types: list[str] = []
        values: list[tuple[object, ...]] = []
        for j, name in enumerate(self.columns):
            columns.append(name)
            types.append(self.types[j])
            values.append(tuple(row[j] for row in self.rows))
            deviations = self.stddev[j]
            if deviations is not None:
                columns.append(f"{name}_stddev")
                types.append("number")
                values.append(deviations)
        rows = [tuple(column[i] for column in values) for i in range(len(self.rows))]
        return Grid.exact(tuple(columns), tuple(types), rows)


@dataclass(frozen=True, slots=True)
class Shown:
    """One displayed column: header, cells, and whether it is aligned to the right."""

    header: str
    cells: tuple[str, ...]
    right: bool
    error: bool = False


def shown_columns(grid: Grid, plus_minus: str = "±", null: str = "NULL") -> list[Shown]:
    """Return the columns as text: noisy numbers rounded in view of their error, then the error.

    >>> grid = Grid(("n",), ("number",), ((12.345,), (None,)), ((1.41, None),))
    >>> [(column.header, column.cells) for column in shown_columns(grid)]
    [('n', ('12.3', 'NULL')), ('±', ('1.4', ''))]
    >>> shown_columns(Grid.exact(("x",), ("number",), [(10603.712396,), (9.5,)]))[0].cells
    ('10603.71', '9.5')
    """
    shown = []
    for j, name in enumerate(grid.columns):
        values = [row[j] for row in grid.rows]
        right = grid.types[j] in ("integer", "number")
        deviations = grid.stddev[j]
        if deviations is None or all(each is None for each in deviations):
            shown.append(Shown(printable(name), _exact_cells(values, null), right))
            continue
        decimals = decimals_for(deviations)
        whole = all(float(str(v)).is_integer() for v in values if isinstance(v, int | float))
        places = 0 if whole else decimals
        cells = tuple(_noisy(v, s, places, null) for v, s in zip(values, deviations, strict=True))
        errors = tuple("" if s is None else fixed(s, decimals) for s in deviations)
        shown.append(Shown(printable(name), cells, right))
        shown.append(Shown(plus_minus, errors, True, error=True))
    return shown


def _exact_cells(values: list[object], null: str) -> tuple[str, ...]:
    """Write values without noise: text escaped, fractions with seven significant digits."""
    sizes = [abs(v) for v in values if isinstance(v, float) and math.isfinite(v)]
    decimals = max(0, 6 - math.floor(math.log10(max(1.0, *sizes)))) if sizes else 0
    return tuple(
        null
        if value is None
        else fixed(value, decimals).rstrip("0").rstrip(".")
        if isinstance(value, float) and decimals and math.isfinite(value)
        else printable(plain(value))
        for value in values
    )


def _noisy(value: object, stddev: float | None, decimals: int, null: str) -> str:
    if value is None:
        return null
    if isinstance(value, float) and stddev is not None:
        return fixed(value, decimals)
    return printable(plain(value))


def clip(text: str, width: int, mark: str = "…") -> str:
    """Shorten a text to ``width`` terminal cells, marking what was cut.

    >>> clip("Married-civ-spouse", 8)
    'Married…'
    """
    if text_width(text) <= width:
        return text
    mark = mark[:width]
    kept, used = "", len(mark)
    for character in text:
        used += cell_width(character)
        if used > width:
            break
        kept += character
    return kept + mark


def pad(text: str, width: int, right: bool = False) -> str:
    """Fill a text with blanks to ``width`` terminal cells."""
    blank = " " * (width - text_width(text))
    return blank + text if right else text + blank
