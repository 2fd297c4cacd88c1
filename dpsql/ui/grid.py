"""A rectangular result, and the text of its cells as people see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.answer.rounding import column_texts
from dpsql.answer.rounding import decimals_for as decimals_for
from dpsql.answer.rounding import fixed_decimals as fixed_decimals
from dpsql.answer.rounding import plain as plain
from dpsql.answer.rounding import short as short
from dpsql.errors import cell_width, printable, text_width
from dpsql.records import dataclass

if TYPE_CHECKING:
    from dpsql.dbapi.connection import Result
    from dpsql.vectors import Vector

MARK = "scratch"
"""The last column of drafts, in every format."""


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


@dataclass(frozen=True, slots=True)
class Grid:
    """Columns, their types and values, and per column what is told of the error in every row.

    ``stddev`` is as ``Numbers.errors``: None for a column without noise, NaN for what is not known.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    vectors: tuple[Vector, ...]
    stddev: tuple[Vector | None, ...]

    @classmethod
    def of(cls, result: Result) -> Grid:
        """Take what a format needs from a result; every row of a draft says that it is one."""
        grid = cls(result.columns, result.types, result.vectors, result.errors)
        return grid.marked() if result.is_draft and grid.columns else grid

    def marked(self) -> Grid:
        """Return the grid of a draft: with a last column that says so, whatever becomes of rows."""
        from dpsql.vectors import repeated  # numpy, which help needs not

        name = MARK
        while name in self.columns:
            name += "_"
        vectors = (*self.vectors, repeated("draft", self.count))
        return Grid((*self.columns, name), (*self.types, "text"), vectors, (*self.stddev, None))

    @classmethod
    def of_rows(
        cls,
        columns: tuple[str, ...],
        types: tuple[str, ...],
        rows: Iterable[Sequence[object]],
        stddev: Sequence[Sequence[float | None] | None] | None = None,
    ) -> Grid:
        """Make a grid of rows that are given one by one, by default of public facts.

        Args:
            columns, types: (columns,) names and types.
            rows: (rows, columns) values.
            stddev: (columns,) standard errors (rows,), None without noise.
        """
        from dpsql.vectors import Vector, vectors_of  # numpy, which help needs not

        told = (None,) * len(columns) if stddev is None else stddev
        errors = tuple(None if each is None else Vector.of(each) for each in told)
        return cls(columns, types, vectors_of(rows, len(columns)), errors)

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.vectors[0]) if self.vectors else 0

    def rows(self) -> Iterator[tuple[object, ...]]:
        """The rows; Python's values are made a batch at a time."""
        from dpsql.vectors import rows_of  # numpy, which help needs not

        return rows_of(self.vectors)

    def first(self, count: int) -> Grid:
        """Return the grid with its first rows alone."""
        errors = tuple(None if each is None else each[:count] for each in self.stddev)
        return Grid(self.columns, self.types, tuple(each[:count] for each in self.vectors), errors)

    def with_stddev(self) -> Grid:
        """Return the grid with a column ``<name>_stddev`` after every noisy column."""
        columns: list[str] = []
        types: list[str] = []
        values: list[Vector] = []
        for j, name in enumerate(self.columns):
            columns.append(name)
            types.append(self.types[j])
            values.append(self.vectors[j])
            deviations = self.stddev[j]
            if deviations is not None:
                columns.append(f"{name}_stddev")
                types.append("number")
                values.append(deviations)
        return Grid(tuple(columns), tuple(types), tuple(values), (None,) * len(columns))


@dataclass(frozen=True, slots=True)
class DisplayedColumn:
    """One displayed column: header, cells, and whether it is aligned to the right."""

    header: str
    cells: tuple[str, ...]
    right: bool
    error: bool = False


def shown_columns(grid: Grid, plus_minus: str = "±", null: str = "NULL") -> list[DisplayedColumn]:
    """Return the columns as text: noisy numbers rounded in view of their error, then the error.

    Args:
        grid: one result; all its rows decide the decimals of a column.
        plus_minus: heading of the columns of errors.
        null: text for NULL.

    >>> from dpsql.vectors import Vector
    >>> numbers, errors = Vector.of([12.345, None]), Vector.of([1.41, None])
    >>> grid = Grid(("n",), ("number",), (numbers,), (errors,))
    >>> [(column.header, column.cells) for column in shown_columns(grid)]
    [('n', ('12.3', 'NULL')), ('±', ('1.4', ''))]
    """
    shown = []
    for j, name in enumerate(grid.columns):
        right = grid.types[j] in ("integer", "number")
        told = grid.stddev[j]
        values, known = list(grid.vectors[j]), None if told is None else list(told)
        cells, errors = column_texts(values, known, null)
        shown.append(DisplayedColumn(printable(name), cells, right))
        if errors is not None:
            shown.append(DisplayedColumn(plus_minus, errors, True, error=True))
    return shown


def clip(text: str, width: int, mark: str = "…") -> str:
    """Shorten a text to ``width`` terminal cells, marking what was cut.

    Args:
        text: without control characters; wide characters take two cells.
        width: cells of the terminal.
        mark: stands for what was cut, within the width.

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
    """Fill a text with blanks to ``width`` terminal cells.

    Args:
        text: stays whole where it is wider.
        width: cells of the terminal.
        right: True to align to the right, as numbers are.
    """
    blank = " " * (width - text_width(text))
    return blank + text if right else text + blank
